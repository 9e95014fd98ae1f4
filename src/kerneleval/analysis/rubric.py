"""The Standard Kernel Rubric: what was really achieved, on five axes, levels 1 to 4, from evidence and not from claims.

K, the complexity of the kernel, is the task's. R, how it is expressed, and H, for which hardware, come from its source
(and compiled code, where there is any) and from what the judge saw it do. P, performance, comes from measured times. A,
automation, comes from what its origin records. An axis without evidence has no level, and says why.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kerneleval.analysis.features import Mark, Reading, read_compiled, read_sources
from kerneleval.records import Candidate, Case, Origin, Result, Score, Task, Timing, Verdict
from kerneleval.scores.cells import attempted, by_generator, checked, primary, timing_of
from kerneleval.scores.intervals import FEW, NOTHING, interval, nested
from kerneleval.scores.intervals import median as median_of
from kerneleval.scores.registry import DEFAULT, Setting

__all__ = ["AXES", "LEVELS", "Grade", "Profile", "Rating", "Seen", "profiles", "rate", "seen"]

AXES: dict[str, str] = {
    "K": "kernel complexity",
    "R": "representation level",
    "H": "hardware specialization",
    "P": "performance target",
    "A": "automation level",
}

LEVELS: dict[str, tuple[str, str, str, str]] = {
    "K": ("simple, memory-bound", "structured primitives", "dense core linear algebra", "frontier"),
    "R": ("library composition", "high-level DSL", "lower-level DSL", "instruction level"),
    "H": ("portable", "accelerator-aware", "architecture-optimized pipelines", "frontier hardware features"),
    "P": ("functional", "loosely competitive", "near state of the art", "state of the art"),
    "A": ("expert co-design", "guided optimization", "minor corrections", "fully autonomous"),
}
"""The rubric's names of the levels."""

NEAR, LOOSE = 0.90, 0.50
"""Speed over that of the best known implementation from which P is 3 ("within approximately 5 to 10 %") and 2 ("within
roughly 50 %"); 4 matches or exceeds it."""

MINOR, GUIDED = 0.10, 0.50
"""Share of its lines up to which a human's edits are minor corrections (A 3) and guidance (A 2). The rubric gives no
figures: these are this program's."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The level of one attempt on one axis."""

    level: int | None
    """1 to 4; None: no evidence."""
    reason: str
    """What it rests on, or why there is none."""
    marks: tuple[Mark, ...] = ()
    """The places in the source that show it."""


@dataclass(frozen=True, kw_only=True)
class Rating:
    """One attempt on all axes, right or wrong."""

    generator: str
    """Who made it."""
    task: str
    """Task name."""
    sample: int
    """Sample index."""
    candidate: str
    """Content hash; empty: there was no candidate."""
    grades: Mapping[str, Grade]
    """Axis -> level."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One generator on one axis."""

    generator: str
    """Who."""
    axis: str
    """One of :data:`AXES`."""
    counts: Mapping[int, int]
    """Level -> attempts."""
    not_evaluated: Mapping[str, int]
    """Why there is no level -> attempts."""
    median: Score
    """Median level over the attempts that have one; hierarchical bootstrap over tasks, n is their number."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the judge saw an attempt do."""

    track: str = ""
    """Its track; empty: not decided, because it failed before."""
    launched: tuple[str, ...] = ()
    """Own kernels that were launched."""
    compiled: Mapping[str, str] = field(default_factory=dict)
    """Name -> compiled code (PTX, SASS, AMDGCN)."""


_COMPILED = ("ptx", "sass", "amdgcn")


def seen(verdict: Verdict) -> Seen:
    """What a verdict tells: track, launches, and compiled code where a finding holds some."""
    launched = {str(k): None for f in verdict.findings if isinstance(of := f.get("launches"), Mapping) for k in of}
    texts = [(kind, f[kind]) for f in verdict.findings for kind in _COMPILED if isinstance(f.get(kind), str)]
    compiled = {f"{kind} {i}" if i else kind: text for i, (kind, text) in enumerate(texts)}
    return Seen(track=verdict.track, launched=tuple(launched), compiled=compiled)


Key = tuple[str, str, int]
"""Generator, task, sample."""


def rate(
    results: Iterable[Result],
    tasks: Mapping[str, Task],
    candidates: Mapping[str, Candidate],
    verdicts: Mapping[Key, Seen],
    setting: Setting = DEFAULT,
) -> list[Rating]:
    """Every attempt on the primary machine on the five axes.

    Args:
        results: of any number of generators; each cell once. Their right kernels are the best known implementations,
            beside the baseline.
        tasks: task name -> task; one that is missing has no K.
        candidates: hash -> candidate; one that is missing has neither R nor H.
        verdicts: (generator, task, sample) -> what the judge saw on the primary machine.
        setting: names the primary device; empty: that of the first result.

    Raises:
        UsageError: a cell comes twice, or the setting names a device that was not evaluated.
    """
    cells = primary(list(results), setting)
    attempts: dict[Key, list[Result]] = {}
    right: set[Key] = set()
    for generator, of in by_generator(cells).items():
        for r in checked(of):
            attempts.setdefault((generator, r.task, r.sample), []).append(r)
        right |= {(generator, a.task, a.sample) for each in attempted(of).values() for a in each if a.correct}
    timed = {key: {r.case: t for r in attempts[key] if (t := timing_of(r)) is not None} for key in attempts}
    rivals: dict[str, dict[Key, Mapping[Case, Timing]]] = {}
    for key in right:
        rivals.setdefault(key[1], {})[key] = timed[key]
    origins = {of[0].candidate: of[0].origin for of in attempts.values() if of[0].candidate}
    read: dict[tuple[str, Seen], Reading] = {}
    ratings = []
    for key, of in attempts.items():
        generator, task, sample = key
        candidate = candidates.get(of[0].candidate)
        saw = verdicts.get(key, Seen())
        others = {o: t for o, t in rivals.get(task, {}).items() if attempts[o][0].candidate != of[0].candidate}
        grades = {"K": _complexity(tasks.get(task))}
        grades["R"], grades["H"] = _source(candidate, saw)
        grades["P"] = _performance(timed[key], others) if key in right else Grade(level=None, reason="not right")
        grades["A"] = _automation(of[0].origin, candidate, origins)
        if not of[0].candidate:
            none = Grade(level=None, reason="no candidate")
            grades |= dict.fromkeys("RHPA", none)
        ratings.append(
            Rating(generator=generator, task=task, sample=sample, candidate=of[0].candidate, grades=grades)
        )
    return ratings
