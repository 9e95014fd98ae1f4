"""The functions of the HIP runtime that share memory, over files in memory that processes map by name."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
from pathlib import Path
from typing import Any

__all__ = ["Hip"]

_FOLDER = Path("/dev/shm")
_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_CONTEXT = 1, 2, 201
_TEXTS = {
    _INVALID_VALUE: b"invalid argument",
    _OUT_OF_MEMORY: b"out of memory",
    _INVALID_CONTEXT: b"invalid device context",
}
_HANDLE_BYTES = 64


class Hip:
    """Signatures as in ``hip_runtime_api.h``; every function but the last returns ``hipError_t``, 0 for success.

    Args:
        memory_bytes: what may be allocated at once.
        ipc: whether handles can be made and opened, as they cannot where a container has namespaces of its own.
    """

    def __init__(self, memory_bytes: int = 1 << 30, *, ipc: bool = True) -> None:
        self.called: set[str] = set()
        self.free_bytes = memory_bytes
        self._ipc = ipc
        self._count = itertools.count()
        self._maps: dict[int, tuple[mmap.mmap, Any, Path, bool]] = {}

    @property
    def offered(self) -> set[str]:
        """Names of the functions that it has."""
        return {name for name in dir(type(self)) if name.startswith("hip")}

    def hipMalloc(self, pointer: Any, size: ctypes.c_size_t) -> int:  # noqa: N802 - the runtime's names
        """Allocate: ``hipMalloc(void** ptr, size_t size)``."""
        self.called.add("hipMalloc")
        nbytes = _value(size, ctypes.c_size_t)
        if nbytes > self.free_bytes:
            return _OUT_OF_MEMORY
        path = _FOLDER / f"kerneleval-hip-{os.getpid()}-{next(self._count)}"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(handle, nbytes)
            _out(pointer).value = self._map(handle, nbytes, path, owned=True)
        finally:
            os.close(handle)
        self.free_bytes -= nbytes
        return 0

    def hipFree(self, pointer: ctypes.c_uint64) -> int:  # noqa: N802
        """Free: ``hipFree(void* ptr)``."""
        self.called.add("hipFree")
        return self._unmap(pointer, owned=True)

    def hipIpcGetMemHandle(self, handle: Any, pointer: ctypes.c_uint64) -> int:  # noqa: N802
        """Export: ``hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* devPtr)``."""
        self.called.add("hipIpcGetMemHandle")
        entry = self._maps.get(_value(pointer, ctypes.c_uint64))
        if entry is None or not entry[3] or not self._ipc:
            return _INVALID_VALUE
        text = entry[2].name.encode().ljust(_HANDLE_BYTES, b"\0")
        ctypes.memmove(ctypes.byref(_out(handle)), text, _HANDLE_BYTES)
        return 0

    def hipIpcOpenMemHandle(self, pointer: Any, handle: ctypes.Structure, flags: ctypes.c_uint) -> int:  # noqa: N802
        """Import: ``hipIpcOpenMemHandle(void** devPtr, hipIpcMemHandle_t handle, unsigned int flags)``."""
        self.called.add("hipIpcOpenMemHandle")
        if _value(flags, ctypes.c_uint) != 1 or ctypes.sizeof(handle) != _HANDLE_BYTES:
            return _INVALID_VALUE
        name = bytes(handle).rstrip(b"\0").decode(errors="replace")
        if name.split("-")[2:3] == [str(os.getpid())]:  # the process that allocated it has it already
            return _INVALID_CONTEXT
        try:
            descriptor = os.open(_FOLDER / Path(name).name, os.O_RDWR)
        except OSError:
            return _INVALID_VALUE
        try:
            nbytes = os.fstat(descriptor).st_size
            _out(pointer).value = self._map(descriptor, nbytes, Path(name), owned=False)
        finally:
            os.close(descriptor)
        return 0

    def hipIpcCloseMemHandle(self, pointer: ctypes.c_uint64) -> int:  # noqa: N802
        """Close what was imported: ``hipIpcCloseMemHandle(void* devPtr)``."""
        self.called.add("hipIpcCloseMemHandle")
        return self._unmap(pointer, owned=False)

    def hipGetErrorString(self, status: int) -> bytes:  # noqa: N802
        """What an error means, as ``const char*``."""
        self.called.add("hipGetErrorString")
        return _TEXTS.get(status, b"unknown error")

    def _map(self, descriptor: int, nbytes: int, path: Path, *, owned: bool) -> int:
        view = mmap.mmap(descriptor, nbytes)
        anchor = ctypes.c_char.from_buffer(view)
        address = ctypes.addressof(anchor)
        self._maps[address] = (view, anchor, path, owned)
        return address

    def _unmap(self, pointer: ctypes.c_uint64, *, owned: bool) -> int:
        entry = self._maps.get(_value(pointer, ctypes.c_uint64))
        if entry is None or entry[3] != owned:
            return _INVALID_VALUE
        del self._maps[_value(pointer, ctypes.c_uint64)]  # the pages go with the last tensor over them
        if owned:
            self.free_bytes += len(entry[0])
            with contextlib.suppress(FileNotFoundError):
                entry[2].unlink()
        return 0


def _value(argument: Any, kind: type) -> int:
    """What an integer argument holds, which must be passed as the C type: a plain int is cut to 32 bits by ctypes."""
    if not isinstance(argument, kind):
        raise TypeError(f"{kind.__name__} expected, got {type(argument).__name__}")
    return int(argument.value)  # type: ignore[attr-defined]


def _out(reference: Any) -> Any:
    """What ``ctypes.byref`` refers to."""
    return reference._obj
