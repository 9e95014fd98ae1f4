"""AMD's tools for HIP: hipcc, PyTorch's hipify for CUDA sources, bundles of code objects, and modules at run time."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import json
import os
import re
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.binaries.nvidia import DeviceModule
from kerneleval.languages.common.base import BuildError
from kerneleval.languages.common.compiler import compile_into, find_tool, run_compiler, tool_version
from kerneleval.records import InfrastructureError

FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fno-color-diagnostics")
"""Flags before the candidate's own, which may override them."""

TIMEOUT_S = 300.0
"""Longest compilation."""

_HIPIFY_S = 60.0
_LIBRARY, _VERSIONS = "libamdhip64.so", ("7", "6", "5")
_BUNDLE = b"__CLANG_OFFLOAD_BUNDLE__"
_MOST_ENTRIES, _MOST_OBJECTS = 64, 64
"""Of one bundle, and of a file: entries may all be the same megabytes."""
_ENVIRONMENT = {"HIP_PLATFORM": "amd"}
"""Else hipcc hands the work to an nvcc that is on PATH."""

_INSTALL = "install ROCm (or Debian's package hipcc), or set ROCM_PATH"


def find_hipcc() -> str | None:
    """The compiler on PATH, in ROCM_PATH or HIP_PATH, or in /opt/rocm; None: there is none."""
    roots = [os.environ.get(name, "").strip() for name in ("ROCM_PATH", "HIP_PATH")]
    return find_tool(["hipcc"], [Path(root) / "bin" for root in (*roots, "/opt/rocm") if root])


def missing_hipcc() -> str:
    """What to install where there is no hipcc; empty: it is there."""
    return "" if find_hipcc() else f"hipcc: {_INSTALL}"


def hipcc_version() -> str:
    """Version line of hipcc. Raises InfrastructureError where there is none."""
    return tool_version(_hipcc())


def _hipcc() -> str:
    hipcc = find_hipcc()
    if hipcc is None:
        raise InfrastructureError(f"no hipcc on PATH, in ROCM_PATH, in HIP_PATH or in /opt/rocm: {_INSTALL}")
    return hipcc


def compile_hip(arguments: Sequence[str], arch: str, folder: Path, out: Path) -> None:
    """Run hipcc in ``folder`` for an architecture such as ``gfx90a``, as :func:`compile_into` does; raises
    InfrastructureError where there is none. ``arguments``: what to make (``-shared``, ``--genco``), flags, sources.
    """
    compile_into(out, [_hipcc(), f"--offload-arch={arch}", *FLAGS], arguments, folder, TIMEOUT_S, _ENVIRONMENT)


@functools.cache
def unknown_target(arch: str) -> str:
    """Why the hipcc here cannot compile anything for an architecture, in its own words; empty: it can. Raises
    InfrastructureError: there is no hipcc.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "nothing.hip").write_text("#include <hip/hip_runtime.h>\n__global__ void nothing() {}\n")
        try:
            compile_hip(["--genco", "nothing.hip"], arch, folder, folder / "nothing.hsaco")
        except BuildError as error:
            said = next((line for line in error.log.splitlines() if "error:" in line), error.message)
            return f"{hipcc_version()} does not compile for {arch}: {said.strip()}"
    return ""


# -- CUDA sources ------------------------------------------------------------------------------------------------------

# PyTorch's translator is a package of plain Python that imports nothing of PyTorch; in a process of its own it can be
# given a time limit, and keeps what it remembers of files to itself.
_HIPIFY = """
import contextlib, json, os, sys
sys.path.append(sys.argv[1])
from hipify.hipify_python import hipify
folder, out = sys.argv[2:]
with contextlib.redirect_stdout(sys.stderr):
    found = hipify(project_directory=folder, output_directory=folder, includes=[os.path.join(folder, "*")],
        is_pytorch_extension=True, show_progress=False, hip_clang_launch=True,
        extensions=(".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hpp"), header_include_dirs=[folder])
with open(out, "w") as file:
    json.dump({os.path.relpath(path, folder): os.path.relpath(one.hipified_path or path, folder)
        for path, one in found.items()}, file)
"""


def _hipify_folder() -> Path:
    found = importlib.util.find_spec("torch")
    folder = Path(found.origin).parent / "utils" if found is not None and found.origin else None
    if folder is None or not (folder / "hipify" / "hipify_python.py").is_file():
        raise InfrastructureError("this PyTorch has no torch.utils.hipify, which translates CUDA sources for rocm")
    return folder


def hipify_version() -> str:
    """Version of PyTorch's translator."""
    text = (_hipify_folder() / "hipify" / "version.py").read_text()
    return f"hipify {text.partition('=')[2].strip()}"


def hipified(folder: Path, sources: Sequence[str]) -> list[str]:
    """Translate CUDA sources in a folder to HIP beside them; the names of the translated ``sources``. Raises
    BuildError: the translator failed; InfrastructureError: this PyTorch has none.
    """
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "found.json"
        # isolated: else Python would import what the candidate calls json.py
        command = [sys.executable, "-I", "-c", _HIPIFY, str(_hipify_folder()), str(folder), str(out)]
        run_compiler(command, Path(name), _HIPIFY_S)
        made = json.loads(out.read_text())
    return [str(made.get(source, source)) for source in sources]


def translated_flags(flags: Sequence[str], file: str) -> list[str]:
    """The flags of nvcc in a CUDA source's header, as hipcc's. Raises BuildError: hipcc has no such flag."""
    known = {"use_fast_math": "-ffast-math", "fmad=false": "-ffp-contract=off", "fmad=true": "-ffp-contract=fast"}
    found = []
    for flag in flags:
        if re.match(r"-(O|D|std=)", flag):
            found.append(flag)
        elif flag.lstrip("-") in known:
            found.append(known[flag.lstrip("-")])
        else:
            raise BuildError(f"{file}: the flag {flag!r} of nvcc has no counterpart of hipcc's: leave it out for rocm")
    return found


# -- Code objects and modules ------------------------------------------------------------------------------------------


def code_objects(data: bytes) -> list[tuple[str, bytes]]:
    """(target, ELF) of the device code in a file that hipcc made: ``gfx90a`` of ``hipv4-amdgcn-amd-amdhsa--gfx90a``.

    The bundle, by itself or within a library, is a magic word, the number of entries, and for each its offset from
    there, its size and its name (Clang's "Clang Offload Bundler"). Empty: there is none, or it is compressed.
    """
    found: list[tuple[str, bytes]] = []
    start = data.find(_BUNDLE)
    while start >= 0 and len(found) < _MOST_OBJECTS:
        at = start + len(_BUNDLE)
        count = struct.unpack_from("<Q", data, at)[0] if at + 8 <= len(data) else 0
        at += 8
        for _ in range(min(count, _MOST_ENTRIES)):
            if at + 24 > len(data):
                break
            offset, size, length = struct.unpack_from("<QQQ", data, at)
            name = data[at + 24 : at + 24 + min(length, 256)].decode(errors="replace")
            at += 24 + min(length, 256)
            if "amdgcn" in name:
                found.append((name.rpartition("--")[2], data[start + offset : start + offset + size]))
        start = data.find(_BUNDLE, start + 1)
    return found[:_MOST_OBJECTS]


@functools.cache
def hip_runtime() -> ctypes.CDLL:
    """The runtime that PyTorch itself has loaded: another copy would know nothing of its allocations. Raises
    InfrastructureError: there is none.
    """
    import torch

    own = sorted((Path(torch.__file__).parent / "lib").glob(_LIBRARY + "*"))
    tried = [*map(str, own), *(f"{_LIBRARY}.{version}" for version in _VERSIONS), _LIBRARY]
    reason = ""
    for name in tried:
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            reason = reason or str(error)
            continue
        library.hipGetErrorString.restype = ctypes.c_char_p
        return library
    raise InfrastructureError(f"the HIP runtime library does not load: {reason}")


class HipModule(DeviceModule):
    """Kernels of one code object (or bundle) in the current HIP context, launched through the HIP runtime."""

    load, find, start = "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel"

    def _open(self) -> ctypes.CDLL:
        library = hip_runtime()
        library.hipGetErrorName.restype = ctypes.c_char_p
        return library

    def _allow_shared(self, name: str, handle: Any, shared: int) -> None:
        """Nothing: HIP gives what the launch needs, or refuses it."""

    def _error_name(self, status: int) -> str:
        return (self._driver.hipGetErrorName(status) or b"?").decode()
