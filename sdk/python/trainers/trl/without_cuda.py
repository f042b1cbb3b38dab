"""Lets torch's CUDA build be imported without CUDA, for `make trainers`.

On Linux, PyPI's torch is the CUDA build. It does not load without NVIDIA's libraries, 2 GB that a test
on the CPU never calls. This writes empty libraries with their names beside torch's own: each function
that torch needs returns an error. It needs gcc and readelf, and changes only the environment that runs it.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
from pathlib import Path

LARGE = re.compile(r"lib(cublas|cublasLt|cudnn|cufft|cusolver|cusparse|cusparseLt|nccl|nvrtc|nvshmem_host)\.so\.\d+")
SYMBOL = re.compile(r"^\s*\d+: \S+\s+\d+ (\w+)\s+GLOBAL \S+\s+UND (cu|nv|nccl)(\w+)(?:@(\S+))?")


def read(library: Path, *options: str) -> list[str]:
    return subprocess.run(["readelf", *options, str(library)], check=True, capture_output=True, text=True).stdout.splitlines()


def wants(library: Path) -> tuple[set[str], dict[str, str], set[tuple[str, str, str]]]:
    """The large libraries that one needs, which of them has which version, and the symbols that it
    lacks: name, type, version."""
    needed = {found[0] for line in read(library, "-dW") if "NEEDED" in line and (found := LARGE.search(line))}
    versions, file = {}, ""
    for line in read(library, "-VW"):
        if at := re.search(r"File: (\S+)", line):
            file = at[1]
        elif (at := re.search(r"Name: (\S+)", line)) and LARGE.fullmatch(file):
            versions[at[1]] = file
    symbols = {(at[2] + at[3], at[1], at[4] or "") for line in read(library, "--dyn-syms", "-W") if (at := SYMBOL.match(line))}
    return needed, versions, symbols


def write(folder: Path, soname: str, version: str, symbols: set[tuple[str, str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        source, script = Path(scratch, "empty.c"), Path(scratch, "versions")
        source.write_text("".join(f"char {name}[65536];\n" if kind == "OBJECT" else f"int {name}(void) {{ return 1; }}\n" for name, kind in sorted(symbols)))
        script.write_text(f"{version} {{ global: *; }};\n")
        options = [f"-Wl,--version-script={script}"] if version else []
        subprocess.run(["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{soname}", *options, str(source), "-o", str(folder / soname)], check=True)


def main() -> None:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0], "lib")
    if sys.platform != "linux" or not (folder / "libtorch_cuda.so").exists():
        return
    libraries: set[str] = set()
    versions: dict[str, str] = {}
    symbols: set[tuple[str, str, str]] = set()
    for library in folder.glob("lib*.so"):
        needed, of, lacking = wants(library)
        libraries |= needed
        versions |= of
        symbols |= lacking
    names = {file: version for version, file in versions.items()}
    for soname in sorted(libraries):
        version = names.get(soname, "")
        # A symbol without a version may be any library's: each has it, and the first is used.
        write(folder, soname, version, {(name, kind) for name, kind, of in symbols if of in (version, "")})


if __name__ == "__main__":
    main()
