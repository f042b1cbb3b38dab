"""Folders as tar files, the form in which they travel."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

TAR = "application/x-tar"


def pack(folder: Path) -> bytes:
    """A folder's content as a tar file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False)
    return out.getvalue()


def unpack(data: bytes, to: Path) -> None:
    """Writes the content of a tar file into a folder. What would lie outside of it is refused."""
    to.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(to, filter="data")
