"""Names that an ELF file defines, read from its own tables, so that a missing symbol can be explained without tools."""

from __future__ import annotations

import hashlib
import itertools
import re
import struct
from collections.abc import Iterator
from pathlib import Path

_STT_FUNC = 2
_SHT_NOBITS = 8
_SHT_DYNSYM = 11
_SHT_GNU_VERSYM = 0x6FFFFFFF
_STB_LOCAL = 0

_MOST_NAME, _MOST_SYMBOLS = 4096, 1 << 16
"""Bytes of a name, and symbols, that are read: a table that a candidate wrote may give each symbol megabytes."""

_DEBUGGING = re.compile(r"(\.rela?)?\.(nv_)?debug_")
"""Sections that no processor reads, by the beginning of their names."""

_CONTENTS = (1, 4, 9)
"""SHT_PROGBITS, SHT_RELA and SHT_REL."""

_LOADED = 2 | 4
"""SHF_ALLOC and SHF_EXECINSTR."""

_MOST_SECTIONS = 4096

_START_UP = frozenset(("__gmon_start__", "__cxa_finalize", "__cxa_pure_virtual"))
"""What compilers refer to in every library, defined or not."""

_TRANSACTIONAL = ("_ITM_", "_ZGTt")
"""Functions of transactional memory, by the beginning of their names. A libstdc++ that is linked in
(``-static-libstdc++``) refers to them; no library that computes defines one."""

_X86_64 = b"\x3e\x00"

_OPENMP = ("omp_", "GOMP_", "__kmpc_", "kmp_")
LOADER = frozenset(
    (
        *("_DYNAMIC", "_dl_find_object", "_dl_sym", "_r_debug", "_rtld_global", "_rtld_global_ro"),
        *("__libc_dlopen_mode", "__libc_dlsym", "dlopen", "dlmopen", "dlsym", "dlvsym"),
        *("dl_iterate_phdr", "dladdr", "dladdr1", "dlinfo", "getauxval"),
        *("_Unwind_Backtrace", "_Unwind_FindEnclosingFunction", "_Unwind_Find_FDE"),  # addresses in other libraries
        *("_Unwind_ForcedUnwind", "_dl_debug_state", "backtrace"),
        *("execl", "execle", "execlp", "execv", "execve", "execveat", "execvp", "execvpe", "fexecve"),
        *("popen", "posix_spawn", "posix_spawnp", "system", "wordexp"),  # not syscall: std::barrier waits by it
    )
)
"""Functions that find others' functions, or where these are, and those that start programs, which may compute with
anything."""

_MAPPED = re.compile(rb"/proc/[^\0]{0,40}?(?:auxv|map_files|maps|mem)(?![^\0/])")
"""Files by which a process finds where libraries are in its memory."""

COMPUTES = re.compile(
    r"(?:cublas|cudnn|cufft|cusolver|cusparse|cutensor|hipblas|hipsparse|rocblas|rocfft|miopen)[A-Z_]\w*"
    r"|(?:armpl|bli|(?:scipy_)?cblas|dnnl|(?:scipy_)?LAPACKE|mkl|mkldnn|pytorch_q8\w+|xnn)_\w+|v[sdcz][A-Z]\w+"
    r"|(?:scipy_)?[sdcz](?:axpy|dot|gbmv|geev|gels[dy]?|gemm(?:_\w+)?|gemv|geqrf|ger|gesdd|gesvd?|getr[fis]|nrm2|posv|potr[fis]|scal"
    r"|symm|symv|syevd?|syrk|sytrf|trmm|trmv|trsm|trsv)_?(?:64_)?"
    r"|aoti_torch_(?:cpu|cuda|mps|xpu)_(?!copy|empty|fill|full|ones|view|zero)\w+"
)
"""Functions of linear algebra, of networks and of transforms as their libraries name them."""

ARITHMETIC = re.compile(
    r"(cblas_|LAPACKE_|mkl_|MKL_|dnnl_|cublas|cudnn|cusolver|cusparse|cufft|cutensor|_ZN2at|_ZN5torch|_ZN3c10|_ZN4dnnl)"
    r"|[sdcz](ge|sy|he|tr|po|or|un|ga)[a-z0-9]{1,4}_?$|[sdcz](dot[uc]?|axpy|scal|nrm2|copy|swap|gemv|ger)_?$"
)
"""Names of BLAS, LAPACK, NVIDIA's libraries and PyTorch's own C++, where no symbol has a version."""


def function_names(path: Path) -> list[str]:
    """Functions that a 64-bit little-endian shared library exports, sorted; empty for any other file."""
    return sorted(set(exported(path.read_bytes(), _STT_FUNC)) - {"_init", "_fini"})


def exported(data: bytes, kind: int = -1) -> list[str]:
    """Symbols that a shared library defines for others, of one kind (``STT_FUNC`` is 2) or, -1, of any."""
    found = (
        text_at(data, *name)
        for _, info, section, name in symbols(data, _SHT_DYNSYM)
        if section != 0 and kind in (-1, info & 0xF)
    )
    return list(itertools.islice(found, _MOST_SYMBOLS))


def symbols(data: bytes, table: int) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
    """Of each symbol in tables of a kind: its number, binding and type, section, and where in the file its name begins
    and the names end. Copies nothing: a hostile file has thousands of tables whose names are all of it.
    """
    for kind, offset, size, link_offset, link_size in sections(data):
        if kind == table:
            for number, at in enumerate(range(offset, min(offset + size, len(data)) - 23, 24)):
                name, info, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
                yield number, info, section, (link_offset + name, link_offset + link_size)


def foreign_names(path: Path) -> list[str]:
    """Undefined symbols of a shared library that no library it was linked with defines, sorted.

    They can only come from what else the process has loaded: a BLAS, PyTorch. The linker gives the version of its
    library to every symbol that it found, and none to the others. Where there are no versions at all, names decide.
    """
    undefined = _undefined(path.read_bytes())
    found = [(n, version) for n, version in undefined if n not in _START_UP and not n.startswith(_TRANSACTIONAL)]
    if any(version > 1 for _, version in found):
        return sorted({n for n, version in found if version <= 1 and not n.startswith(_OPENMP)})
    return sorted({n for n, _ in found if ARITHMETIC.match(n)})


def loader_names(path: Path) -> list[str]:
    """Undefined symbols of a shared library by which it can find functions of others, or programs, sorted; then the
    names of files that tell where these are.
    """
    data = path.read_bytes()
    asked = LOADER if data[18:20] == _X86_64 else LOADER - {"getauxval"}  # elsewhere it tells what a processor can
    files = sorted({name.decode(errors="replace") for name in _MAPPED.findall(data)})
    return [*sorted({name for name, _ in _undefined(data) if name in asked}), *files]


def undefined(path: Path) -> list[str]:
    """Symbols that a shared library takes from others, sorted; none of any other file. Raises OSError."""
    return sorted({name for name, _ in _undefined(path.read_bytes())})


def _undefined(data: bytes) -> list[tuple[str, int]]:
    """Undefined dynamic symbols with the index of their version; 0 and 1: none."""
    start, size = next(((offset, n) for kind, offset, n, _, _ in sections(data) if kind == _SHT_GNU_VERSYM), (0, 0))
    found = []
    for number, info, section, name in symbols(data, _SHT_DYNSYM):
        if section == 0 and info >> 4 != _STB_LOCAL:
            place = start + 2 * number
            known = 2 * number + 2 <= size and place + 2 <= len(data)
            version = struct.unpack_from("<H", data, place)[0] & 0x7FFF if known else 0
            found.append((text_at(data, *name), version))
    return found


def is_device(data: bytes) -> bool:
    """Whether a file begins as a device binary of NVIDIA's or AMD's does."""
    return data[:6] == b"\x7fELF\x02\x01" and data[18:20] in (b"\xbe\x00", b"\xe0\x00")


def length(data: bytes) -> int:
    """Bytes that the ELF file at the beginning takes, by its tables; all, where they say nothing."""
    header = _header(data)
    if header is None:
        return len(data)
    offset, size, count, _ = header
    ends = [at + length for kind, at, length, _, _ in sections(data) if kind != _SHT_NOBITS]
    programs: int = struct.unpack_from("<Q", data, 32)[0]
    each, number = struct.unpack_from("<HH", data, 54)
    furthest: int = max(offset + size * count, programs + each * number, *ends)
    return min(furthest, len(data))


def code_digest(data: bytes) -> str:
    """Hash of a file, but for what debuggers alone read: lines of a source name its folder.

    Two files of one hash are equal but for the contents of sections that are named as debuggers' are, that no processor
    loads, and that are part of nothing else; where that is not so, it is the hash of all bytes.
    """
    kept = bytearray(data)
    for start, stop in _debugging(data):
        kept[start:stop] = bytes(stop - start)
    return hashlib.sha256(kept).hexdigest()


def _debugging(data: bytes) -> list[tuple[int, int]]:
    """Where a file holds what debuggers alone read; nothing, where any of it is read otherwise."""
    header = _header(data)
    if header is None or header[2] > _MOST_SECTIONS or header[3] >= header[2]:
        return []
    start, size, count, index = header
    name_offset, name_length = struct.unpack_from("<QQ", data, start + index * size + 24)
    strings = data[name_offset : name_offset + name_length]
    programs: int = struct.unpack_from("<Q", data, 32)[0]
    each, number = struct.unpack_from("<HH", data, 54)
    if number and (each < 56 or programs + each * number > len(data)):
        return []
    parts = [(0, 64, False), (start, start + size * count, False), (programs, programs + each * number, False)]
    for at in range(programs, programs + each * number, each or 1):
        offset, length = struct.unpack_from("<Q", data, at + 8)[0], struct.unpack_from("<Q", data, at + 32)[0]
        parts.append((offset, offset + length, False))
    for at in range(start, start + size * count, size):
        name, kind, flags, _, offset, length = struct.unpack_from("<IIQQQQ", data, at)
        if kind != _SHT_NOBITS:
            named = _DEBUGGING.match(text_at(strings, name)) is not None
            parts.append((offset, offset + length, named and kind in _CONTENTS and not flags & _LOADED))
    reached, of_debuggers = 0, False
    for begin, end, only in sorted(part for part in parts if part[1] > part[0]):
        if end > len(data) or (begin < reached and (only or of_debuggers)):
            return []
        if end > reached:
            reached, of_debuggers = end, only
    return [(begin, end) for begin, end, only in parts if only]


def kernel_names(cubin: bytes) -> list[str]:
    """Kernels in a CUDA device binary: each has a section ``.text.NAME``."""
    return sorted(name.removeprefix(".text.") for name in section_names(cubin) if name.startswith(".text."))


def _header(data: bytes) -> tuple[int, int, int, int] | None:
    # Offset, entry size and count of the section headers, and the index of the section of section names.
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64:
        return None
    (offset,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    if size < 64 or offset + size * count > len(data):
        return None
    return offset, size, count, names


def sections(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Kind, offset and size of each section, and offset and size of the one that it is linked with; empty: no ELF."""
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


def section_names(data: bytes) -> list[str]:
    """Names of the sections, in the order of :func:`sections`."""
    header = _header(data)
    if header is None:
        return []
    start, size, count, names_index = header
    found = sections(data)
    if names_index >= len(found):
        return []
    _, offset, length, _, _ = found[names_index]
    strings = data[offset : offset + length]
    return [text_at(strings, struct.unpack_from("<I", data, start + i * size)[0]) for i in range(count)]


def text_at(strings: bytes, at: int, end: int | None = None) -> str:
    """The zero-terminated name at that place of names that end at ``end``; of a longer one the first 4096 bytes."""
    most = min(at + _MOST_NAME, len(strings) if end is None else end)
    zero = strings.find(b"\0", at, most)
    return strings[at : zero if zero >= 0 else most].decode(errors="replace")
