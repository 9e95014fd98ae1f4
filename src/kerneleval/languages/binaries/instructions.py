"""What disassembled code shows: special units that it uses, and functions of a library that its entry points reach.

Instructions of SASS, AMDGCN, x86-64 and AArch64: NVIDIA's "CUDA Binary Utilities", instruction set reference; AMD's
CDNA 3 and RDNA 3/4 ISA guides; Intel's "64 and IA-32 Architectures Software Developer's Manual", volume 2; Arm's A64
instruction set. Texts are those of ``cuobjdump -sass``, of LLVM's AMDGPU assembler, and of ``objdump -d
--no-show-raw-insn``. A text that is none of these has no instructions; nothing in it can raise.

What is not reached was never called. Direct calls, jumps and addresses that are taken count, also through slots of the
global offset table (``objdump -R``). Where a function that is reached calls through a pointer, what it calls is
reported as unknown. Each pattern takes time in proportion to the text, whatever symbols are called.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kerneleval.records import CodeUse, InstructionLine

_SASS: Mapping[str, str] = {
    "mma": r"[HIDBQ]MMA\b",
    "wgmma": r"[HIBQ]GMMA\b",
    "tcgen05": r"UTC\w*MMA\b|LDTM\b|STTM\b|UTCCP\b",
    "async copy": r"LDGSTS\b",
    "ldmatrix": r"(?:LDSM|STSM)\b",
    "mbarrier": r"SYNCS\b",
    "TMA": r"(?:UTMA(?:LDG|STG|REDG|CMDFLUSH)|UBLKCP|UBLKRED)\b",
    "cluster": r"UCGABAR_\w+|CGABAR\b|U?MAPA\b",
    "setmaxnreg": r"USETMAXREG\b",
    "spill": r"(?:STL|LDL)\b",
}
_GCN: Mapping[str, str] = {
    "mma": r"v_(?:s?wmma|smfmac|mfma)_",
    "async copy": r"(?:global|buffer)_load_lds_|global_load_async_to_lds|buffer_load_\w+[^\n]*\blds\b",
    "TMA": r"tensor_load_to_lds|tensor_store_from_lds",
    "spill": r"scratch_(?:load|store)_",
}
_X86: Mapping[str, str] = {
    "AMX": r"tdp\w+|tcmm\w+|tileloadd\w*|tilestored|tilezero",
    "prefetch": r"prefetch\w+",
    "streaming store": r"v?movnt\w+",
    "AVX-512": r"[^\n]*(?:%zmm|\{%k[1-7]\})",
    "AVX2": r"[^\n]*%ymm",
    # not what scalar code does in these registers too: moves, logic, blends, conversions
    "SSE": r"v?(?:(?:add|sub|mul|div|max|min|sqrt|hadd|addsub|dp|rcp|rsqrt|cmp\w*|round|movu|fn?m\w+\d+)p[sd]"
    r"|p(?:add|sub|mul|madd|max|min|cmp|sll|srl|sra|avg|sad)\w*|cvt(?:dq2p[sd]|t?p[sd]2dq)|movdqu\w*)\s[^\n]*%xmm",
}
_ARM: Mapping[str, str] = {
    "SME": r"[^\n]*\bza\d*[.\[hv]|smstart\b",
    "SVE": r"[^\n]*\bz\d+(?:\.[bhsdq])?\b",
    "NEON": r"[^\n]*\bv\d+\.\d*[bhsd]\b|(?:ld|st)[rp]\s+q\d",
    "prefetch": r"prfm\w*\b",
}

CLASSES: Mapping[str, Mapping[str, str]] = {"sass": _SASS, "amdgcn": _GCN, "x86": _X86, "arm": _ARM}
"""Instruction set -> class -> what an instruction of it begins with; of several the first. ``mma``: matrix units fed
from registers; ``wgmma`` and ``tcgen05``: Hopper's and Blackwell's; ``ldmatrix``: matrix fragments from shared memory;
``mbarrier``: barriers in shared memory that count bytes and arrivals; ``spill``: local memory (NVIDIA) and scratch
(AMD), arrays among it. ``SSE`` has what computes with vectors or moves them, ``AVX2`` has 32-byte registers,
``AVX-512`` those of 64 bytes or masks."""

MATRIX = ("mma", "wgmma", "tcgen05", "AMX", "SME")
"""Classes of matrix units."""
VECTOR = ("AVX-512", "AVX2", "SSE", "SVE", "NEON")
"""Classes of CPUs' vector units."""
PIPELINE = ("async copy", "ldmatrix", "mbarrier", "prefetch", "streaming store")
"""Classes of copies and synchronisation of an architecture."""
FRONTIER = ("wgmma", "tcgen05", "TMA", "cluster", "setmaxnreg", "AMX", "SME")
"""Classes of the newest features."""

_MOST_LINES, _MOST_TEXT, _MOST_MNEMONIC = 16, 100, 60
_MOST_CHARS, _MOST_CHARS_A_LINE = 4 << 20, 400
"""What is read of a text, and of each of its lines."""

_PLACE = {
    "sass": re.compile(r"\s*(?:/\*[0-9a-f]+\*/)?[\s{]*(?:@!?U?P\w+\s+)?(?=[A-Z])"),
    "amdgcn": re.compile(r"\s+(?=[a-z]\w*_\w)"),
    "x86": re.compile(r"\s*[0-9a-f]+:\s+(?:(?:lock|rep[nz]*|bnd|notrack|data16|cs)\s+)*(?=[a-z])"),
    "arm": re.compile(r"\s*[0-9a-f]+:\s+(?=[a-z])"),
}
"""What stands before an instruction's mnemonic in its line."""

_SASS_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "ENL2": 32}
_GCN_WIDTHS = dict.fromkeys(("ubyte", "sbyte", "byte", "u8", "i8", "b8"), 1)
_GCN_WIDTHS |= dict.fromkeys(("ushort", "short", "u16", "b16"), 2)
_GCN_WIDTHS |= {"dword": 4, "b32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16, "b128": 16}
_GCN_ACCESS = re.compile(r"(?:global|buffer|flat)_(?:load|store)_(?:d16_)?(?:hi_)?([a-z]+\d*(?:x\d)?)\b")
_SASS_ACCESS = re.compile(r"(?:LDG|STG|LDGSTS)\.E((?:\.\w+)*)")
_X86_SCALAR = re.compile(r"v?(?:mov|add|sub|mul|div|max|min|sqrt|ucomi|comi|cvt\w*|fn?m\w+\d+)s[sdh]\b|v?mov[dq]\b")


@functools.cache
def _patterns(isa: str) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((name, re.compile(pattern)) for name, pattern in CLASSES[isa].items())


def read_code(text: str, isa: str, kernel: str = "") -> CodeUse:
    """Count the instructions of one kernel's disassembly, of AMD's the compiler's output; ``isa`` is a key of
    :data:`CLASSES`.
    """
    instructions = accesses = wide_accesses = widest = 0
    counts: Counter[str] = Counter()  # by mnemonic, of those of a class
    classes: Counter[str] = Counter()
    first: dict[str, tuple[str, int, str]] = {}  # mnemonic -> class, line and text of its first instruction
    for number, whole in enumerate(text[:_MOST_CHARS].split("\n"), 1):
        line = whole[:_MOST_CHARS_A_LINE]
        place = _PLACE[isa].match(line)
        if place is None or (isa == "amdgcn" and line.rstrip().endswith(":")):
            continue
        instruction = re.split(r"/\*|//|#|;(?=\s|$)", line[place.end() :], maxsplit=1)[0].rstrip()
        mnemonic = instruction.split(None, 1)[0].rstrip(",;")[:_MOST_MNEMONIC] if instruction else ""
        if not mnemonic:
            continue
        instructions += 1
        width, wide = _width(instruction, isa)
        accesses, wide_accesses, widest = accesses + (width > 0), wide_accesses + wide, max(widest, width)
        unit = next((name for name, pattern in _patterns(isa) if pattern.match(instruction)), "")
        if unit:
            first.setdefault(mnemonic, (unit, number, " ".join(instruction.split())[:_MOST_TEXT]))
            counts[mnemonic] += 1
            classes[first[mnemonic][0]] += 1
    lines = (
        InstructionLine(unit=unit, mnemonic=mnemonic, count=counts[mnemonic], line=line, text=text)
        for mnemonic, (unit, line, text) in first.items()
    )
    return CodeUse(
        kernel=kernel,
        isa=isa,
        instructions=instructions,
        classes=_classes(isa, classes),
        widest_bytes=widest,
        accesses=accesses,
        wide_accesses=wide_accesses,
        lines=_lines(isa, lines),
    )


def _classes(isa: str, counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple((name, counts[name]) for name in CLASSES[isa] if name in counts)


def _lines(isa: str, lines: Iterable[InstructionLine]) -> tuple[InstructionLine, ...]:
    """The most frequent of each class first, so that every class has one before any has two."""
    by_unit: dict[str, list[InstructionLine]] = {name: [] for name in CLASSES[isa]}
    for line in lines:
        by_unit[line.unit].append(line)
    ranked = [
        (rank, line)
        for each in by_unit.values()
        for rank, line in enumerate(sorted(each, key=lambda one: (-one.count, one.line)))
    ]
    return tuple(line for _, line in sorted(ranked, key=lambda pair: pair[0])[:_MOST_LINES])


def _width(instruction: str, isa: str) -> tuple[int, bool]:
    """Bytes that one instruction moves to or from global memory, 0: none; and whether it is a wide access."""
    if isa == "amdgcn":
        match = _GCN_ACCESS.match(instruction)
        width = _GCN_WIDTHS.get(match[1], 0) if match else 0
        return width, width >= 8
    if isa == "sass":
        match = _SASS_ACCESS.match(instruction)
        if match is None:
            return 0, False
        parts = match[1].split(".")[1:]
        width = next((size for name, size in _SASS_WIDTHS.items() if name in parts), 4)
        return width, width >= 8
    if isa == "x86":
        return _x86_width(instruction)
    match = re.match(r"(?:ld|st)\w*\s+\{?\s*([zvqdsh])\d+", instruction)
    width = {"z": 16, "v": 16, "q": 16, "d": 8, "s": 4, "h": 2}[match[1]] if match else 0
    return width, width >= 16


def _x86_width(instruction: str) -> tuple[int, bool]:
    """Of an instruction with a vector register and a memory operand; a scalar of a vector register is no wide one."""
    if "(" not in instruction or "%rsp" in instruction or "mm" not in instruction:
        return 0, False
    if _X86_SCALAR.match(instruction) or "broadcast" in instruction:
        return (4 if re.match(r"\S*ss\b", instruction) else 8), False
    width = next((size for name, size in (("%zmm", 64), ("%ymm", 32), ("%xmm", 16)) if name in instruction), 0)
    return width, width > 0


def merged(uses: Iterable[CodeUse]) -> tuple[CodeUse, ...]:
    """One for each kernel and instruction set, sorted; each figure of the binary that has most of it."""
    by_kernel: dict[tuple[str, str], list[CodeUse]] = {}
    for use in uses:
        by_kernel.setdefault((use.kernel, use.isa), []).append(use)
    return tuple(_greatest(each) for _, each in sorted(by_kernel.items()))


def _greatest(uses: list[CodeUse]) -> CodeUse:
    if len(uses) == 1:
        return uses[0]
    isa = uses[0].isa
    counts: dict[str, int] = {}
    lines: dict[str, InstructionLine] = {}
    for use in uses:
        for name, number in use.classes:
            counts[name] = max(counts.get(name, 0), number)
        for line in use.lines:
            if line.mnemonic not in lines or line.count > lines[line.mnemonic].count:
                lines[line.mnemonic] = line
    most = max(uses, key=lambda use: (use.vectorised or 0.0, use.accesses))
    return CodeUse(
        kernel=uses[0].kernel,
        isa=isa,
        instructions=max(use.instructions for use in uses),
        classes=_classes(isa, counts),
        widest_bytes=max(use.widest_bytes for use in uses),
        accesses=most.accesses,
        wide_accesses=most.wide_accesses,
        lines=_lines(isa, lines.values()),
    )


def sass_functions(text: str) -> Iterator[tuple[str, str]]:
    """(name, text) of each function that ``cuobjdump -sass`` prints."""
    parts = re.split(r"(?m)^[ \t]*Function : ([^\n]+)$", text)
    yield from ((name.strip(), body) for name, body in zip(parts[1::2], parts[2::2], strict=True))


_HEAD = re.compile(r"(?m)^([0-9a-f]{1,16}) <([^>\n]+)>:$")
_SYMBOL = re.compile(r"<([^<>+\n]+)(?:\+0x[0-9a-f]+)?>")
_SLOT = re.compile(r"# ([0-9a-f]{1,16}) <")
_THROUGH_POINTER = re.compile(r"\b(?:call|jmp)\s+\*|\bblr?\s+x\d")
_RELATIVE = re.compile(r"(?m)^([0-9a-f]{1,16}) R_[A-Z0-9]{1,9}(?:_64)?_RELATIVE(?:64)? +\*ABS\*\+0x([0-9a-f]{1,16})")
_NAMED = re.compile(r"(?m)^([0-9a-f]{1,16}) R_[A-Z0-9]{1,9}(?:_64)?_(?:GLOB_DAT|64|JUMP_SLOT?) +([^\s@]+)")
_RUNTIME = re.compile(r"cuda|__cuda|cu[A-Z]|__cxa_|_ZNSt|__gnu|[^ ]+@")
"""The CUDA run-time and the standard library: what they do by pointers is none of the candidate's."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What entry points reach."""

    names: frozenset[str]
    """Symbols that the functions reached, those among them, refer to."""
    all_known: bool
    """Whether none of them calls through a pointer."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A library's disassembly, taken apart."""

    bodies: Mapping[str, str]
    """Function -> its lines."""
    slots: Mapping[int, str]
    """Address that the loader fills in -> the symbol whose address it gets."""


def listing(text: str) -> Listing:
    """Take apart what ``objdump -R`` and then ``objdump -d`` print."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    bodies: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=False):  # no function: nothing ends
        bodies.setdefault(head[2], text[head.end() : end])
    at = {int(head[1], 16): head[2] for head in heads}
    slots = {int(m[1], 16): at.get(int(m[2], 16), "") for m in _RELATIVE.finditer(text)}
    slots |= {int(m[1], 16): m[2] for m in _NAMED.finditer(text)}
    return Listing(bodies=bodies, slots=slots)


def reached(code: Listing, entries: Iterable[str]) -> Reached:
    """What the entry points of these names reach; their clones (``name.part.0``) are found by their callers."""
    open_ = [name for name in entries if name in code.bodies]
    names: set[str] = set(open_)
    all_known = True
    while open_:
        body = code.bodies[open_.pop()]
        all_known = all_known and _THROUGH_POINTER.search(body) is None
        found = {m[1] for m in _SYMBOL.finditer(body)}
        found |= {code.slots.get(int(m[1], 16), "") for m in _SLOT.finditer(body)}
        fresh = found - names
        names |= fresh
        open_ += [name for name in fresh if name in code.bodies and not _RUNTIME.match(name)]
    return Reached(names=frozenset(names - {""}), all_known=all_known)


def kernels_reached(code: Listing, entries: Iterable[str], kernels: Collection[str]) -> tuple[frozenset[str], bool]:
    """The CUDA kernels that entry points launch, and whether that is known: else all of them may be.

    nvcc makes of a kernel a host function of its name, or ``_ZL`` for ``_Z`` where it is static, and
    ``__device_stub__`` with its name in it; who launches it refers to one of these.
    """
    found = reached(code, entries)
    named = {name.replace("_ZL", "_Z", 1) if name.startswith("_ZL") else name for name in found.names}
    stubs = [name for name in named if "__device_stub_" in name]
    launched = {k for k in kernels if k in named or any(_stub(k) in stub for stub in stubs)}
    known = found.all_known and bool(launched)
    return frozenset(launched if known else kernels), known


def _stub(kernel: str) -> str:
    """What the mangled name of a kernel's stub has in it: lengths keep ``k`` from ``k2``."""
    name = f"__device_stub_{kernel}"
    return f"{len(name)}{name}"
