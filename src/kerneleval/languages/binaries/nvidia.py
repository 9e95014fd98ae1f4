"""NVIDIA's compiler and driver libraries through ctypes: NVRTC (device code from source) and the CUDA driver API.

Names, types and codes are those of NVRTC's and the driver's public headers (``nvrtc.h``, ``cuda.h``).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kerneleval.languages.common.base import LOG_LIMIT_BYTES, BuildError
from kerneleval.languages.common.compiler import find_tool
from kerneleval.records import InfrastructureError

_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
_DEFAULT_SHARED_LIMIT_BYTES = 48 * 1024
_NVRTC_ERROR_COMPILATION = 6


def cuda_folders() -> list[Path]:
    """Roots of CUDA toolkits on this machine: CUDA_HOME, CUDA_PATH, /usr/local/cuda."""
    roots = [os.environ.get("CUDA_HOME", ""), os.environ.get("CUDA_PATH", ""), "/usr/local/cuda"]
    return [Path(root) for root in dict.fromkeys(roots) if root and Path(root).is_dir()]


def _wheel_folders(kind: str) -> list[Path]:
    # NVIDIA's wheels unpack beside torch, into nvidia/<component>/<kind>.
    found: list[Path] = []
    for entry in sys.path:
        if entry:
            found += sorted(Path(entry).glob(f"nvidia/*/{kind}"))
    return found


def find_nvrtc() -> Path | None:
    """The newest NVRTC library: of the wheels on ``sys.path``, else of a CUDA toolkit; None: there is none."""
    toolkits = [root / lib for root in cuda_folders() for lib in ("lib64", "lib")]
    for folders in (_wheel_folders("lib"), toolkits):
        found = [p for folder in folders for p in folder.glob("libnvrtc.so.*") if _version(p)]
        if found:
            return max(found, key=lambda p: (_version(p), -len(p.name)))
    return None


def _version(path: Path) -> tuple[int, ...]:
    match = re.fullmatch(r"libnvrtc\.so\.(\d+(?:\.\d+)*)", path.name)
    return tuple(int(v) for v in match.group(1).split(".")) if match else ()


def include_folders(library: Path | None = None) -> list[Path]:
    """Folders with CUDA's headers (``cuda_fp16.h``), those beside the NVRTC library first."""
    folders = [library.parent.parent / "include"] if library else []
    folders += _wheel_folders("include") + [root / "include" for root in cuda_folders()]
    return [f for f in dict.fromkeys(folders) if (f / "cuda_fp16.h").is_file()]


def find_cuobjdump() -> str | None:
    """NVIDIA's disassembler: of the CUDA toolkit, else the one in Triton's package; None: there is none."""
    folders = [root / "bin" for root in cuda_folders()]
    triton = importlib.util.find_spec("triton")
    if triton is not None and triton.origin:
        folders.append(Path(triton.origin).parent / "backends" / "nvidia" / "bin")
    return find_tool(["cuobjdump"], folders)


def specific_arch(arch: str) -> str:
    """``sm_90`` -> ``90a``: the architecture-specific target from Hopper on: the binary need run on no other.

    Without it, instructions such as ``wgmma`` and ``tcgen05`` do not assemble. A suffix that is given stays. Raises
    InfrastructureError: no CUDA architecture.
    """
    match = re.fullmatch(r"sm_(\d{2,3})([af]?)", arch)
    if not match:
        raise InfrastructureError(f"{arch!r} is no CUDA architecture; expected one such as sm_90")
    number, suffix = match.groups()
    return number + (suffix or ("a" if int(number) >= 90 else ""))


class Nvrtc:
    """One NVRTC library. Compiling needs no GPU and no driver."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise InfrastructureError(f"{path} does not load: {error}") from error
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    @functools.cached_property
    def version(self) -> str:
        """``13.0``."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        return f"{major.value}.{minor.value}"

    def compile(self, source: str, name: str, options: Sequence[str]) -> bytes:
        """A device binary (cubin) from CUDA C++ source; ``name`` is the file's, for messages. Options must hold
        ``--gpu-architecture=sm_XX``, not ``compute_XX``, which would give PTX only. Raises BuildError, with the first
        8 KiB of the log, where the source does not compile, and InfrastructureError where the library itself failed.
        """
        nvrtc = self._library
        program = ctypes.c_void_p()
        created = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
        self._check(created, "nvrtcCreateProgram")
        try:
            encoded = [option.encode() for option in options]
            status = nvrtc.nvrtcCompileProgram(program, len(encoded), (ctypes.c_char_p * len(encoded))(*encoded))
            if status != 0:
                log = self._read(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")
                message = nvrtc.nvrtcGetErrorString(status).decode()
                if status != _NVRTC_ERROR_COMPILATION and not log.strip(b"\0\n "):
                    raise InfrastructureError(f"nvrtcCompileProgram failed: {message}")
                text = log.rstrip(b"\0")[:LOG_LIMIT_BYTES].decode(errors="replace")
                raise BuildError(f"NVRTC {self.version} failed: {message}", text)
            return self._read(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, size_name: str, read_name: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, size_name)(program, ctypes.byref(size)), size_name)
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, read_name)(program, buffer), read_name)
        return buffer.raw

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise InfrastructureError(f"{what} failed: {self._library.nvrtcGetErrorString(status).decode()}")


def cuda_driver() -> ctypes.CDLL:
    """The driver's library. Raises InfrastructureError: it does not load."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise InfrastructureError(f"the CUDA driver library does not load: {error}") from error


class DeviceModule:
    """Kernels of one cubin in the current CUDA context (torch's primary one), launched through the driver API."""

    load, find, start = "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"
    """Names of the driver's functions."""

    def __init__(self, cubin: bytes) -> None:
        self._driver = self._open()
        # Handles are pointers; without argument types ctypes would cut plain integers to 32 bits.
        pointer, unsigned = ctypes.c_void_p, ctypes.c_uint
        self._start = getattr(self._driver, self.start)
        self._start.argtypes = [pointer, *[unsigned] * 7, pointer, pointer, pointer]
        self._module = ctypes.c_void_p()
        self._shared_limit: dict[str, int] = {}
        self._check(getattr(self._driver, self.load)(ctypes.byref(self._module), cubin), self.load)

    def _open(self) -> ctypes.CDLL:
        return cuda_driver()

    def function(self, name: str) -> ctypes.c_void_p:
        """Handle of a kernel; raises RuntimeError when there is none of that name."""
        handle = ctypes.c_void_p()
        status = getattr(self._driver, self.find)(ctypes.byref(handle), self._module, name.encode())
        self._check(status, f"{self.find}({name})")
        return handle

    def launch(
        self,
        name: str,
        handle: ctypes.c_void_p,
        geometry: tuple[tuple[int, int, int], tuple[int, int, int], int],
        values: Sequence[Any],
        stream: int,
    ) -> None:
        """Launches the kernel on the stream; a grid with a size 0 has nothing to do and is not launched. Raises
        RuntimeError: the driver refused, with its name for the error.
        """
        grid, block, shared = geometry
        if 0 in grid:
            return
        if shared > self._shared_limit.get(name, _DEFAULT_SHARED_LIMIT_BYTES):
            self._allow_shared(name, handle, shared)
            self._shared_limit[name] = shared
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        status = self._start(handle, *grid, *block, shared, stream, pointers, None)
        self._check(status, f"{self.start}({name}, grid={grid}, block={block}, shared={shared})")

    def _allow_shared(self, name: str, handle: ctypes.c_void_p, shared: int) -> None:
        attribute = _CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        status = self._driver.cuFuncSetAttribute(handle, ctypes.c_int(attribute), ctypes.c_int(shared))
        self._check(status, f"cuFuncSetAttribute({name}, {shared} bytes of shared memory)")

    def _error_name(self, status: int) -> str:
        text = ctypes.c_char_p()
        self._driver.cuGetErrorName(status, ctypes.byref(text))
        return (text.value or b"?").decode()

    def _check(self, status: int, what: str) -> None:
        if status != 0:
            raise RuntimeError(f"{what} failed: {self._error_name(status)} ({status})")
