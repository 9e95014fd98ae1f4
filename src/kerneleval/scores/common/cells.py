"""Reading results: which cells count, which pairs and tasks are correct."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from kerneleval.records import Failed, Machine, Passed, Result, Timing, UsageError, pooled
from kerneleval.scores.common.intervals import Z, log_error
from kerneleval.scores.common.registry import Setting
from kerneleval.scores.common.rules import one_rule, timed_by

_F = TypeVar("_F", bound=Callable[..., Any])
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


def by_key(pairs_of: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    """The values of each key, from (key, value) pairs; keys in the order of their first value."""
    groups: dict[_K, list[_T]] = {}
    for key, value in pairs_of:
        groups.setdefault(key, []).append(value)
    return groups


def by_generator(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of each generator, generators in the order of their first result."""
    return by_key((r.generator, r) for r in results)


class _Checked(list[Result]):
    """Results of one generator in which every cell comes once: they are checked once for all scores, and what several
    scores derive from them is derived once.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        super().__init__(results)
        self.derived: dict[Hashable, Any] = {}


def derived(*settings: str) -> Callable[[_F], _F]:
    """Keeps what a function derives from checked results with these; it must not be changed. ``settings`` names the
    fields of the setting, its second argument, that it depends on.
    """

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def kept(results: Iterable[Result], *given: Any) -> Any:
            if not isinstance(results, _Checked):
                return function(results, *given)
            key = (function.__name__, *(getattr(given[0], name) for name in settings))
            if key not in results.derived:
                results.derived[key] = function(results, *given)
            return results.derived[key]

        return cast(_F, kept)

    return decorate


def checked(results: Sequence[Result]) -> Sequence[Result]:
    """The results, if they are of one generator and hold every cell once.

    Raises:
        UsageError: they are of several generators, hold a cell twice (two runs of the same thing), or times of a
            direction by two rules.
    """
    if isinstance(results, _Checked):
        return results
    generators = sorted({r.generator for r in results})
    if len(generators) > 1:
        raise UsageError(f"a score is of one generator, got {', '.join(generators)}; split them with by_generator")
    seen: dict[tuple[object, ...], str] = {}
    for r in results:
        identity = (r.task, r.sample, r.machine, r.case)
        if identity in seen:
            raise UsageError(
                f"cell {r.case.key} of {r.generator}, sample {r.sample}, comes twice (runs {seen[identity]} and "
                f"{r.run}); score one run at a time, or runs on different machines"
            )
        seen[identity] = r.run
    one_rule(timed_by(results))
    return _Checked(results)


def timing_of(result: Result) -> Timing | None:
    """The timing of a correct cell; None where it failed or was not timed."""
    return result.outcome.timing if isinstance(result.outcome, Passed) else None


def error_of(timing: Timing) -> float:
    """Standard error of the logarithm of a timing's speedup: half of its 95 % interval over the quantile of Student's t
    that the interval was made with. Infinite where it is no interval. Runs by older rules do not say with which: there
    it is the normal one, and the error up to twice too large.
    """
    return log_error(timing.low, timing.high, unknown=math.inf) * Z / _student(timing.freedom)


@functools.cache
def _student(freedom: float) -> float:
    from scipy import special

    return Z if math.isinf(freedom) else float(special.stdtrit(freedom, 0.975))


def beyond_noise(timings: Sequence[Timing]) -> int:
    """1: together faster than the baseline, -1: slower, 0: neither beyond doubt. The geometric mean of the speedups
    must have an interval that excludes 1, and be further from 1 than the noise floor.
    """
    timed = [t for t in timings if t.speedup > 0 and t.low > 0]
    if not timed:
        return 0
    mean = pooled(timed)
    if abs(mean.centre) <= max(mean.half, math.log1p(mean.noise)):
        return 0
    return 1 if mean.centre > 0 else -1


def unsupported(result: Result) -> bool:
    """Whether the candidate declared that it does not support this cell."""
    return isinstance(result.outcome, Failed) and result.outcome.reason == "unsupported"


# -- Machines ---------------------------------------------------------------------------------------------------------


@derived()
def device_names(results: Iterable[Result]) -> dict[str, str]:
    """Machine fingerprint -> name for people, in the order of the results: the device kind, with the fingerprint where
    several machines are of one kind.
    """
    kinds = {r.machine: r.device for r in results}
    several = {kind for kind in kinds.values() if list(kinds.values()).count(kind) > 1}
    return {machine: f"{kind} {machine[:8]}" if kind in several else kind for machine, kind in kinds.items()}


def devices_of(machines: Iterable[Machine]) -> dict[str, str]:
    """Machine fingerprint -> device, by which P_hw counts: the kind, with the product where the machines have several
    of that kind. Two machines of one product, architecture and number of units are one device, whatever their drivers,
    hosts and memory: a second host of the same GPU is no evidence of portability.
    """
    models = {m.fingerprint: (m.device, m.name, m.arch, m.units) for m in machines}
    different = set(models.values())
    found = {}
    for machine, (kind, name, arch, units) in models.items():
        alike = [other for other in different if other[0] == kind]
        label = kind if len(alike) == 1 else f"{kind} {name}"
        if sum(other[1] == name for other in alike) > 1:
            label += f" ({arch}, {units} units)"
        found[machine] = label
    return found


@derived("primary")
def primary(results: Sequence[Result], setting: Setting) -> list[Result]:
    """The results of the primary machine.

    Raises:
        UsageError: the setting names a machine that no result is of.
    """
    if not results:
        return []
    wanted = setting.primary
    machine = next((r.machine for r in results if not wanted or wanted in (r.machine, r.device)), None)
    if machine is None:
        known = ", ".join(device_names(results).values())
        raise UsageError(f"primary device {wanted!r} was not evaluated; evaluated are {known}")
    chosen = [r for r in results if r.machine == machine]
    return _Checked(chosen) if isinstance(results, _Checked) else chosen


# -- Pairs and tasks --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One sample at one (operator, direction) pair on one machine."""

    task: str
    category: str
    direction: str
    sample: int
    cells: tuple[Result, ...]
    """Its cells; empty: a pair of the suite that the run did not plan."""

    @functools.cached_property
    def correct(self) -> bool:
        """Whether it is right in every supported case, and supports one."""
        return all_right(self.cells)

    @functools.cached_property
    def supported(self) -> float:
        """Share of its cells that are not declared unsupported."""
        return 1 - sum(map(unsupported, self.cells)) / len(self.cells) if self.cells else 0.0

    @functools.cached_property
    def regressing(self) -> bool:
        """Whether the pair as a whole is slower than the baseline beyond noise.

        As a whole: the geometric mean of its timed cells, whose interval must be below 1 and which must be below the
        noise floor. One slow shape is a regression of that cell (the score ``regressions`` lists it) and shows in
        CV_shape; if it cost the whole pair, coverage would count the same thing as robustness again.
        """
        return beyond_noise(self.timings) < 0

    @functools.cached_property
    def tried(self) -> bool:
        """Whether there is a candidate that claims to support any of it."""
        failed = [r.outcome for r in self.cells if isinstance(r.outcome, Failed)]
        return len(self.cells) > sum(of.reason == "unsupported" or of.stage == "generate" for of in failed)

    @functools.cached_property
    def timings(self) -> tuple[Timing, ...]:
        """Timings of its timed cells."""
        return tuple(t for r in self.cells if (t := timing_of(r)) is not None)


@derived("suite")
def pairs(results: Sequence[Result], setting: Setting) -> list[Pair]:
    """The (operator, direction) pairs of each sample, and those of the suite that the results lack."""
    groups: dict[tuple[str, str, str, int], list[Result]]
    groups = by_key(((r.task, r.category, r.case.direction, r.sample), r) for r in results)
    present = {key[:3] for key in groups}
    for task, category, direction in setting.suite:
        if (task, category, direction) not in present:
            groups[task, category, direction, 0] = []
    return [
        Pair(task=task, category=category, direction=direction, sample=sample, cells=tuple(cells))
        for (task, category, direction, sample), cells in groups.items()
    ]


@dataclass(frozen=True, kw_only=True)
class Attempted:
    """One sample at one task on one machine, both directions together."""

    task: str
    sample: int
    correct: bool
    """Right in every supported case, and supports one."""
    speedup: float
    """Geometric mean over its timed forward cells, or its backward ones where no forward one is timed; NaN: not
    timed, or not correct."""


@derived()
def attempted(results: Sequence[Result]) -> dict[str, list[Attempted]]:
    """The samples of each task, tasks in the order of the results."""
    tasks: dict[str, list[Attempted]] = {}
    for (task, sample), cells in by_key(((r.task, r.sample), r) for r in results).items():
        correct = all_right(cells)
        speedup = _task_speedup(cells) if correct else math.nan
        tasks.setdefault(task, []).append(Attempted(task=task, sample=sample, correct=correct, speedup=speedup))
    return tasks


def _task_speedup(cells: Sequence[Result]) -> float:
    for direction in ("forward", "backward"):
        timings = [t for r in cells if r.case.direction == direction and (t := timing_of(r)) is not None]
        if timings:
            return math.exp(sum(math.log(t.speedup) for t in timings) / len(timings))
    return math.nan


def all_right(cells: Sequence[Result]) -> bool:
    """Whether the candidate supports one of the cells, and is right in each that it supports."""
    supported = [r for r in cells if not unsupported(r)]
    return bool(supported) and all(isinstance(r.outcome, Passed) for r in supported)
