"""What the compiled code of attempts is like: instructions by class, registers, local memory, widest access.

Figures are those of the findings ``uses`` and ``resources`` of stored verdicts (``docs/verdicts.md``); nothing is read
again. Where several kernels were launched, counts are sums, and what a thread or a block takes is that of the kernel
that takes most.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from kerneleval.analysis.rubric import compiled_in
from kerneleval.languages.binaries.instructions import FRONTIER, MATRIX, PIPELINE, VECTOR
from kerneleval.records import ResourcesEvidence, Result, Score, Verdict
from kerneleval.scores.common.cells import by_generator, primary
from kerneleval.scores.common.registry import DEFAULT, AttemptKey
from kerneleval.scores.measures import median_over_attempts


@dataclass(frozen=True, kw_only=True)
class CompiledMetrics:
    """Metrics of one attempt's compiled kernels; NaN where its verdict has none."""

    instructions: float = math.nan
    """Of all kernels that were launched."""
    matrix_instructions: float = math.nan
    """Those of matrix units, of whatever generation (``languages.instructions.MATRIX``)."""
    pipeline_instructions: float = math.nan
    """Asynchronous copies, barriers in shared memory, ldmatrix; on CPUs prefetches and streaming stores."""
    frontier_instructions: float = math.nan
    """WGMMA, tcgen05, TMA, clusters; AMX. Some are among those of matrix units too."""
    vector_instructions: float = math.nan
    """Of CPUs' vector units; NaN on GPUs."""
    spill_instructions: float = math.nan
    """Of local memory (NVIDIA) and scratch (AMD); NaN on CPUs."""
    widest_bytes: float = math.nan
    """The widest access of a thread to global memory (on CPUs memory)."""
    vectorised: float = math.nan
    """Share of these accesses that are wide, 0 to 1."""
    registers: float = math.nan
    """The most that a thread has, of NVIDIA's; of all binaries that were compiled."""
    local_bytes: float = math.nan
    """The most local memory of a thread, so."""
    shared_bytes: float = math.nan
    """The most shared memory of a block, so."""


METRICS = tuple(field.name for field in fields(CompiledMetrics))


def measure(verdict: Verdict) -> CompiledMetrics:
    """The metrics of an attempt by its verdict. A finding of another form gives nothing, and raises nothing."""
    figures: dict[str, float] = {}
    if uses := compiled_in(verdict):
        counts: Counter[str] = Counter()
        for use in uses:
            for name, number in use.classes:
                counts[name] += number
        on_cpu = any(use.isa in ("x86", "arm") for use in uses)
        accesses = sum(use.accesses for use in uses)
        figures = {
            "instructions": float(sum(use.instructions for use in uses)),
            "matrix_instructions": float(sum(counts[name] for name in MATRIX)),
            "pipeline_instructions": float(sum(counts[name] for name in PIPELINE)),
            "frontier_instructions": float(sum(counts[name] for name in FRONTIER)),
            "widest_bytes": float(max(use.widest_bytes for use in uses)),
            "vectorised": sum(use.wide_accesses for use in uses) / accesses if accesses else math.nan,
        }
        if on_cpu:
            figures["vector_instructions"] = float(sum(counts[name] for name in VECTOR))
        else:
            figures["spill_instructions"] = float(counts["spill"])
    return CompiledMetrics(**figures, **_resources(verdict))


def _resources(verdict: Verdict) -> dict[str, float]:
    evidence = (f.evidence for f in verdict.findings)
    kernels = [kernel for of in evidence if isinstance(of, ResourcesEvidence) for kernel in of.kernels]
    if not kernels:
        return {}
    names = ("registers", "local_bytes", "shared_bytes")
    return {name: float(max(getattr(kernel, name)[1] for kernel in kernels)) for name in names}


def by_generators(
    measured: Mapping[AttemptKey, CompiledMetrics], results: Iterable[Result]
) -> dict[str, dict[str, Score]]:
    """Generator -> metric -> median over its attempts (right or wrong) on the first machine of the results, for
    which they were measured; n is their number.
    """
    found: dict[str, dict[str, Score]] = {}
    for generator, of in by_generator(results).items():
        keys = list(dict.fromkeys((generator, r.task, r.sample) for r in primary(of, DEFAULT)))
        for name in METRICS:
            measurements = [(key[1], float(getattr(measured[key], name))) for key in keys if key in measured]
            known = [row for row in measurements if not math.isnan(row[1])]
            left = len(keys) - len(known)
            note = "" if not left else "not known for any attempt" if not known else f"{left} not known"
            found.setdefault(generator, {})[name] = median_over_attempts(known, (0.0, math.inf), note)
    return found
