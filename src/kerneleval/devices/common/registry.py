"""The registry of devices, and the default one. See :class:`~kerneleval.records.registry.Registry`."""

from __future__ import annotations

from kerneleval.devices.common.base import Device
from kerneleval.records.registry import Registry

__all__ = ["DEVICES", "default", "find", "names", "register"]

DEVICES: Registry[Device] = Registry(
    "device",
    "kerneleval.devices",
    problem=lambda plugin: "" if isinstance(plugin, Device) else "it lacks members of the protocol Device",
    module_is_name=True,
)
register, find, names = DEVICES.register, DEVICES.find, DEVICES.names

_BY_DEFAULT = ("cuda", "rocm", "xpu", "metal")
"""The first of these that is available is the default; else the CPU."""


def default() -> Device:
    """The GPU where there is one (CUDA, ROCm, XPU, Metal, in this order), else the CPU."""
    return next((device for name in _BY_DEFAULT if not (device := find(name)).available()), find("cpu"))
