"""The wheel of a platform carries the programs. TINE_PROGRAMS is the folder that has them; without it
the wheel is pure Python, and needs a `tine` from elsewhere. The platform is read from the programs."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# `tine` is the command of another project, so that ours has the name of the package. The
# program for sandboxes is found by the name of the one that looks for it.
NAMES = {"tine": "tineworld", "tine-sandbox": "tineworld-sandbox", "tine.exe": "tineworld.exe"}

_ELF = {62: "x86_64", 183: "aarch64"}
_MACH = {0x01000007: "x86_64", 0x0100000C: "arm64"}
_PE = {0x8664: "win_amd64", 0xAA64: "win_arm64"}


class Programs(BuildHookInterface[Any]):
    """Adds the programs as scripts, as they are: the command is the program itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = os.environ.get("TINE_PROGRAMS")
        if not folder or version != "standard":
            return
        programs = {path: name for source, name in NAMES.items() if (path := Path(folder).absolute() / source).exists()}
        platforms = {platform(path.read_bytes(), path) for path in programs}
        if len(platforms) != 1:
            raise ValueError(f"{folder} has programs of {sorted(platforms) or 'no platform'}; build tine for one platform into it")
        tag = platforms.pop()
        sandbox = any(path.name == "tine-sandbox" for path in programs)
        if not any(path.stem == "tine" for path in programs) or sandbox != ("linux" in tag):
            raise ValueError(f"{folder} has {', '.join(path.name for path in programs)}; a wheel has tine, and tine-sandbox for Linux alone")
        build_data["shared_scripts"] = {str(path): name for path, name in programs.items()}
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{tag}"


def platform(program: bytes, path: Path) -> str:
    """The platform tag of a program."""
    if program[:5] == b"\x7fELF\x02":
        (machine,) = struct.unpack_from("<H", program, 18)
        (table,) = struct.unpack_from("<Q", program, 32)
        size, count = struct.unpack_from("<HH", program, 54)
        kinds = [struct.unpack_from("<I", program, table + size * i)[0] for i in range(count)]
        if 3 in kinds:  # PT_INTERP
            raise ValueError(f"{path} is dynamically linked; build it with CGO_ENABLED=0, as make wheel does")
        # It is static, so that it needs neither glibc nor musl: the oldest that installers know
        # and whose kernels Go supports.
        return f"manylinux_2_17_{_ELF[machine]}.musllinux_1_1_{_ELF[machine]}"
    if program[:4] == b"\xcf\xfa\xed\xfe":
        (machine,) = struct.unpack_from("<I", program, 4)
        (count,) = struct.unpack_from("<I", program, 16)
        at = 32
        for _ in range(count):
            command, size, _, least = struct.unpack_from("<IIII", program, at)
            if command == 0x32:  # LC_BUILD_VERSION
                return f"macosx_{least >> 16}_{least >> 8 & 0xFF}_{_MACH[machine]}"
            at += size
    if program[:2] == b"MZ":
        (header,) = struct.unpack_from("<I", program, 0x3C)
        (machine,) = struct.unpack_from("<H", program, header + 4)
        return _PE[machine]
    raise ValueError(f"{path} is not a program for Linux, macOS or Windows")
