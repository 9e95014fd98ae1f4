"""What kernels take of an NVIDIA GPU, read from its device binaries: registers, local and shared memory.

The tables are those that ``cuobjdump -res-usage`` prints (CUDA Binary Utilities); nothing is run, and a file that is
none of NVIDIA's, or is broken, has no kernels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kerneleval.languages.binaries import elf

__all__ = ["MOST_KERNELS", "Use", "device_binaries", "uses"]

MOST_KERNELS = 256
"""Kernels of a file that are told."""

_EM_CUDA = 190
_SHT_SYMTAB = 2
_MOST_ELVES, _MOST_SYMBOLS = 64, 1 << 16

# Entries of .nv.info: a format, an attribute, and either sixteen bits or a length and so many bytes.
_SIZED = 4
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one kernel takes."""

    kernel: str
    """Its name, as the linker knows it."""
    registers: int
    """Of a thread."""
    local_bytes: int
    """Local memory of a thread: registers that were spilled, and arrays whose index is not constant."""
    shared_bytes: int
    """Static shared memory of a block, with the KiB that CUDA keeps for itself from sm_90 on; what a launch adds is not
    in it."""


def uses(data: bytes) -> tuple[Use, ...]:
    """The kernels of a cubin, or of the cubins that a shared library holds uncompressed, sorted by name."""
    found: dict[str, Use] = {}
    for binary in _binaries(data):
        for use in _uses(binary):
            found.setdefault(use.kernel, use)
    return tuple(found[name] for name in sorted(found)[:MOST_KERNELS])


def device_binaries(data: bytes) -> tuple[bytes, ...]:
    """The cubins that a shared library holds uncompressed, or the one that it is, each without what follows it."""
    return tuple(one[: elf.length(one)] for one in _binaries(data))


def _binaries(data: bytes) -> Iterator[bytes]:
    at = data.find(b"\x7fELF\x02\x01")
    for _ in range(_MOST_ELVES):
        if at < 0:
            return
        if struct.unpack_from("<H", data.ljust(at + 20, b"\0"), at + 18)[0] == _EM_CUDA:
            yield data[at:]
        at = data.find(b"\x7fELF\x02\x01", at + 1)


def _uses(binary: bytes) -> Iterator[Use]:
    sections = dict(zip(elf.section_names(binary), elf.sections(binary), strict=False))  # a broken file has no names
    named = {name: sections[name] for name in sections if name.startswith(".text.")}
    if not named:
        return
    symbols = _symbols(binary)
    told: dict[tuple[int, str], int] = {}
    _, offset, size, _, _ = sections.get(".nv.info", (0, 0, 0, 0, 0))
    for attribute, payload in _entries(binary[offset : offset + size]):
        if len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            told[attribute, symbols.get(symbol, "")] = value
    for section in named:
        name = section.removeprefix(".text.")
        shared = sections.get(f".nv.shared.{name}", (0, 0, 0, 0, 0))[2]
        if (_REGISTERS, name) not in told:
            continue  # a function that kernels call
        local = max(told.get((_FRAME_SIZE, name), 0), told.get((_MIN_STACK_SIZE, name), 0))
        yield Use(kernel=name, registers=told[_REGISTERS, name], local_bytes=local, shared_bytes=shared)


def _symbols(binary: bytes) -> dict[int, str]:
    for kind, offset, size, link_offset, link_size in elf.sections(binary):
        if kind == _SHT_SYMTAB:
            strings = binary[link_offset : link_offset + link_size]
            places = range(offset, min(offset + size, len(binary)) - 23, 24)[:_MOST_SYMBOLS]
            return {n: elf.text_at(strings, struct.unpack_from("<I", binary, at)[0]) for n, at in enumerate(places)}
    return {}


def _entries(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _SIZED:
            yield attribute, info[at : at + length]
            at += length
