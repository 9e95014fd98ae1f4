"""Stage 3, the hardware: one file a device, found on first look-up."""

from __future__ import annotations

from kerneleval.devices.common.base import (
    Arena,
    Capabilities,
    Device,
    EventTimer,
    contiguous_strides,
    default,
    find,
    names,
    register,
    typed_view,
)

__all__ = [
    "Arena",
    "Capabilities",
    "Device",
    "EventTimer",
    "contiguous_strides",
    "default",
    "find",
    "names",
    "register",
    "typed_view",
]
