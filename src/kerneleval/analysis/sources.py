"""What sources are like: maintainability index, cyclomatic complexity, lines, functions, kernels.

Python by Radon, C, C++, CUDA and HIP by Lizard, in strings of a Python file too. Sources are read, never run.
"""

from __future__ import annotations

import ast
import math
import re
import statistics
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from kerneleval.records import Candidate, Result, Score
from kerneleval.records.errors import optional
from kerneleval.scores.common.cells import by_generator, primary
from kerneleval.scores.common.registry import DEFAULT
from kerneleval.scores.measures import median_over_attempts

LIMIT_CHARS = 256 << 10
"""Longer files are not measured: no kernel is so long, and Lizard's time grows with its square."""

NATIVE = (".c", ".cc", ".cl", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hip", ".hpp")
"""Suffixes of C, C++, CUDA, HIP and OpenCL C."""

METRICS = (
    *("maintainability", "complexity_sum", "complexity_mean", "complexity_max"),
    *("logical_lines", "functions", "kernels"),
)
"""The fields of :class:`SourceMetrics` that are numbers."""

_COMPILED_BY = (
    *("numba.cuda.jit", "numba.guvectorize", "numba.jit", "numba.njit", "numba.vectorize"),
    *("triton.experimental.gluon.jit", "triton.jit", "triton.runtime.jit.jit"),
)
"""Decorators that make a Python function a kernel, or a part of one."""


@dataclass(frozen=True, kw_only=True)
class SourceMetrics:
    """Measures of a candidate's source; NaN where there is none, with the reason in the note."""

    candidate: str
    language: str
    maintainability: float = math.nan
    """Maintainability index, 0 to 100 (Coleman et al. 1994, IEEE Computer 27(8):44, rescaled as Radon and Visual Studio
    do); of several files and languages the mean, by logical lines. Higher is easier. Of Python by Radon; of C-like
    languages by the same formula, with Halstead's volume (1977) over all tokens that are no comments."""
    complexity_sum: float = math.nan
    """McCabe's cyclomatic complexity (1976, IEEE TSE 2:308), over all functions."""
    complexity_mean: float = math.nan
    complexity_max: float = math.nan
    logical_lines: float = math.nan
    """Statements of Python; of other languages lines that are neither empty nor comment."""
    functions: float = math.nan
    """Functions and methods; those inside another function count as a part of it."""
    kernels: float = math.nan
    """Functions given to a kernel compiler: ``triton.jit`` and Numba's decorators, ``__global__``. NaN: the language
    (C++) does not mark them."""
    note: str = ""


def measure(candidate: Candidate) -> SourceMetrics:
    """The metrics of a candidate's sources. A source that does not parse gives NaN and a note, never an exception.
    Raises UsageError where Radon or Lizard is not installed.
    """
    parts: list[_Part] = []
    notes: list[str] = []
    for path, text in candidate.files:
        suffix = PurePosixPath(path).suffix.lower()
        if suffix != ".py" and suffix not in NATIVE:
            continue
        if len(text) > LIMIT_CHARS:
            notes.append(f"{path}: longer than {LIMIT_CHARS >> 10} Ki characters")
            continue
        try:
            parts += _python(text) if suffix == ".py" else [_native(text, marks=suffix not in (".cpp", ".cc", ".cxx"))]
        except _UNREADABLE as error:
            notes.append(f"{path}: does not parse: {str(error) or type(error).__name__}"[:200])
    if notes or not parts:  # of what is left alone the numbers would be too small
        why = "; ".join(notes) or "no source in a language that is measured"
        return SourceMetrics(candidate=candidate.hash, language=candidate.language, note=why)
    each = [c for part in parts for c in part.complexities]
    weights = [max(part.lines, 1) for part in parts]
    marked = [part.kernels for part in parts if part.kernels is not None]
    return SourceMetrics(
        candidate=candidate.hash,
        language=candidate.language,
        maintainability=statistics.fmean([part.index for part in parts], weights=weights),
        complexity_sum=float(sum(each)),
        complexity_mean=statistics.fmean(each) if each else math.nan,
        complexity_max=float(max(each)) if each else math.nan,
        logical_lines=float(sum(part.lines for part in parts)),
        functions=float(len(each)),
        kernels=float(sum(marked)) if marked else math.nan,
        note="; ".join(["no function"] * (not each) + ["C++ does not mark its kernels"] * (not marked)),
    )


@dataclass(frozen=True)
class _Part:
    """One text in one language."""

    complexities: list[int]
    lines: int
    kernels: int | None
    index: float


_UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError, IndexError, KeyError, AttributeError, TypeError)
"""What Radon, Lizard and Python's parser raise on texts that are no program (Lizard's errors are plain ones)."""


def _python(text: str) -> list[_Part]:
    with optional("the metrics of sources need"):
        from radon.complexity import cc_visit
        from radon.metrics import mi_visit
        from radon.raw import analyze
    from kerneleval.languages.common.python_source import Source

    source = Source(text)
    functions = [block for block in cc_visit(text) if hasattr(block, "is_method")]
    own = _Part(
        complexities=[block.complexity for block in functions],
        lines=analyze(text).lloc,
        kernels=len(compiled_functions(source, _COMPILED_BY)),
        index=float(mi_visit(text, multi=True)),
    )
    return [own, *(_native(inner, marks="__global__" in inner) for _, inner in source.native_texts())]


def compiled_functions(source: Any, compilers: Container[str]) -> list[ast.FunctionDef]:
    """Functions of a Python source with a decorator that compiles them."""
    return [
        node
        for node in source.each(ast.FunctionDef)
        if any(source.dotted(d.func if isinstance(d, ast.Call) else d) in compilers for d in node.decorator_list)
    ]


def _native(text: str, *, marks: bool) -> _Part:
    with optional("the metrics of sources need"):
        import lizard
    read = lizard.analyze_file.analyze_source_code("source.cpp", text)
    complexities = [int(function.cyclomatic_complexity) for function in read.function_list]
    kernels = set(_KERNEL.findall(native_code(text)))
    return _Part(
        complexities=complexities,
        lines=int(read.nloc),
        kernels=len(kernels) if marks else None,
        index=_native_index(text, sum(complexities), int(read.nloc)),
    )


def _native_index(text: str, complexity: int, lines: int) -> float:
    """The maintainability index of a C-like source: Radon's formula, operators and operands counted by Lizard."""
    with optional("the metrics of sources need"):
        from lizard_languages import CLikeReader
        from radon.metrics import mi_compute
    tokens = [token for token in CLikeReader.generate_tokens(native_code(text)) if token.strip()]
    volume = len(tokens) * math.log2(len(set(tokens))) if len(set(tokens)) > 1 else 0.0
    remarks = [m["out"] for m in _APART.finditer(text) if m["out"] and m["out"].startswith(("//", "/*"))]
    commented = sum(remark.count("\n") + 1 for remark in remarks)
    return float(mi_compute(volume, complexity, lines, 100 * commented / lines if lines else 0.0))


_KERNEL = re.compile(
    r"\b(?:__global__|(?:__)?kernel\s+(?:__attribute__\s*\(\([^;{}]*?\)\)\s*)?void)\b"
    r"[^;{}]*?\b(?!__launch_bounds__|__attribute__)(\w+)\s*\((?!\()"
)
"""A kernel's head in CUDA, HIP or OpenCL C, with its name."""

_APART = re.compile(
    r"""
      (?P<number> \b\d[\w.']* )
    | (?P<out> //(?:[^\n\\]|\\.)* | /\*.*?(?:\*/|\Z)
             | R"(?P<mark>[^()\\\s]{0,16})\(.*?(?:\)(?P=mark)"|\Z) | "(?:[^"\\\n]|\\.)*"? | '(?:[^'\\\n]|\\.)*'? )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONDITION = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b[ \t]*(\S*)")


def native_code(text: str, *, strings: Callable[[int, str], object] | None = None) -> str:
    """A C-like source with comments, strings and what ``#if 0`` leaves out blanked, every line where it was.
    ``strings`` is called with the position and the text of every string, as it is in the source.
    """

    def blank(match: re.Match[str]) -> str:
        if match["out"] is None:
            return match[0]
        if strings is not None and match[0].startswith(('"', 'R"')):
            strings(match.start(), match[0])
        return _blanked(match[0])

    return _living(_APART.sub(blank, text))


def _living(code: str) -> str:
    """The code without what is in ``#if 0`` up to its ``#else``, ``#elif`` or ``#endif``."""
    kept: list[str] = []
    dead = 0  # how deep in conditions, from the first #if 0 on
    for line in code.splitlines(keepends=True):
        word, condition = match.groups() if (match := _CONDITION.match(line)) else ("", "")
        if dead:
            dead += word.startswith("if")
            dead -= word == "endif" or (dead == 1 and word in ("elif", "else"))
        kept.append(_blanked(line) if dead else line)
        if not dead and word == "if" and condition == "0":
            dead = 1
    return "".join(kept)


def _blanked(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def by_generators(measured: Mapping[str, SourceMetrics], results: Iterable[Result]) -> dict[str, dict[str, Score]]:
    """Generator -> metric -> median over its attempts (right or wrong) on the first machine of the results; n is their
    number. Metrics are those of candidate hashes.
    """
    found: dict[str, dict[str, Score]] = {}
    for generator, of in by_generator(results).items():
        attempts = {(r.task, r.sample): r.candidate for r in primary(of, DEFAULT)}
        there = [(task, measured[c]) for (task, _), c in attempts.items() if c in measured]
        for name in METRICS:
            known = [(task, float(getattr(metrics, name))) for task, metrics in there]
            figures = [row for row in known if not math.isnan(row[1])]
            left = {"without a source": len(attempts) - len(there), "not known": len(known) - len(figures)}
            note = ", ".join(f"{count} {words}" for words, count in left.items() if count)
            found.setdefault(generator, {})[name] = median_over_attempts(figures, (-math.inf, math.inf), note)
    return found
