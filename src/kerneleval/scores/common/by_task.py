"""Two sets of results task by task, where they have no cell in common: other shapes, other machines, or results that
others published.

Such results are not pairs of measurements: each side has speedups against a baseline of its own, at cells of its own.
What is left to compare are (task, direction) pairs, each side by the share of its samples that are right and by the
geometric mean of the speedups of these. Rightness is tested by random signs over the pairs (Fisher's permutation test
of paired differences; with one sample a pair it is McNemar's exact test), speed by Student's t over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kerneleval.records import Result, Score, UsageError, near
from kerneleval.scores.common.cells import by_key, checked, pairs
from kerneleval.scores.common.intervals import NOTHING, SEED, geometric_mean_of, share
from kerneleval.scores.common.registry import DEFAULT
from kerneleval.scores.common.rules import not_compared, rule_of

_PERMUTATIONS = 9999


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side at one (task, direction) pair."""

    samples: int
    """Samples planned, on all machines."""
    right: int
    """Those that are right in every case that they support."""
    cells: int
    """Timed cells of these."""
    speedup: float
    """Geometric mean of their speedups, samples alike; NaN: none is timed."""
    rule: int
    """By which they were timed (``rules.py``)."""


@dataclass(frozen=True, kw_only=True)
class TaskPair:
    """One (task, direction) pair that both sides have."""

    task: str
    direction: str
    before: Side
    after: Side

    @property
    def ratio(self) -> float:
        """The second's speedup over the first's; NaN: not both have one, or they were timed by different rules."""
        return self.after.speedup / self.before.speedup if self.after.rule == self.before.rule else math.nan


@dataclass(frozen=True, kw_only=True)
class TaskComparison:
    """Two sets of results without a cell in common, the second against the first."""

    pairs: tuple[TaskPair, ...]
    """(task, direction) pairs that both have, in the order of the first."""
    only_before: int
    """Pairs that the first alone has."""
    only_after: int
    correct_before: Score
    """Share of right samples, mean over the pairs of both. Wilson's interval, tasks as the independent units."""
    correct_after: Score
    p_correct: float
    """Two-sided p-value of no difference."""
    speed: Score
    """Geometric mean over tasks of the ratios of speedup; Student's t over tasks; n is their number."""
    rules: str
    """What is not compared because it was timed by another rule, one sentence; empty: nothing."""


def compare_tasks(
    before: Sequence[Result], after: Sequence[Result], same: Mapping[str, str] | None = None
) -> TaskComparison:
    """The second against the first, each of one generator. Raises UsageError where a cell comes twice, or no task and
    direction is in both.

    ``same``: task name -> the name under which it is compared (:func:`kerneleval.tasks.peers.same_tasks`); samples of
    tasks of one such name count together; None: their own.
    """
    first, second = (_sides(checked(side), same or {}) for side in (before, after))
    common = [key for key in first if key in second]
    if not common:
        some = next((task for task, _ in first), "")
        raise UsageError(
            f"the two have no task and direction in common: the first has {some!r} and {len(first) - 1} more pairs; "
            f"{near(some, {task for task, _ in second})}"
        )
    found = tuple(TaskPair(task=t, direction=d, before=first[t, d], after=second[t, d]) for t, d in common)
    return TaskComparison(
        pairs=found,
        only_before=len(first) - len(common),
        only_after=len(second) - len(common),
        correct_before=_correct([p.before for p in found], common),
        correct_after=_correct([p.after for p in found], common),
        p_correct=_p([p.after.right / p.after.samples - p.before.right / p.before.samples for p in found]),
        speed=_speed(found),
        rules=not_compared(before, after),
    )


def _sides(results: Sequence[Result], same: Mapping[str, str]) -> dict[tuple[str, str], Side]:
    machines = by_key((r.machine, r) for r in results)
    every = (pair for of in machines.values() for pair in pairs(of, DEFAULT))
    found = {}
    for key, of in by_key(((same.get(pair.task, pair.task), pair.direction), pair) for pair in every).items():
        right = [pair for pair in of if pair.correct]
        logs = [_mean([math.log(t.speedup) for t in pair.timings if t.speedup > 0]) for pair in right]
        timed = [log for log in logs if not math.isnan(log)]
        speedup = math.exp(_mean(timed))
        cells = sum(len(pair.timings) for pair in right)
        rule = max((rule_of(key[1], r.protocol_version) for pair in of for r in pair.cells), default=1)
        found[key] = Side(samples=len(of), right=len(right), cells=cells, speedup=speedup, rule=rule)
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _correct(sides: Sequence[Side], keys: Sequence[tuple[str, str]]) -> Score:
    value = sum(side.right / side.samples for side in sides) / len(sides)
    return share(value, len(sides), independent=len({task for task, _ in keys}))


def _p(differences: Sequence[float]) -> float:
    """How likely a sum as far from 0 is if every difference might as well have had the other sign."""
    data = np.array([d for d in differences if d])
    if len(data) < 2:  # either sign of a single one is as far from 0
        return 1.0
    from scipy import stats

    found = stats.permutation_test(
        (data,),
        lambda of, axis: of.sum(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_PERMUTATIONS,
        rng=np.random.default_rng(SEED),
    )
    return float(found.pvalue)


def _speed(found: Sequence[TaskPair]) -> Score:
    of_tasks = by_key((pair.task, math.log(pair.ratio)) for pair in found if not math.isnan(pair.ratio))
    if not of_tasks:
        return NOTHING("no pair is right and timed on both sides")
    return geometric_mean_of([_mean(logs) for logs in of_tasks.values()])
