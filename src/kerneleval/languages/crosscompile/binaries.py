"""What a device binary is for, and what its kernels take, from its own tables; nothing of it is run.

A binary comes out of the process in which the candidate's code ran, so what that process says of it is not enough.
AMD's figures are those of the code object's metadata (LLVM's "User Guide for AMDGPU Backend", Code Object V5).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from kerneleval.languages import elf
from kerneleval.languages.cubin import uses

__all__ = ["Kernel", "read_binary"]

_EM_CUDA, _EM_AMDGPU = 190, 224

_GFX = {0x3F: "gfx90a", 0x4C: "gfx942", 0x4F: "gfx950", 0x41: "gfx1100", 0x4E: "gfx1201"}
"""``EF_AMDGPU_MACH`` of the targets."""


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
    """From the note of the code object, which is MessagePack: keys are short strings, the figures plain integers."""
    names = [name.removesuffix(".kd") for name in elf.exported(data) if name.endswith(".kd")]
    if len(names) != 1:  # Triton makes one binary a kernel
        return tuple(
            Kernel(name=name, arch=arch, registers=-1, spilled=-1, shared_bytes=-1) for name in sorted(set(names))
        )
    return (
        Kernel(
            name=names[0],
            arch=arch,
            registers=_number(data, b".vgpr_count"),
            spilled=_number(data, b".vgpr_spill_count"),
            shared_bytes=_number(data, b".group_segment_fixed_size"),
        ),
    )


def _number(data: bytes, key: bytes) -> int:
    """A MessagePack integer behind a key (its string has the length before it); -1: there is none."""
    match = re.search(re.escape(bytes([0xA0 | len(key)]) + key if len(key) < 32 else key), data)
    if match is None or match.end() + 5 > len(data):
        return -1
    kind = data[match.end()]
    if kind < 0x80:
        return kind
    size = {0xCC: 1, 0xCD: 2, 0xCE: 4}.get(kind, 0)
    return int.from_bytes(data[match.end() + 1 : match.end() + 1 + size], "big") if size else -1
