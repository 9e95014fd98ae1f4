"""What kernels take of a GPU, read from device binaries: registers, local and shared memory. Nothing is run.

Of NVIDIA's the tables that ``cuobjdump -res-usage`` prints (CUDA Binary Utilities), of AMD's the metadata of the code
object (LLVM's "User Guide for AMDGPU Backend", Code Object V5). A file that is neither, or is broken, has no kernels.
What the process says in which the candidate's code ran is not enough: these come out of the binary.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kerneleval.languages.binaries import elf

MOST_KERNELS = 256
"""The most kernels of one file that a verdict lists."""

_EM_CUDA, _EM_AMDGPU = 190, 224
_SHT_SYMTAB = 2
_MOST_ELVES, _MOST_SYMBOLS = 64, 1 << 16

# Entries of .nv.info: a format, an attribute, and either sixteen bits or a length and so many bytes.
_WITH_LENGTH = 4
_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTERS = 0x11, 0x12, 0x2F

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
    """A compiled kernel and what it takes; -1: the binary does not say."""

    name: str
    """As the binary has it."""
    arch: str = ""
    """The architecture that the binary is for; empty: not known."""
    registers: int
    """Of a thread (on AMD its vector registers)."""
    spilled: int
    """On NVIDIA's the local memory of a thread in bytes: registers that were spilled, and arrays whose index is not
    constant; on AMD's spilled vector registers."""
    shared_bytes: int
    """Static shared memory of a block, with the KiB that CUDA keeps for itself from sm_90 on; what a launch adds is not
    in it."""


def read_binary(data: bytes) -> tuple[Kernel, ...]:
    """Its kernels; empty: it is no device binary of NVIDIA's or AMD's."""
    if len(data) < 64 or data[:6] != b"\x7fELF\x02\x01":
        return ()
    (machine,) = struct.unpack_from("<H", data, 18)
    if machine == _EM_CUDA:
        return cuda_kernels(data)
    return _amd(data, _GFX.get(data[48], "")) if machine == _EM_AMDGPU else ()


# -- NVIDIA ------------------------------------------------------------------------------------------------------------


def cuda_kernels(data: bytes) -> tuple[Kernel, ...]:
    """The kernels of a cubin, or of the cubins that a shared library holds uncompressed, sorted by name."""
    found: dict[str, Kernel] = {}
    for binary in _binaries(data):
        for kernel in _cuda(binary):
            found.setdefault(kernel.name, kernel)
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


def _cuda(binary: bytes) -> Iterator[Kernel]:
    sections = dict(zip(elf.section_names(binary), elf.sections(binary), strict=False))  # a broken file has no names
    named = {name: sections[name] for name in sections if name.startswith(".text.")}
    if not named:
        return
    table = itertools.islice(elf.symbols(binary, _SHT_SYMTAB), _MOST_SYMBOLS)
    symbols: dict[int, str] = {}
    for number, _, _, place in table:
        symbols.setdefault(number, elf.text_at(binary, *place))  # of several tables the first counts
    figures: dict[tuple[int, str], int] = {}
    _, offset, size, _, _ = sections.get(".nv.info", (0, 0, 0, 0, 0))
    for attribute, payload in _entries(binary[offset : offset + size]):
        if len(payload) == 8:
            symbol, value = struct.unpack("<II", payload)
            figures[attribute, symbols.get(symbol, "")] = value
    arch = f"sm_{binary[48 if binary[8] <= 7 else 49]}"  # of the flags the lowest byte up to ABI 7, then the second
    for section in named:
        name = section.removeprefix(".text.")
        shared = sections.get(f".nv.shared.{name}", (0, 0, 0, 0, 0))[2]
        if (_REGISTERS, name) not in figures:
            continue  # a function that kernels call
        local = max(figures.get((_FRAME_SIZE, name), 0), figures.get((_MIN_STACK_SIZE, name), 0))
        registers = figures[_REGISTERS, name]
        yield Kernel(name=name, arch=arch, registers=registers, spilled=local, shared_bytes=shared)


def _entries(info: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(info):
        form, attribute, length = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == _WITH_LENGTH:
            yield attribute, info[at : at + length]
            at += length


# -- AMD ---------------------------------------------------------------------------------------------------------------


def _amd(data: bytes, arch: str) -> tuple[Kernel, ...]:
    """From the note of the code object, which is MessagePack: ``amdhsa.kernels`` has a map for each kernel."""
    names = sorted({name.removesuffix(".kd") for name in elf.exported(data) if name.endswith(".kd")})
    figures = {str(one.get(".symbol", "")).removesuffix(".kd"): one for one in _metadata(data)}
    return tuple(
        Kernel(
            name=name,
            arch=arch,
            registers=_figure(figures.get(name), ".vgpr_count"),
            spilled=_figure(figures.get(name), ".vgpr_spill_count"),
            shared_bytes=_figure(figures.get(name), ".group_segment_fixed_size"),
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
    """One MessagePack value (nil, booleans, integers, strings, arrays, maps) and where the next begins. Raises
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
