"""The vendors' device files over their fakes."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from kerneleval.devices import metal, rocm, xpu
from kerneleval.devices.fakes.hip import Hip
from kerneleval.devices.fakes.namespace import Namespace

if TYPE_CHECKING:
    import torch

__all__ = ["FAKES", "Fake", "FakeMetal", "FakeRocm", "FakeXpu"]

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
