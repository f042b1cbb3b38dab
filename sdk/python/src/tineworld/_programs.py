"""Where the program `tine` is."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from .errors import Invalid

# In a wheel it has the name of the package: the command `tine` is another project's on PyPI.
_NAME = "tineworld"


def find(given: str | Path | None) -> str:
    """`given`, TINE_BIN, the program that came with this package, or one on PATH, in this order."""
    for choice in (given, os.environ.get("TINE_BIN")):
        if choice:
            if not os.access(choice, os.X_OK):
                raise Invalid(f"{choice} is not a program that can be run; give local() the path of `tine` as binary, or set TINE_BIN")
            return str(Path(choice).absolute())
    found = bundled() or shutil.which(_NAME) or shutil.which("tine")
    if found is None:
        raise Invalid(
            "this installation of tineworld came without the program `tine`, and there is none on PATH; "
            "install a wheel for this platform, give local() its path as binary, or set TINE_BIN"
        )
    return found


def command() -> str:
    """How a person calls the program here, for hints."""
    return os.environ.get("TINE_BIN") or (_NAME if bundled() or shutil.which(_NAME) else "tine")


def bundled() -> str | None:
    """The program that came with this package: a wheel's is in the folder of commands."""
    # An installation into a folder (pip install --target) has other places than its records say.
    places = [Path(__file__).parents[1] / "bin" / _NAME]
    try:
        files = metadata.files("tineworld") or []
    except metadata.PackageNotFoundError:
        files = []
    places = [Path(str(file.locate())) for file in files if file.stem == _NAME and len(file.parts) > 1 and file.suffix in ("", ".exe")] + places
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return str(place.resolve())
    return None


def environment() -> dict[str, str]:
    """The environment of a gateway. Where nothing else is installed, servers written in Python run
    with the interpreter of this program."""
    path = os.environ.get("PATH", os.defpath)
    if sys.executable:
        path += os.pathsep + str(Path(sys.executable).parent)
    return {**os.environ, "PATH": path}
