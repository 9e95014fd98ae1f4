"""Features of a source that the Standard Kernel Rubric rates: how it is expressed (R), and for which hardware (H).

One row of :data:`FEATURES` is one thing to look for; what it proves is a level of one axis. Comments, docstrings,
strings that are no code, and what ``#if 0`` leaves out prove nothing. Where the judge saw which kernels were launched,
functions of Triton and Numba that none of these calls prove nothing either; where it has their compiled code, what has
no instruction there proves nothing (``rubric.py``).
"""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kerneleval.analysis.sources import LIMIT_CHARS, NATIVE, compiled_functions, native_code
from kerneleval.languages.binaries.instructions import FRONTIER, MATRIX, PIPELINE, VECTOR
from kerneleval.records import Candidate, CodeUse


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Evidence for a level of an axis."""

    axis: str
    level: int
    file: str
    """Path within the candidate, or what compiled code is called."""
    line: int
    what: str
    says: str
    units: tuple[str, ...] = ()
    """Classes of instructions (``languages/binaries/instructions.py``) of which compiled code has one where
    the source's kernel really does it; empty: none need show."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What was found in a candidate."""

    marks: tuple[Mark, ...]
    """Evidence, the highest level of each axis first."""
    unread: str = ""
    not_launched: tuple[str, ...] = ()
    """Functions with features that no launched kernel calls."""


@dataclass(frozen=True)
class Feature:
    """One thing to look for."""

    key: str
    """Axis and level: ``R1`` to ``H4``."""
    says: str
    python: tuple[str, ...] = ()
    """Names as they would be imported; ``x.*`` is everything below ``x``."""
    native: str = ""
    """Regular expression over C, C++, CUDA and HIP without comments and strings."""
    assembly: str = ""
    """Regular expression over inline assembly."""
    units: tuple[str, ...] = ()
    """As :class:`Mark` has them."""


_TL = "triton.language"
_GLUON = "triton.experimental.gluon"
_NEWEST = "the newest features"
_NAMED = "instructions of a processor, named one by one"
_VECTORS = "vector units"
_ARITHMETIC = r"(?:add|sub|mul|fmadd|fnmadd|load|loadu|store|storeu|max|min|set1|dp)\w*"

FEATURES: tuple[Feature, ...] = (
    # -- R: 1 library composition, 2 high-level DSL, 3 lower-level DSL, 4 instruction level
    Feature(
        "R1",
        "calls a library's kernels",
        python=("torch.matmul", "torch.mm", "torch.bmm", "torch.compile", "torch.nn.functional.*", "torch.ops.aten.*"),
        native=r"\b(?:cublas|cudnn|rocblas|hipblas|miopen)[A-Z]\w*(?=\s*\()|\bcutlass::gemm::device::\w+|\b(?:at|torch)::\w+(?=\()",
    ),
    Feature(
        "R2",
        "a kernel in a high-level DSL, whose compiler schedules and maps it",
        python=("triton.jit", "cuda.tile.kernel", "helion.kernel", "numba.njit", "numba.jit", "numba.vectorize"),
    ),
    Feature(
        "R3",
        "a kernel in a DSL with explicit threads, tiles or layouts",
        python=(f"{_GLUON}.jit", "cutlass.cute.*", "numba.cuda.jit", "tilelang.*"),
        native=r"\bcute::\w+|\bnamespace\s+cute\b|\bkittens::\w+",
    ),
    Feature(
        "R3",
        "explicit loops over memory in C++; the compiler chooses the instructions",
        native=r"\b(?:for|while)(?=\s*\()",
    ),
    Feature("R4", "a kernel in CUDA or HIP C++, with explicit threads", native=r"\b__global__\b"),
    # in compiled code these look like what scalar code does in the same registers
    Feature("R4", _NAMED, native=r"\b_mm_\w+"),
    Feature("R4", _NAMED, native=r"\b_mm256_\w+", units=("AVX2", "AVX-512", "streaming store")),
    Feature("R4", _NAMED, native=r"\b_mm512_\w+", units=("AVX-512", "streaming store")),
    Feature("R4", _NAMED, native=r"\b(?:vld|vst|vfma|vmla|vadd|vmul)\w*_[fsu]\d+\b", units=("NEON", "SVE")),
    Feature("R4", _NAMED, native=r"\bsv\w+_[fsu]\d+\w*", units=("SVE",)),
    Feature("R4", "AMX instructions, named one by one", native=r"\b_tile_\w+", units=("AMX",)),
    # -- H: 1 portable, 2 compute units, 3 pipelines of an architecture, 4 its newest features
    Feature(
        "H2",
        "matrix units",
        python=(f"{_TL}.dot", f"{_TL}.dot_scaled", f"{_GLUON}.language.nvidia.ampere.mma_v2"),
        native=r"\bwmma::\w+|\b__builtin_amdgcn_(?:mfma|wmma)\w*|\brocwmma::\w+|\bSM(?:70|75|80|89)_\d+x\d+x\d+_\w+",
        assembly=r"\bw?mma\.(?:sync|load|store|mma)\S*",
        units=MATRIX,
    ),
    Feature("H2", _VECTORS, native=rf"\b_mm_{_ARITHMETIC}", units=VECTOR),
    Feature("H2", _VECTORS, native=rf"\b_mm256_{_ARITHMETIC}", units=("AVX2", "AVX-512")),
    Feature("H2", _VECTORS, native=rf"\b_mm512_{_ARITHMETIC}", units=("AVX-512",)),
    Feature("H2", _VECTORS, native=r"\b(?:vld1q|vst1q|vfmaq|vmlaq|vaddq|vmulq)_\w+", units=("NEON", "SVE")),
    Feature(
        "H3",
        "copies or synchronisation of an architecture",
        python=(f"{_GLUON}.language.nvidia.ampere.async_copy.*", "cutlass.cute.nvgpu.cpasync.*"),
        native=r"\b__pipeline_(?:memcpy_async|commit|wait_prior)\b|\bmemcpy_async\b|\bcuda::(?:pipeline|barrier)\b"
        r"|\bmake_pipeline\b|\bSM80_CP_ASYNC\w*|\bSM75_U\w*LDSM\w*|\b__builtin_amdgcn_(?:raw_buffer|global)_load_lds\b"
        r"|\b_mm\d*_stream_\w+|\b_mm_prefetch\b|\b__builtin_prefetch\b",
        assembly=r"\bcp\.async\.(?!bulk)\S+|\bldmatrix\.\S+|\bmbarrier\.\S+",
        units=(*PIPELINE, *FRONTIER),
    ),
    Feature(
        "H3",
        "synchronisation of an architecture, which no class of instructions shows",
        native=r"\b__builtin_amdgcn_sched_group_barrier\b",
        assembly=r"\bbar\.(?:sync|arrive)\s+[^;,]+,\s*\S+",
    ),
    Feature(
        "H4",
        f"{_NEWEST}: warpgroup matrix instructions",
        python=("cutlass.cute.nvgpu.warpgroup.*",),
        native=r"\bSM90_\d+x\d+x\d+_\w+",
        assembly=r"\bwgmma\.\S+",
        units=("wgmma",),
    ),
    Feature(
        "H4",
        f"{_NEWEST}: TMA",
        python=(
            f"{_TL}.make_tensor_descriptor",
            f"{_TL}._experimental_make_tensor_descriptor",
            f"{_TL}._experimental_descriptor_load",
            f"{_TL}._experimental_descriptor_store",
            "triton.tools.tensor_descriptor.*",
            "triton.tools.experimental_descriptor.*",
            "cutlass.cute.nvgpu.cpasync.CopyBulkTensorTileG2SOp",
        ),
        native=r"\bCUtensorMap\b|\bcuTensorMapEncode\w+|\bSM90_TMA\w*|\bcp_async_bulk\w*",
        assembly=r"\bcp\.(?:reduce\.)?async\.bulk\S*",
        units=("TMA",),
    ),
    Feature(
        "H4",
        f"{_NEWEST}: tensor memory",
        python=("cutlass.cute.nvgpu.tcgen05.*",),
        native=r"\bSM100_\w+",
        assembly=r"\btcgen05\.\S+",
        units=("tcgen05",),
    ),
    Feature(
        "H4",
        f"{_NEWEST}: warpgroups, TMA, tensor memory, clusters",
        python=(f"{_GLUON}.language.nvidia.hopper.*", f"{_GLUON}.language.nvidia.blackwell.*"),
        units=FRONTIER,
    ),
    Feature(
        "H4",
        f"{_NEWEST}: clusters of blocks",
        native=r"\b__cluster_dims__\b|\bthis_cluster\b|\bcluster_group\b|\bcudaLaunchAttributeCluster\w+",
        assembly=r"\bbarrier\.cluster\S*|\bmapa\.\S+",
        units=("cluster", "TMA"),
    ),
    Feature(
        "H4", f"{_NEWEST}: registers moved between warpgroups", assembly=r"\bsetmaxnreg\.\S+", units=("setmaxnreg",)
    ),
    Feature("H4", "AMX tiles", native=r"\b_tile_(?:dp\w+|loadd|stored)\b", units=("AMX",)),
)
"""What to look for. The levels are the rubric's; which features show them is this program's choice, and on CPUs, of
which the rubric says nothing, the levels too."""

_INSTRUCTIONS = Feature("R4", "inline assembly")
_PIPELINED = Feature("H3", "a software pipeline of a depth of its own", units=("async copy", "mbarrier", "TMA"))
_SPECIALISED = Feature("H4", "warps that specialise", units=("setmaxnreg", "TMA", "tcgen05"))
_CLUSTERED = Feature("H4", "a cluster of blocks", units=("cluster", "TMA"))

_LONGEST_WHAT = 80


def read_sources(candidate: Candidate, launched: Collection[str] = ()) -> Reading:
    """Evidence for R and H in the sources of a candidate. ``launched`` are names of the kernels that the judge saw
    launched; empty: not known, all count.
    """
    marks: list[Mark] = []
    unread: list[str] = []
    idle: list[str] = []
    for path, text in candidate.files:
        suffix = PurePosixPath(path).suffix.lower()
        if suffix != ".py" and suffix not in NATIVE:
            continue
        if len(text) > LIMIT_CHARS:
            unread.append(f"{path} is longer than {LIMIT_CHARS >> 10} Ki characters")
        elif suffix in NATIVE:
            marks += _native(path, text)
        else:
            try:
                found, not_called = _python(path, text, launched)
            except ValueError as error:
                unread.append(f"{path}: {error}")
                continue
            marks += found
            idle += not_called
    return Reading(marks=_sorted(marks), unread="; ".join(unread), not_launched=tuple(dict.fromkeys(idle)))


def marks_of_code(code: Iterable[CodeUse]) -> tuple[Mark, ...]:
    """What compiled code shows of H: the matrix units (2), copies and synchronisation (3), and newest features (4) of a
    GPU that it has instructions of, the highest level first.
    """
    return _sorted(
        [
            Mark(
                axis="H",
                level=4 if line.unit in FRONTIER else 3 if line.unit in PIPELINE else 2,
                file=f"{use.kernel} ({use.isa})",
                line=line.line,
                what=f"{line.count} {line.mnemonic}"[:_LONGEST_WHAT],
                says=f"{line.unit}: {line.text}",
                units=(line.unit,),
            )
            for use in code
            for line in use.lines
            if line.unit in (*FRONTIER, *PIPELINE, *MATRIX)
        ]
    )


def _sorted(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """One mark for each thing at its first line; the highest levels first."""
    first: dict[tuple[str, int, str, str], Mark] = {}
    for mark in sorted(marks, key=lambda m: (m.axis, -m.level, m.file, m.line)):
        first.setdefault((mark.axis, mark.level, mark.file, mark.what), mark)
    return tuple(first.values())


def _mark(feature: Feature, file: str, line: int, what: str) -> Mark:
    short = " ".join(what.split())[:_LONGEST_WHAT]
    axis, level = feature.key[0], int(feature.key[1])
    return Mark(axis=axis, level=level, file=file, line=line, what=short, says=feature.says, units=feature.units)


def _matches(feature: Feature, file: str, text: str, pattern: str, line: int) -> Iterator[Mark]:
    seen = set()
    at = 0
    for match in re.finditer(pattern, text):
        if match[0] not in seen:
            seen.add(match[0])
            line, at = line + text.count("\n", at, match.start()), match.start()
            yield _mark(feature, file, line, match[0])


_TILES = re.compile(r"\bcute\b|\bkittens\b")
_ASM = re.compile(r"\b(?:asm|__asm__|__asm)\b(?:\s+(?:volatile|__volatile__|goto|inline))*\s*\(")


def _native(file: str, text: str, line: int = 1) -> list[Mark]:
    strings: list[tuple[int, str]] = []
    code = native_code(text, strings=lambda at, string: strings.append((at, string)))
    marks: list[Mark] = []
    for feature in FEATURES:
        if feature.native:
            marks += _matches(feature, file, code, feature.native, line)
    ends = [end.start() for end in re.finditer("\n", text)]
    for at, within in _statements(code, strings):
        place = line + bisect.bisect_left(ends, at)
        for where, string in within:
            marks += _assembly(file, string, line + bisect.bisect_left(ends, where))
        if any(_instructions(string) for _, string in within):  # else a barrier of the compiler, asm("" ::: "memory")
            marks.append(_mark(_INSTRUCTIONS, file, place, "asm"))
    if any(m.axis == "R" and _TILES.search(m.what) for m in marks):  # these are C++ with __global__ too
        marks = [m for m in marks if not (m.axis == "R" and m.what == "__global__")]
    return marks


def _statements(code: str, strings: Sequence[tuple[int, str]]) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Where each statement of inline assembly begins, and its strings with their places."""
    closed: dict[int, int] = {}
    stack: list[int] = []
    for bracket in re.finditer(r"[()]", code):
        if bracket[0] == "(":
            stack.append(bracket.start())
        elif stack:
            closed[stack.pop()] = bracket.start()
    places = [at for at, _ in strings]
    done = 0
    for match in _ASM.finditer(code):
        end = closed.get(match.end() - 1, 0)
        if match.start() >= done and end:  # no statement is inside another
            done = end
            yield match.start(), list(strings[bisect.bisect(places, match.start()) : bisect.bisect(places, end)])


def _instructions(text: str) -> list[str]:
    """The instructions in a string of assembly, without its comments; those of clobbers and constraints are names."""
    inside = re.sub(r"//[^\n]*?(?=\\n|\n|$)", "", text.removeprefix("R").strip('"'))
    return [found for part in re.split(r"[;\n]|\\[nt]", inside) if "." in (found := part.strip(" \t{}()"))]


def _assembly(file: str, text: str, line: int) -> Iterator[Mark]:
    for instruction in _instructions(text):
        for feature in FEATURES:
            if feature.assembly:
                yield from _matches(feature, file, instruction, feature.assembly, line)


def _python(file: str, text: str, launched: Collection[str]) -> tuple[list[Mark], list[str]]:
    from kerneleval.languages.common.python_source import Source

    source = Source(text)
    spans = _kernels(source)
    called = _called(source, spans, launched)
    owners = {
        line: name
        for name, node in spans.items()
        for line in range(node.decorator_list[0].lineno, (node.end_lineno or node.lineno) + 1)
    }
    marks: list[Mark] = []
    idle: dict[str, None] = {}
    for mark in _python_marks(source, file):
        owner = owners.get(mark.line, "")
        if owner and called is not None and owner not in called:
            idle[owner] = None
        else:
            marks.append(mark)
    return marks, list(idle)


def _python_marks(source: Any, file: str) -> Iterator[Mark]:
    for feature in FEATURES:
        for line, what in source.uses(feature.python):
            yield _mark(feature, file, line, what)
    dots = any(True for _ in source.uses((f"{_TL}.dot", f"{_TL}.dot_scaled")))
    for call in source.each(ast.Call):
        name = source.dotted(call.func)
        if name == f"{_TL}.inline_asm_elementwise":
            for node in ast.walk(call):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    # the kernel around it is still Triton's: this is evidence for the hardware axis alone
                    yield from (m for m in _assembly(file, node.value, node.lineno) if m.axis == "H")
        for keyword in call.keywords:
            value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
            if keyword.arg == "warp_specialize" and value is True:
                yield _mark(_SPECIALISED, file, call.lineno, "warp_specialize=True")
            elif keyword.arg == "num_ctas" and isinstance(value, int) and value > 1:
                yield _mark(_CLUSTERED, file, call.lineno, f"num_ctas={value}")
            elif keyword.arg == "num_stages" and isinstance(value, int) and value > 1 and dots:
                yield _mark(_PIPELINED, file, call.lineno, f"num_stages={value} beside tl.dot")
    for line, inner in source.native_texts():
        yield from _native(file, inner, line)


def _kernels(source: Any) -> dict[str, ast.FunctionDef]:
    """Functions with a decorator that compiles them, by name."""
    compilers = tuple(n for f in FEATURES if f.key in ("R2", "R3") for n in f.python if "jit" in n)
    return {node.name: node for node in compiled_functions(source, compilers)}


def _called(source: Any, spans: Mapping[str, ast.FunctionDef], launched: Collection[str]) -> set[str] | None:
    """Kernels that were launched and those that they call, by name; None: not known, or under other names."""
    open_ = [name for name in spans if name in launched]
    if not open_:
        return None
    reached: set[str] = set()
    while open_:
        name = open_.pop()
        if name not in reached:
            reached.add(name)
            open_ += [n.id for n in ast.walk(spans[name]) if isinstance(n, ast.Name) and n.id in spans]
    return reached
