"""What a device binary is for, and what its kernels take, from its own tables; nothing of it is run.

A binary comes out of the process in which the candidate's code ran, so what that process says of it is not enough.
AMD's figures are those of the code object's metadata (LLVM's "User Guide for AMDGPU Backend", Code Object V5).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from kerneleval.languages.binaries import elf
from kerneleval.languages.binaries.cubin import uses

__all__ = ["Kernel", "read_binary", "unpack"]

_EM_CUDA, _EM_AMDGPU = 190, 224

_NOTE = struct.pack("<I", 32) + b"AMDGPU\0\0"
"""Type and name of the note, before its content."""

_DEEPEST = 16
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_INTEGERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_SIZED = {
    0xD9: ("text", ">B"),
    0xDA: ("text", ">H"),
    0xDB: ("text", ">I"),
    0xDC: ("array", ">H"),
    0xDD: ("array", ">I"),
    0xDE: ("map", ">H"),
    0xDF: ("map", ">I"),
}
"""MessagePack's kinds (its specification's "Formats"); the others say themselves how large they are."""

_GFX = {
    0x2F: "gfx906",
    0x30: "gfx908",
    0x36: "gfx1030",
    0x3F: "gfx90a",
    0x4C: "gfx942",
    0x4F: "gfx950",
    0x41: "gfx1100",
    0x4E: "gfx1201",
}
"""``EF_AMDGPU_MACH`` of the targets, and of older ones that hipcc may know."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A compiled kernel."""

    name: str
    """As the binary has it."""
    arch: str
    """The architecture that the binary is for; empty: not known."""
    registers: int
    """Of a thread (on AMD its vector registers); -1: not told."""
    spilled: int
    """Local memory of a thread in bytes on NVIDIA's, spilled vector registers on AMD's; -1: not told."""
    shared_bytes: int
    """Static shared memory of a block; -1: not told."""


def read_binary(data: bytes) -> tuple[Kernel, ...]:
    """Its kernels; empty: it is no device binary of NVIDIA's or AMD's."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return ()
    (machine,) = struct.unpack_from("<H", data, 18)
    (flags,) = struct.unpack_from("<I", data, 48)
    if machine == _EM_CUDA:
        return tuple(
            Kernel(
                name=use.kernel,
                arch=_sm(flags, data),
                registers=use.registers,
                spilled=use.local_bytes,
                shared_bytes=use.shared_bytes,
            )
            for use in uses(data)
        )
    return _amd(data, _GFX.get(flags & 0xFF, "")) if machine == _EM_AMDGPU else ()


def _sm(flags: int, data: bytes) -> str:
    """The lowest byte up to ABI 7; bits 8 to 15 since."""
    number = flags & 0xFF if data[8] <= 7 else flags >> 8 & 0xFF
    return f"sm_{number}"


def _amd(data: bytes, arch: str) -> tuple[Kernel, ...]:
    """From the note of the code object, which is MessagePack: ``amdhsa.kernels`` has a map for each kernel."""
    names = sorted({name.removesuffix(".kd") for name in elf.exported(data) if name.endswith(".kd")})
    told = {str(one.get(".symbol", "")).removesuffix(".kd"): one for one in _metadata(data)}
    return tuple(
        Kernel(
            name=name,
            arch=arch,
            registers=_figure(told.get(name), ".vgpr_count"),
            spilled=_figure(told.get(name), ".vgpr_spill_count"),
            shared_bytes=_figure(told.get(name), ".group_segment_fixed_size"),
        )
        for name in names
    )


def _figure(kernel: dict[Any, Any] | None, key: str) -> int:
    value = kernel.get(key) if kernel is not None else None
    return value if type(value) is int and value >= 0 else -1


def _metadata(data: bytes) -> list[dict[Any, Any]]:
    """What the note (name ``AMDGPU``, type 32) says of each kernel; empty: it cannot be read."""
    at = data.find(_NOTE)
    if at < 4:
        return []
    try:
        said, _ = unpack(data, at + len(_NOTE), 0)
    except (IndexError, struct.error, ValueError, TypeError):  # not written by LLVM
        return []
    kernels = said.get("amdhsa.kernels") if isinstance(said, dict) else None
    return [one for one in kernels if isinstance(one, dict)] if isinstance(kernels, list) else []


def unpack(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """One MessagePack value (nil, booleans, integers, strings, arrays, maps) and where the next begins.

    Raises:
        IndexError, struct.error, TypeError, ValueError: there is none, or one of another kind, or it is nested deeply.
    """
    if depth > _DEEPEST:
        raise ValueError("too deep")
    kind = data[at]
    if kind < 0x80 or kind >= 0xE0:
        return (kind if kind < 0x80 else kind - 256), at + 1
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at + 1
    if kind in _INTEGERS:
        (number,) = struct.unpack_from(form := _INTEGERS[kind], data, at + 1)
        return number, at + 1 + struct.calcsize(form)
    what, form = _SIZED.get(kind, ("", ""))
    if what:
        (size,) = struct.unpack_from(form, data, at + 1)
        at += 1 + struct.calcsize(form)
    elif kind < 0xC0:
        what, size = ("map", kind & 15) if kind < 0x90 else ("array", kind & 15) if kind < 0xA0 else ("text", kind & 31)
        at += 1
    else:
        raise ValueError(f"kind {kind:#x}")
    if what == "text":
        return data[at : at + size].decode(), at + size
    found = []
    for _ in range(size if what == "array" else 2 * size):
        value, at = unpack(data, at, depth + 1)
        found.append(value)
    return (found if what == "array" else dict(zip(found[::2], found[1::2], strict=True))), at
