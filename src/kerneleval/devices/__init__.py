"""Stage 4, the hardware: one file a device, found on first look-up."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from kerneleval.devices.common.base import Arena, Capabilities, Device, EventTimer, contiguous_strides, typed_view
from kerneleval.records import UsageError, near

__all__ = [
    "Arena",
    "Capabilities",
    "Device",
    "EventTimer",
    "contiguous_strides",
    "default",
    "find",
    "names",
    "typed_view",
]

_BY_DEFAULT = ("cuda", "rocm", "xpu", "metal")
"""The first of these that is available is the default; else the CPU."""


@functools.cache
def _registry() -> dict[str, Device]:
    found: dict[str, Device] = {}
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        device = getattr(module, "DEVICE", None)
        if device is None:
            continue
        if device.name in found:
            raise RuntimeError(f"two devices are called {device.name!r}; the second is in {module.__file__}")
        found[device.name] = device
    return found


def names() -> tuple[str, ...]:
    """Names of all known devices, available here or not."""
    return tuple(sorted(_registry()))


def find(name: str) -> Device:
    """The device of that name; raises UsageError for an unknown one."""
    try:
        return _registry()[name]
    except KeyError:
        raise UsageError(f"no device is called {name!r}; {near(name, _registry())}") from None


def default() -> Device:
    """The GPU where there is one (CUDA, ROCm, XPU, Metal, in this order), else the CPU."""
    return next((device for name in _BY_DEFAULT if not (device := find(name)).available()), find("cpu"))
