"""Each block of docs/python.md runs as it is printed there, in order, in one program."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rig

import tineworld

PAGE = rig.ROOT / "docs" / "python.md"

BLOCKS: list[tuple[str, str]] = re.findall(r"^```([^\n]*)\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
# A block that needs routes which not every gateway has names them behind its language.
GATED = [(info.removeprefix("python "), code) for info, code in BLOCKS if info.startswith("python ")]
PRELUDE = "import asyncio\n\nimport tineworld\n\n\n"


def _run(program: str, folder: Path) -> str:
    (folder / "page.py").write_text(program)
    environment = os.environ | {"TINE_BIN": rig.tine_binary()}
    ran = subprocess.run([sys.executable, "-W", "error", "page.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == _no_leases(ran.stderr), ran.stderr
    return ran.stdout


def test_the_page(tmp_path: Path) -> None:
    assert {info.split(" ")[0] for info, _ in BLOCKS} == {"python", "text"}, "a block in another language is not run"
    program = "".join(code + "\n" for info, code in BLOCKS if info == "python")
    assert _run(program, tmp_path) == "".join(code for info, code in BLOCKS if info == "text")


@pytest.mark.parametrize("routes,code", GATED, ids=[routes for routes, _ in GATED])
def test_a_block_that_needs_a_newer_gateway(routes: str, code: str, gateway: rig.Gateway, tmp_path: Path) -> None:
    with tineworld.sync.connect(gateway.url) as t:
        rig.need(t._tine, *routes.split(", "))
    _run(PRELUDE + code, tmp_path)


def _no_leases(stderr: str) -> str:
    """What a gateway without leases makes the package say, and nothing else."""
    return "".join(line + "\n" for line in stderr.splitlines() if "has no leases" in line)


def test_nothing_tells_people_to_install_another_project() -> None:
    wrong = re.compile(r"pip3? install (-U |--upgrade )?tine(?!world)\b")
    for file in [*rig.ROOT.glob("*.md"), *rig.ROOT.glob("docs/**/*.md"), *rig.ROOT.glob("sdk/**/*.md"), *rig.ROOT.glob("sdk/**/*.toml")]:
        assert not wrong.search(file.read_text()), f"{file}: the package is tineworld; tine is another project's"
