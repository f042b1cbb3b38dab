"""Folders as tar files, the form in which they travel."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import logging
import os
import posixpath
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import IO

from .errors import Infrastructure, UnusableFiles

TAR = "application/x-tar"
log = logging.getLogger("tineworld")
_OTHER = "it is neither a file nor a folder nor a link"
# In the last entry, which is the folder itself once more: names that the gateway left out, as JSON.
_LEFT_OUT = "TINE.left-out"
# What a name or a kind of a file, which the policy chooses, can make fail on this machine.
_UNFIT = {errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENOTEMPTY}


def pack(folder: Path) -> bytes:
    """A folder's content as a tar file. FIFOs, sockets and devices are left out and told to the log;
    a hard link becomes a file of its own."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            tar.inodes.clear()  # type: ignore[attr-defined]  # or the second name of a file would be a link to the first
            entry = tar.gettarinfo(path, path.relative_to(folder).as_posix())
            if entry is not None and entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            elif entry is not None and (entry.isdir() or entry.issym()):
                tar.addfile(entry)
            else:
                log.warning("%s was left out: %s", path, _OTHER)
    return out.getvalue()


def spool(to: Path) -> IO[bytes]:
    """A file without a name, near a path: large files need no place elsewhere."""
    near = to.absolute()
    while not near.is_dir():
        near = near.parent
    return tempfile.TemporaryFile(dir=near)


def write(data: IO[bytes], to: Path) -> None:
    """Writes a file that came where a folder might have."""
    if to.is_dir():
        raise UnusableFiles(f"a file was read, but {to} is a folder of this machine; the world has a file where a folder was expected")
    data.seek(0)
    with to.open("wb") as file:
        shutil.copyfileobj(data, file, 1 << 20)


def unpack(data: IO[bytes], to: Path) -> None:
    """Writes the content of a tar file into a folder. What does not belong into it is left out and
    told to the log: links that lead out of the folder, names that do, and what is neither a file
    nor a folder nor a link. A hard link becomes a file of its own."""
    if to.exists() and not to.is_dir():
        raise UnusableFiles(f"a folder was read, but {to} is a file of this machine; the world has a folder where a file was expected")
    to.mkdir(parents=True, exist_ok=True)
    data.seek(0)
    try:
        with tarfile.open(fileobj=data) as tar:
            left_out = _Unpacking(tar, to).all()
    except tarfile.TarError as error:
        raise Infrastructure(f"the gateway sent a tar file that can't be read: {error}") from None
    except ValueError as error:  # such as a zero byte in a name
        raise UnusableFiles(f"the folder can't be written into {to}: {error}") from None
    for name, why in left_out[:20]:
        log.warning("%s was not written into %s: %s", ascii(name), to, why)
    if len(left_out) > 20:
        log.warning("%d more were not written into %s", len(left_out) - 20, to)


class _Unpacking:
    """Nothing is written through a link: files come first, and the folders above a name are none.
    The target of a link goes up first, if at all, and then down, so that it leads into the folder
    also if there are other links on its way."""

    def __init__(self, tar: tarfile.TarFile, to: Path) -> None:
        self._tar = tar
        self._to = to

    def all(self) -> list[tuple[str, str]]:
        """Returns what was left out, each with the reason."""
        left_out = []
        for member in sorted(self._tar.getmembers(), key=tarfile.TarInfo.issym):
            name = posixpath.normpath(member.name)
            if name == ".":
                left_out += [(str(left), _OTHER) for left in json.loads(member.pax_headers.get(_LEFT_OUT, "[]"))]
                continue
            try:
                why = self._write(member, name)
            except OSError as error:
                if error.errno not in _UNFIT:
                    raise
                why = str(error.strerror)
            if why:
                left_out.append((member.name, why))
        return left_out

    def _write(self, member: tarfile.TarInfo, name: str) -> str:
        if posixpath.isabs(name) or name.split("/")[0] == "..":
            return "its name leads out of the folder"
        parts = Path(name).parts
        path = self._to.joinpath(*parts)
        for depth in range(1, len(parts)):
            if self._to.joinpath(*parts[:depth]).is_symlink():
                return "a folder above it is a link"
        if member.isdir():
            path.mkdir(parents=True, exist_ok=True)
            return "a link has its name" if path.is_symlink() else ""
        if not (member.isreg() or member.issym() or member.islnk()):
            return _OTHER
        if member.issym() and not _stays(member.linkname, len(parts) - 1):
            return f"it is a link to {ascii(member.linkname)}, which leads out of the folder, or may"
        path.parent.mkdir(parents=True, exist_ok=True)
        if member.issym():
            path.unlink(missing_ok=True)
            path.symlink_to(member.linkname)
            return ""
        return self._file(member, path)

    def _file(self, member: tarfile.TarInfo, path: Path) -> str:
        try:
            content = self._tar.extractfile(member)  # of a hard link, the file that it is a name of
        except (KeyError, RecursionError):  # of a hard link to a link
            content = None
        if content is None:
            return f"it is a hard link to {ascii(member.linkname)}, which is not in the folder"
        path.unlink(missing_ok=True)
        with content, open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            shutil.copyfileobj(content, file)
        path.chmod(member.mode & 0o755 | 0o600)
        with contextlib.suppress(OverflowError, OSError):  # a time that this machine does not know
            os.utime(path, (member.mtime, member.mtime))
        return ""


def _stays(target: str, depth: int) -> bool:
    """Whether the target of a link so deep in a folder is in the folder."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    return not target.startswith("/") and up <= depth and ".." not in parts[up:]
