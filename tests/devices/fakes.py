"""Fakes of what vendors' devices are driven through, for the device files: ``docs/hardware.md`` says what they cover.

A fake stands in for the functions that a device file calls, not for the hardware: tensors are the CPU's. Each of its
functions takes what the real one takes; whatever a device file calls that the fake does not have, or with arguments
that the real function would not take, is an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from kerneleval.devices import metal, rocm, xpu

if TYPE_CHECKING:
    import torch


class Namespace:
    """Has what it was given and nothing else.

    Args:
        name: as in PyTorch: ``torch.mps``.
        real: the real namespace, which PyTorch has in every build; from its functions come the signatures.
        answers: name -> what stands in for the function of that name.
    """

    def __init__(self, name: str, real: Any, answers: Mapping[str, Callable[..., Any]]) -> None:
        self.name = name
        self.called: set[str] = set()
        self._real = real
        self._answers = dict(answers)

    @property
    def offered(self) -> set[str]:
        """Names of the functions that it has."""
        return set(self._answers)

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__.get("_answers", {})
        if name not in answers:
            raise AttributeError(f"the fake of {self.__dict__.get('name')} has no {name!r}")
        signature = inspect.signature(getattr(self._real, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            signature.bind(*args, **kwargs)  # TypeError where the real one would not take them
            self.called.add(name)
            return answers[name](*args, **kwargs)

        return call


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

    def hipMalloc(self, pointer: Any, size: ctypes.c_size_t) -> int:
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

    def hipFree(self, pointer: ctypes.c_uint64) -> int:
        """Free: ``hipFree(void* ptr)``."""
        self.called.add("hipFree")
        return self._unmap(pointer, owned=True)

    def hipIpcGetMemHandle(self, handle: Any, pointer: ctypes.c_uint64) -> int:
        """Export: ``hipIpcGetMemHandle(hipIpcMemHandle_t* handle, void* devPtr)``."""
        self.called.add("hipIpcGetMemHandle")
        entry = self._maps.get(_value(pointer, ctypes.c_uint64))
        if entry is None or not entry[3] or not self._ipc:
            return _INVALID_VALUE
        text = entry[2].name.encode().ljust(_HANDLE_BYTES, b"\0")
        ctypes.memmove(ctypes.byref(_out(handle)), text, _HANDLE_BYTES)
        return 0

    def hipIpcOpenMemHandle(self, pointer: Any, handle: ctypes.Structure, flags: ctypes.c_uint) -> int:
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

    def hipIpcCloseMemHandle(self, pointer: ctypes.c_uint64) -> int:
        """Close what was imported: ``hipIpcCloseMemHandle(void* devPtr)``."""
        self.called.add("hipIpcCloseMemHandle")
        return self._unmap(pointer, owned=False)

    def hipGetErrorString(self, status: int) -> bytes:
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


GIB = 1 << 30


@dataclass(kw_only=True)
class Fake:
    """A device file over fakes, which it finds while :meth:`installed` is entered."""

    device: Any
    """The device."""
    namespaces: tuple[Namespace, ...] = ()
    """Stand-ins for namespaces of PyTorch."""
    versions: dict[str, str | None] = field(default_factory=dict)
    """What ``torch.version`` says of builds."""
    hip: Hip | None = None
    """The runtime library of ROCm."""

    @property
    def offered(self) -> set[str]:
        """Every function that is faked, with its namespace."""
        names = {f"{space.name}.{name}" for space in self.namespaces for name in space.offered}
        return names | (self.hip.offered if self.hip else set())

    @property
    def called(self) -> set[str]:
        """Those of :attr:`offered` that were called."""
        names = {f"{space.name}.{name}" for space in self.namespaces for name in space.called}
        return names | (self.hip.called if self.hip else set())

    @contextlib.contextmanager
    def installed(self) -> Iterator[Any]:
        """The device, while PyTorch's namespaces are the fakes'."""
        import torch

        with contextlib.ExitStack() as stack:
            for space in self.namespaces:
                *path, last = space.name.split(".")[1:]
                owner: Any = torch
                for part in path:
                    owner = getattr(owner, part)
                stack.enter_context(mock.patch.object(owner, last, space))
            for name, version in self.versions.items():
                stack.enter_context(mock.patch.object(torch.version, name, version, create=True))
            if (hip := self.hip) is not None:
                stack.enter_context(mock.patch.object(rocm, "_hip", lambda: hip))
            yield self.device


class _Event:
    """Host times in the place of device events, in milliseconds."""

    def __init__(self, *_: Any, **options: Any) -> None:
        self._timed, self._at = bool(options.get("enable_timing")), 0.0

    def record(self, stream: Any = None) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Event) -> float:
        if not (self._timed and end._timed):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
        return (end._at - self._at) * 1e3


def _refused(package: str) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise ModuleNotFoundError(f"{package} does not seem to be installed or it can't be imported.")

    return call


def _memory(total_bytes: int) -> dict[str, Callable[..., Any]]:
    """The memory functions that ``torch.cuda`` and ``torch.xpu`` have in common."""
    held = SimpleNamespace(reserved=total_bytes // 2 + GIB, allocated=GIB, peak=3 * GIB)

    def empty() -> None:
        held.reserved = held.allocated

    def reset(*_: Any) -> None:
        held.peak = held.allocated

    return {
        "mem_get_info": lambda *_: (total_bytes - held.reserved, total_bytes),
        "memory_reserved": lambda *_: held.reserved,
        "memory_allocated": lambda *_: held.allocated,
        "max_memory_allocated": lambda *_: held.peak,
        "reset_peak_memory_stats": reset,
        "empty_cache": empty,
        "synchronize": lambda *_: None,
        "Event": _Event,
    }


class FakeRocm(rocm.Rocm):
    """ROCm over the CPU's memory."""

    torch_device = "cpu"
    judge_device = "cpu"

    def _tensor(self, address: int, nbytes: int) -> torch.Tensor:
        import torch

        return torch.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype=torch.uint8)

    @classmethod
    def fake(
        cls,
        *,
        present: bool = True,
        arch: str = "gfx942:sramecc+:xnack-",
        hip: Hip | None = None,
        memory_bytes: int = 192 * GIB,
    ) -> Fake:
        """A HIP build of PyTorch, with a GPU or without."""
        import torch

        properties = SimpleNamespace(
            name="AMD Instinct MI300X",
            gcnArchName=arch,
            total_memory=memory_bytes,
            multi_processor_count=304,
            L2_cache_size=4 << 20,
        )
        answers: dict[str, Callable[..., Any]] = {
            "is_available": lambda: present,
            "get_device_properties": lambda *_: properties,
            "current_stream": lambda *_: SimpleNamespace(synchronize=lambda: None),
            "_sleep": lambda cycles: None,
            "clock_rate": lambda *_: 2100,
            "temperature": _refused("amdsmi"),
            "power_draw": lambda *_: 350,
            **_memory(memory_bytes),
        }
        space = Namespace("torch.cuda", torch.cuda, answers)
        versions = {"hip": "6.4.43482", "cuda": None}
        return Fake(device=cls(), namespaces=(space,), versions=versions, hip=hip or Hip())


class FakeMetal(metal.Metal):
    """Metal over the CPU."""

    torch_device = "cpu"

    @classmethod
    def fake(cls, *, built: bool = True, present: bool = True, memory_bytes: int = 12 * GIB) -> Fake:
        """PyTorch on a Mac, with a GPU or without."""
        import torch

        held = SimpleNamespace(driver=memory_bytes // 2 + GIB)

        def empty() -> None:
            held.driver = GIB

        mps: dict[str, Callable[..., Any]] = {
            "recommended_max_memory": lambda: memory_bytes,
            "driver_allocated_memory": lambda: held.driver,
            "empty_cache": empty,
            "synchronize": lambda: None,
        }
        backend: dict[str, Callable[..., Any]] = {
            "is_built": lambda: built,
            "is_available": lambda: present,
            "is_macos_or_newer": lambda major, minor: (major, minor) <= (15, 0),
            "get_name": lambda: "Apple M2",
            "get_core_count": lambda: 10,
        }
        spaces = [Namespace("torch.mps", torch.mps, mps)]
        real = torch.backends.mps  # what an older PyTorch lacks, its fake lacks too
        known = {name: answer for name, answer in backend.items() if hasattr(real, name)}
        spaces.append(Namespace("torch.backends.mps", real, known))
        return Fake(device=cls(), namespaces=tuple(spaces))


class FakeXpu(xpu.Xpu):
    """XPU over the CPU."""

    torch_device = "cpu"

    @classmethod
    def fake(cls, *, present: bool = True, fp64: bool = True, memory_bytes: int = 64 * GIB) -> Fake:
        """An XPU build of PyTorch, with a GPU or without."""
        import torch

        properties = SimpleNamespace(
            name="Intel(R) Data Center GPU Max 1550",
            architecture=0x3C,
            total_memory=memory_bytes,
            max_compute_units=512,
            driver_version="1.6.33578",
            last_level_cache_size=204 << 20,
            has_fp64=fp64,
            has_fp16=True,
            has_subgroup_matrix_multiply_accumulate=True,
            has_subgroup_matrix_multiply_accumulate_tensor_float32=True,
        )
        answers: dict[str, Callable[..., Any]] = {
            "is_available": lambda: present,
            "get_device_properties": lambda *_: properties,
            "clock_rate": lambda *_: 1600.0,
            "temperature": _refused("pyzes"),
            **_memory(memory_bytes),
        }
        known = {name: answer for name, answer in answers.items() if hasattr(torch.xpu, name)}
        space = Namespace("torch.xpu", torch.xpu, known)
        return Fake(device=cls(), namespaces=(space,), versions={"xpu": "20250101"})


FAKES: dict[str, Callable[..., Fake]] = {"rocm": FakeRocm.fake, "metal": FakeMetal.fake, "xpu": FakeXpu.fake}
"""By name of the device whose file they drive."""
