"""Names that an ELF file defines, read from its own tables, so that a missing symbol can be explained without tools."""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["function_names", "kernel_names"]

_STT_FUNC = 2
_SHT_DYNSYM = 11


def function_names(path: Path) -> list[str]:
    """Functions that a 64-bit little-endian shared library exports, sorted; empty for any other file."""
    names = set()
    data = path.read_bytes()
    for kind, offset, size, link_offset, link_size in _sections(data):
        if kind != _SHT_DYNSYM:
            continue
        strings = data[link_offset : link_offset + link_size]
        for at in range(offset, min(offset + size, len(data)) - 23, 24):
            name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if info & 0xF == _STT_FUNC and section != 0:
                names.add(_string(strings, name))
    return sorted(names - {"_init", "_fini"})


def kernel_names(cubin: bytes) -> list[str]:
    """Kernels in a CUDA device binary: each has a section ``.text.NAME``."""
    prefix = ".text."
    return sorted(name[len(prefix) :] for name in _section_names(cubin) if name.startswith(prefix))


def _header(data: bytes) -> tuple[int, int, int, int] | None:
    # Offset, entry size and count of the section headers, and the index of the section of section names.
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if size < 64 or offset + size * count > len(data):
        return None
    return offset, size, count, names


def _sections(data: bytes) -> list[tuple[int, int, int, int, int]]:
    header = _header(data)
    if header is None:
        return []
    start, size, count, _ = header
    raw = []
    for index in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", data, start + index * size)
        raw.append((kind, offset, length, link))
    found = []
    for kind, offset, length, link in raw:
        _, link_offset, link_length, _ = raw[link] if link < count else (0, 0, 0, 0)
        found.append((kind, offset, length, link_offset, link_length))
    return found


def _section_names(data: bytes) -> list[str]:
    header = _header(data)
    if header is None:
        return []
    start, size, count, names_index = header
    sections = _sections(data)
    if names_index >= len(sections):
        return []
    _, offset, length, _, _ = sections[names_index]
    strings = data[offset : offset + length]
    return [_string(strings, struct.unpack_from("<I", data, start + i * size)[0]) for i in range(count)]


def _string(strings: bytes, at: int) -> str:
    end = strings.find(b"\0", at)
    return strings[at : end if end >= 0 else len(strings)].decode(errors="replace")
