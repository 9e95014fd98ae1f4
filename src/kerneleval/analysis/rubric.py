"""The Standard Kernel Rubric: what was really achieved, on five axes, levels 1 to 4, from evidence and not from claims.

K, the complexity of the kernel, is the task's. R, how it is expressed, and H, for which hardware, come from its source
and from what the judge saw it do; where there is compiled code, that decides whether the source means it. P,
performance, comes from measured times. A, automation, comes from what its origin records. An axis without evidence has
no level, and says why.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kerneleval.analysis.features import Mark, Reading, marks_of_code, read_sources
from kerneleval.records import (
    Candidate,
    Case,
    CodeUse,
    Origin,
    Result,
    Score,
    Task,
    Timing,
    TrackEvidence,
    UsesEvidence,
    Verdict,
)
from kerneleval.scores.common.cells import attempted, by_generator, by_key, checked, primary, timing_of
from kerneleval.scores.common.registry import DEFAULT, AttemptKey, Setting
from kerneleval.scores.measures import median_over_attempts

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

SAME = 0.05
"""What is slower by less than the machine's noise floor matches; never more than this, however noisy the machine."""

MINOR, GUIDED = 0.10, 0.50
"""Share of its lines up to which a human's edits are minor corrections (A 3) and guidance (A 2). The rubric gives no
figures: these are this program's."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The level of one attempt on one axis."""

    level: int | None
    """1 to 4; None: no evidence."""
    reason: str
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Rating:
    """One attempt on all axes, right or wrong."""

    generator: str
    task: str
    sample: int
    candidate: str
    """Content hash; empty: there was no candidate."""
    grades: Mapping[str, Grade]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One generator on one axis."""

    generator: str
    axis: str
    counts: Mapping[int, int]
    not_evaluated: Mapping[str, int]
    """Why there is no level -> attempts."""
    median: Score
    """Median level over the attempts that have one; n is their number."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the judge saw an attempt do."""

    track: str = ""
    """Its track; empty: not decided, because it failed before."""
    launched: tuple[str, ...] = ()
    compiled: tuple[CodeUse, ...] = ()
    """What the compiled code of these uses; empty: it was not looked at."""
    complete: bool = True
    """Whether that is the code of all of them: what is not in it is then nowhere."""


def seen(verdict: Verdict) -> Seen:
    """What a verdict has: track, launches, and what compiled code uses, if the finding ``uses`` covers all of it."""
    evidence = [f.evidence for f in verdict.findings]
    launched = {name: None for of in evidence if isinstance(of, TrackEvidence) for name in of.launches}
    uses = [f.evidence for f in verdict.findings if f.check == "uses"]
    whole = all(isinstance(of, UsesEvidence) and of.complete for of in uses)
    return Seen(track=verdict.track, launched=tuple(launched), compiled=compiled_in(verdict), complete=whole)


def compiled_in(verdict: Verdict) -> tuple[CodeUse, ...]:
    """What a verdict's finding ``uses`` holds of compiled kernels."""
    evidence = (f.evidence for f in verdict.findings)
    return tuple(use for of in evidence if isinstance(of, UsesEvidence) for use in of.kernels)


def rate(
    results: Iterable[Result],
    tasks: Mapping[str, Task],
    candidates: Mapping[str, Candidate],
    verdicts: Mapping[AttemptKey, Seen],
    setting: Setting = DEFAULT,
) -> list[Rating]:
    """Every attempt on the primary machine on the five axes. The right kernels of the results are the best known
    implementations, besides the baseline. A task that is missing has no K, a candidate that is missing neither R nor H;
    ``verdicts`` are what the judge saw of each attempt. Raises UsageError where a cell comes twice, or the setting
    names a device that was not evaluated.
    """
    cells = primary(list(results), setting)
    attempts: dict[AttemptKey, list[Result]] = {}
    right: set[AttemptKey] = set()
    for generator, of in by_generator(cells).items():
        for r in checked(of):
            attempts.setdefault((generator, r.task, r.sample), []).append(r)
        right |= {(generator, a.task, a.sample) for each in attempted(of).values() for a in each if a.correct}
    timed = {key: {r.case: t for r in attempts[key] if (t := timing_of(r)) is not None} for key in attempts}
    rivals: dict[str, dict[AttemptKey, Mapping[Case, Timing]]] = {}
    for key in right:
        rivals.setdefault(key[1], {})[key] = timed[key]
    origins = {of[0].candidate: of[0].origin for of in attempts.values() if of[0].candidate}
    ratings = []
    for key, of in attempts.items():
        generator, task, sample = key
        candidate = candidates.get(of[0].candidate)
        saw = verdicts.get(key, Seen())
        others = {o: t for o, t in rivals.get(task, {}).items() if attempts[o][0].candidate != of[0].candidate}
        grades = {"K": Grade(level=None, reason="the task is not at hand")}
        if task in tasks:
            grades["K"] = Grade(level=tasks[task].complexity, reason="of the task")
        grades["R"], grades["H"] = source_grades(candidate, saw)
        grades["P"] = _performance(timed[key], others) if key in right else Grade(level=None, reason="not right")
        grades["A"] = _automation(of[0].origin, candidate, origins)
        if not of[0].candidate:
            grades |= dict.fromkeys("RHPA", Grade(level=None, reason="no candidate"))
        ratings.append(Rating(generator=generator, task=task, sample=sample, candidate=of[0].candidate, grades=grades))
    return ratings


def source_grades(candidate: Candidate | None, saw: Seen) -> tuple[Grade, Grade]:
    """R and H of a candidate, from its source, and from compiled code where there is some.

    The rubric rates what a kernel targets, and leaves to the compiler of a high-level DSL what that chooses: so the
    source must name a feature, and compiled code, where there is some, must have an instruction of it. Of CUDA and
    HIP C++, whose compiler chooses none of these features by itself, the compiled code alone is enough.
    """
    if candidate is None:
        both = Grade(level=None, reason="the source is not in the store")
        return both, both
    if saw.track == "library":
        why = "the judge saw no arithmetic in kernels of its own"
        return Grade(level=1, reason=why), Grade(level=None, reason="all arithmetic is a library's")
    reading = read_sources(candidate, saw.launched)
    units = {name for use in saw.compiled for name, _ in use.classes}
    decided = saw.compiled and saw.complete
    shown = [m for m in reading.marks if not decided or not m.units or units & set(m.units)]
    absent = [m for m in reading.marks if m not in shown]
    code = marks_of_code(saw.compiled)
    level, marks_r = _highest(shown, "R")
    if level is None and candidate.language == "torch" and not reading.unread:
        level, reason_r = 1, "PyTorch without a kernel of its own"
    else:
        reason_r = _reason(level, reading, saw) + _not_compiled(absent, "R", level)
    r = Grade(level=level, reason=reason_r, marks=marks_r)
    if level in (None, 1):
        return r, Grade(level=None, reason="all arithmetic is a library's" if level else reason_r)
    explicit = candidate.language in _EXPLICIT
    level_h, marks_h = _highest([*shown, *(code if explicit else ())], "H")
    if level_h is None and reading.unread:
        return r, Grade(level=None, reason=reading.unread)
    reason_h = _reason(level_h, reading, saw) if level_h else "none of the features of the levels above in its source"
    reason_h += _not_compiled(absent, "H", level_h or 1)
    if saw.compiled:
        said = _quoted(code)
        chosen = "" if explicit or _highest(code, "H")[0] == level_h or not said else ", as its compiler chose"
        reason_h += f"; compiled: {said or 'no instruction of a special unit'}{chosen}"
        marks_h = (*marks_h, *(m for m in code if m not in marks_h))
    elif level == 2:
        reason_h += "; what its compiler chose was not looked at"
    return r, Grade(level=level_h or 1, reason=reason_h, marks=marks_h)


_EXPLICIT = ("cuda", "hip")
"""Languages whose compilers choose none of the features of H by themselves."""


def _quoted(marks: Sequence[Mark]) -> str:
    """The first of each class, as the disassembler has it."""
    first = {mark.units: mark for mark in reversed(marks)}
    return ", ".join(f"{m.what} ({m.says.partition(':')[0]})" for m in sorted(first.values(), key=lambda m: -m.level))


def _not_compiled(absent: Sequence[Mark], axis: str, level: int | None) -> str:
    """What the source has of higher levels and its compiled code has not."""
    names = dict.fromkeys(m.what for m in absent if m.axis == axis and m.level > (level or 0))
    return f"; not in the compiled code, so not counted: {', '.join([*names][:6])}" if names else ""


def _highest(marks: Sequence[Mark], axis: str) -> tuple[int | None, tuple[Mark, ...]]:
    """The highest level that is shown, and what shows it."""
    own = [mark for mark in marks if mark.axis == axis]
    level = max((mark.level for mark in own), default=None)
    return level, tuple(mark for mark in own if mark.level == level)


def _reason(level: int | None, reading: Reading, saw: Seen) -> str:
    said = ["in its source" if level else "nothing that the rubric names is in its source"]
    if level and not saw.track:
        said.append("it was not seen running")
    elif saw.track == "mixed":
        said.append("library kernels beside its own")
    if reading.unread:
        said.append(f"not read: {reading.unread}")
    if reading.not_launched:
        said.append(f"not launched, so not counted: {', '.join(reading.not_launched[:6])}")
    return "; ".join(said)


def _performance(own: Mapping[Case, Timing], others: Mapping[AttemptKey, Mapping[Case, Timing]]) -> Grade:
    """Geometric mean speed over that of the fastest implementation known: the baseline, or another right kernel of
    these results that is timed in at least half of the same cells.
    """
    if not own:
        return Grade(level=None, reason="right, but not timed")
    best, against = _log_ratio(own, None), "the baseline"
    for (generator, _, sample), theirs in others.items():
        if 2 * len(own.keys() & theirs.keys()) >= len(own) and (ratio := _log_ratio(own, theirs))[0] < best[0]:
            best, against = ratio, f"{generator}, sample {sample}"
    centre, half, noise = best
    level = _level_of(centre, noise)
    reason = f"{math.exp(centre):.2f} x the speed of the best known ({against})"
    if math.isnan(half):
        return Grade(level=level, reason=f"{reason}; its timings have no interval")
    low, high = _level_of(centre - half, noise), _level_of(centre + half, noise)
    reason += f" [{math.exp(centre - half):.2f}, {math.exp(centre + half):.2f}]"
    return Grade(level=level, reason=reason + (f"; the interval reaches levels {low} to {high}" if low != high else ""))


def _log_ratio(own: Mapping[Case, Timing], theirs: Mapping[Case, Timing] | None) -> tuple[float, float, float]:
    """Logarithm of the ratio of the speeds over the common cells, with its :func:`uncertainty`."""
    cells = [case for case in own if theirs is None or case in theirs]
    sides = [[of[case] for case in cells] for of in (own, theirs) if of is not None]
    logs = [statistics.fmean(math.log(t.speedup) for t in side) for side in sides]
    return logs[0] - (logs[1] if len(logs) > 1 else 0.0), *uncertainty(sides)


def uncertainty(sides: Sequence[Sequence[Timing]]) -> tuple[float, float]:
    """Half the 95 % interval of the logarithm of a geometric mean speed, or of the ratio of two over the same cells
    (errors of independent timings in quadrature; NaN: there are timings without an interval), and its noise floor.
    """
    noise = math.hypot(*(statistics.fmean(math.log1p(t.noise) for t in side) for side in sides))
    every = [t for side in sides for t in side]
    if not all(0 < t.low <= t.high < math.inf for t in every):
        return math.nan, noise
    return math.sqrt(sum((math.log(t.high / t.low) / 2) ** 2 for t in every)) / len(sides[0]), noise


def _level_of(log_ratio: float, noise: float) -> int:
    if log_ratio >= -min(noise, math.log1p(SAME)):
        return 4
    return 3 if log_ratio >= math.log(NEAR) else 2 if log_ratio >= math.log(LOOSE) else 1


def _automation(origin: Origin, candidate: Candidate | None, origins: Mapping[str, Origin]) -> Grade:
    """By the guidance that humans gave the generator, and by the lines that they changed, in it and in its
    ancestors; the lower level of the two.
    """
    edits, known, at = 0, {""}, origin
    while True:
        if at.human_edits < 0:
            return Grade(level=None, reason="not recorded whether a human changed it")
        edits += at.human_edits
        if at.parent in known:
            break
        if at.parent not in origins:
            return Grade(level=None, reason=f"it refines {at.parent[:16]}, of which nothing is recorded here")
        known.add(at.parent)
        at = origins[at.parent]
    if not origin.model:
        return Grade(level=None, reason="no model is recorded: who wrote it is not known")
    edited = _edited(origin, candidate, edits)
    guided = {"detailed": 1, "strategy": 2}.get(origin.guidance, 4)
    if edited.level is None or edited.level <= guided:
        return edited
    words = "step by step" if guided == 1 else "in its strategy"
    return Grade(level=guided, reason=f"{origin.model}, guided by a human {words}")


def _edited(origin: Origin, candidate: Candidate | None, edits: int) -> Grade:
    if not edits:
        return Grade(level=4, reason=f"{origin.model}, no line changed by a human")
    if candidate is None:
        return Grade(level=None, reason=f"{edits} lines changed by a human, of a source that is not in the store")
    lines = sum(1 for _, text in candidate.files for line in text.splitlines() if line.strip())
    part = edits / max(lines, 1)
    level = 3 if part <= MINOR else 2 if part <= GUIDED else 1
    return Grade(level=level, reason=f"{origin.model}, {edits} of {lines} lines changed by a human")


def profiles(ratings: Iterable[Rating]) -> list[Profile]:
    """Each generator on each axis: how many attempts are on which level."""
    groups = by_key((rating.generator, rating) for rating in ratings)
    return [_profile(generator, axis, of) for generator, of in groups.items() for axis in AXES]


def _profile(generator: str, axis: str, ratings: Sequence[Rating]) -> Profile:
    grades = [(rating.task, rating.grades[axis]) for rating in ratings]
    graded = [(task, float(grade.level)) for task, grade in grades if grade.level is not None]
    counts = Counter(int(level) for _, level in graded)
    why = Counter(grade.reason for _, grade in grades if grade.level is None)
    return Profile(
        generator=generator,
        axis=axis,
        counts={level: counts[level] for level in (1, 2, 3, 4)},
        not_evaluated=dict(why.most_common()),
        median=median_over_attempts(graded, (1.0, 4.0), "" if graded else "not evaluated"),
    )
