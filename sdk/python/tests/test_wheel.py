"""The wheel with the programs in it, installed where there is nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import rig

PROJECT = rig.ROOT / "sdk" / "python"

SANDBOX = """
import tineworld

with tineworld.sync.local({"servers": {"rlm": {"builtin": "rlm"}}}) as t, t.open() as w:
    print(w.call("rlm__rlm_exec", code="x = 41").text)
    with w.fork(2) as ws:
        print([one.call("rlm__rlm_exec", code=f"x + {i}").text for i, one in enumerate(ws)])
    print(w.exec("rlm", ["uname", "-r"]).stdout.strip())
"""


def _build(kind: str, to: Path, programs: Path | None = None) -> Path:
    environment = {**os.environ, "TINE_PROGRAMS": str(programs or "")}
    ran = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(to)], cwd=PROJECT, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    (made,) = to.iterdir()
    return made


@pytest.fixture(scope="module")
def programs() -> Path:
    folder = Path(rig.tine_binary()).parent
    if not (folder / "tine-sandbox").exists():
        rig.lacking(f"there is no {folder}/tine-sandbox, which `make build` puts beside tine")
    return folder


@pytest.fixture(scope="module")
def wheel(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("wheel", tmp_path_factory.mktemp("wheel"), programs)


def _small(programs: Path, to: Path, at: float) -> Path:
    """The beginning of each program, which says what it is for: quick to build a wheel of."""
    to.mkdir()
    for name in ("tine-sandbox", "tine") if at else ("tine", "tine-sandbox"):
        with (programs / name).open("rb") as whole:
            (to / name).write_bytes(whole.read(1 << 20))
        (to / name).chmod(0o755)
        os.utime(to / name, (at, at))
    return to


class Environment:
    """A virtual environment in a folder of its own under /tmp."""

    def __init__(self, folder: Path, *packages: Path) -> None:
        self.folder = folder
        venv.create(folder, with_pip=False, symlinks=True)
        self.site = next(folder.glob("lib/python*/site-packages"))
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
        ran = subprocess.run([*pip, "install", "-q", "--no-compile", "--disable-pip-version-check", *map(str, packages)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment with no other program on PATH, and no variables but these."""
        variables = {"PATH": str(self.folder / "bin"), "HOME": str(self.folder), **variables}
        ran = subprocess.run([str(self.folder / "bin" / argv[0]), *argv[1:]], env=variables, cwd=self.folder, capture_output=True, text=True, timeout=240)
        assert ran.returncode == 0, ran.stderr
        return ran


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Iterator[Environment]:
    folder = Path(tempfile.mkdtemp(dir="/tmp", prefix="tineworld-test-"))  # wherever TMPDIR is
    yield Environment(folder, wheel)
    shutil.rmtree(folder)


def test_the_command_is_the_program(environment: Environment, programs: Path) -> None:
    command = environment.folder / "bin" / "tineworld"
    for installed, built in ((command, "tine"), (command.with_name("tineworld-sandbox"), "tine-sandbox")):
        assert hashlib.sha256(installed.read_bytes()).digest() == hashlib.sha256((programs / built).read_bytes()).digest()
    built = subprocess.run([programs / "tine", "version"], capture_output=True, text=True, check=True).stdout
    assert environment.run("tineworld", "version").stdout == built


@pytest.mark.parametrize("path", ["with the environment", "without anything"])
def test_a_sandbox_in_an_environment_under_tmp(environment: Environment, path: str) -> None:
    if not sys.platform.startswith("linux"):
        rig.lacking("sandboxes need Linux")
    variables = {"PATH": "/nowhere"} if path == "without anything" else {}
    printed = environment.run("python", "-W", "error", "-c", SANDBOX, **variables).stdout.splitlines()
    assert printed[:2] == ["(no output)", "['41', '42']"]
    assert printed[2] != os.uname().release, "that is the kernel of this machine, and not gVisor's"


def _in_folder(package: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Installs a package alone into a folder, and has it look for the program."""
    argv = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps", "--disable-pip-version-check", "--target", str(folder), str(package)]
    subprocess.run(argv, check=True, capture_output=True)
    program = f"import sys; sys.path.insert(0, {str(folder)!r}); import tineworld._programs as p; print(p.__file__, p.find(None))"
    ran = subprocess.run([sys.executable, "-c", program], env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert str(folder) in ran.stdout + ran.stderr, "another installation was taken"
    return ran


def test_an_installation_into_a_folder(programs: Path, tmp_path: Path) -> None:
    ran = _in_folder(_build("wheel", tmp_path / "wheel", _small(programs, tmp_path / "small", 0)), tmp_path / "all")
    assert ran.stdout.strip().endswith(f" {tmp_path}/all/bin/tineworld"), ran.stderr


def test_which_program_is_taken(environment: Environment, tmp_path: Path) -> None:
    other = tmp_path / "tine"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)

    def found(**variables: str) -> str:
        return environment.run("python", "-c", "import tineworld._programs as p; print(p.find(None))", **variables).stdout.strip()

    assert found(PATH=str(tmp_path)) == str(environment.folder / "bin" / "tineworld"), "PATH comes last"
    assert found(TINE_BIN=str(other)) == str(other)


def test_nothing_of_another_package_is_taken(wheel: Path) -> None:
    """`tine` on PyPI is another project, with an import and a command of that name."""
    assert wheel.name.startswith("tineworld-")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = "".join(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    tops = {name.split("/")[0] for name in names}
    data = {top for top in tops if top.endswith((".data", ".dist-info"))}
    assert tops - data == {"tineworld"}, "the only import"
    commands = {name.rsplit("/", 1)[1] for name in names if ".data/" in name}
    assert commands == {"tineworld", "tineworld-sandbox"} and "_scripts]" not in points


def test_it_is_tagged_by_its_programs(wheel: Path) -> None:
    machine = {"arm64": "aarch64"}.get(os.uname().machine, os.uname().machine)
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}.whl")
    with zipfile.ZipFile(wheel) as archive:
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        lines = archive.read(about).decode().splitlines()
        modes = {info.filename.rsplit("/", 1)[1]: info.external_attr >> 16 & 0o777 for info in archive.infolist() if "/scripts/" in info.filename}
    assert f"Tag: py3-none-manylinux_2_17_{machine}" in lines and "Root-Is-Purelib: false" in lines
    assert set(modes.values()) == {0o755}, modes


def test_a_dynamic_program_is_refused(tmp_path: Path) -> None:
    shutil.copy("/bin/sh", tmp_path / "tine")
    with pytest.raises(AssertionError, match="dynamically linked"):
        _build("wheel", tmp_path / "out", tmp_path)


def test_it_is_reproducible(programs: Path, tmp_path: Path) -> None:
    one, other = (_build("wheel", tmp_path / f"out{at}", _small(programs, tmp_path / f"at{at}", at)) for at in (0, 1e9))
    assert one.read_bytes() == other.read_bytes()


def test_the_source_makes_a_wheel_without_programs(tmp_path: Path) -> None:
    source = _build("sdist", tmp_path / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / source.name.removesuffix(".tar.gz")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=folder, check=True, capture_output=True)
    (made,) = (folder / "dist").iterdir()
    assert made.name.endswith("-py3-none-any.whl")
    ran = _in_folder(made, tmp_path / "all")
    assert "came without the program `tine`" in ran.stderr and "TINE_BIN" in ran.stderr
    assert (folder / "LICENSE").read_bytes() == (rig.ROOT / "LICENSE").read_bytes()
