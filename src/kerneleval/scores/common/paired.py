"""Two sets of results cell by cell: what got better, what got worse, and what is undecided.

Correctness is compared over (task, direction) pairs by McNemar's exact test: of the pairs that changed, how likely is a
split as uneven as this one, if both ways were as likely (McNemar 1947, Psychometrika 12:153). Speed is compared over
the cells that both got right and timed. Each cell has the ratio of its two speedups against the same baseline, with an
interval from those of the two timings, and a two-sided p-value; p-values of all cells are adjusted together by the
procedure of Benjamini and Hochberg (1995, JRSS B 57:289), so that of the cells that are called faster or slower at most
5 % are expected to be neither.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from kerneleval.records import Passed, Result, Score, UsageError
from kerneleval.scores.common.cells import all_right, by_key, checked, device_names, timing_of
from kerneleval.scores.common.intervals import NOTHING, Draw, Floats, Z, interval, log_error, nested, scored, share
from kerneleval.scores.common.rules import not_compared, rule_of
from kerneleval.scores.common.speeds import few_tasks

LEVEL = 0.05
"""False discovery rate of the cells that are called faster or slower."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell that both have."""

    key: str
    """Device, case and shape category; the sample where it is not the first."""
    task: str
    direction: str
    shape_category: str
    change: str
    """``rescued``, ``broken``, ``both_wrong``, ``faster``, ``slower``, ``not_told`` (no difference beyond noise),
    ``other_rule`` (timed by another rule, ``rules.py``) or ``untimed``."""
    ratio: float = math.nan
    """The second's speedup over the first's; NaN: not both are timed."""
    low: float = math.nan
    """Lower end of the 95 % interval of the ratio, not adjusted."""
    high: float = math.nan
    p: float = math.nan
    """Adjusted p-value of no difference."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One (task, direction) pair on one machine."""

    task: str
    direction: str
    before: bool
    """Whether the first is right in every case that it supports."""
    after: bool
    ratio: float
    """Geometric mean of its cells' ratios; NaN: none."""
    faster: int
    slower: int
    timed: int
    """Cells that both got right and timed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two sets of results, the second against the first."""

    cells: tuple[Cell, ...]
    """Cells that both have, in the order of the first."""
    pairs: tuple[Pair, ...]
    """(task, direction) pairs of these cells."""
    only_before: int
    """Cells that the first alone has."""
    only_after: int
    correct_before: Score
    """Share of the pairs that the first gets right."""
    correct_after: Score
    p_correct: float
    """McNemar's exact p-value of no difference; 1 where no pair changed."""
    speed: Score
    """Geometric mean of the ratios, tasks alike: mean of log ratio within each pair, then over pairs. Hierarchical
    bootstrap (whole tasks); n is the number of cells."""
    rules: str
    """What is not compared because it was timed by another rule, one sentence; empty: nothing."""

    def counts(self) -> dict[str, int]:
        """How many cells changed in which way."""
        found = dict.fromkeys(_CHANGES, 0)
        for cell in self.cells:
            found[cell.change] += 1
        return found


_CHANGES = ("rescued", "broken", "both_wrong", "faster", "slower", "not_told", "other_rule", "untimed")


def compare(before: Sequence[Result], after: Sequence[Result]) -> Comparison:
    """The second against the first, each of one generator and judged against the same baselines. Raises UsageError
    where a cell comes twice, or no cell is in both.
    """
    names = device_names([*before, *after])
    first, second = _by_cell(checked(before)), _by_cell(checked(after))
    common = [key for key in first if key in second]
    if not common:
        raise UsageError(
            "the two have no cell in common: they differ in tasks, shapes (--suite-seed), dtypes or machines; give two "
            "runs of the same plan"
        )
    drafts = [_cell(first[key], second[key], names) for key in common]
    cells = _with_changes(drafts, [_noise(first[key], second[key]) for key in common])
    pairs = _pairs(cells, [first[key] for key in common], [second[key] for key in common])
    right = [(p.before, p.after) for p in pairs]
    rescued, broken = sum(b and not a for a, b in right), sum(a and not b for a, b in right)
    tasks = len({p.task for p in pairs})
    changed = rescued + broken
    return Comparison(
        cells=tuple(cells),
        pairs=tuple(pairs),
        only_before=len(first) - len(common),
        only_after=len(second) - len(common),
        correct_before=share(sum(a for a, _ in right) / len(right), len(right), independent=tasks),
        correct_after=share(sum(b for _, b in right) / len(right), len(right), independent=tasks),
        p_correct=float(stats.binomtest(rescued, changed).pvalue) if changed else 1.0,
        speed=_speed(cells),
        rules=not_compared(first.values(), second.values()),
    )


def in_common(before: Iterable[Result], after: Iterable[Result]) -> int:
    """How many cells both have: same task, sample, machine and case."""
    return len(_by_cell(before).keys() & _by_cell(after).keys())


def _by_cell(results: Iterable[Result]) -> dict[tuple[object, ...], Result]:
    return {(r.task, r.sample, r.machine, r.case): r for r in results}


def _cell(one: Result, other: Result, names: dict[str, str]) -> Cell:
    key = f"{names[one.machine]} {one.case.key} {one.case.shape_category}" + (f" #{one.sample}" if one.sample else "")
    case = one.case
    bare = Cell(key=key, task=one.task, direction=case.direction, shape_category=case.shape_category, change="untimed")
    right = isinstance(one.outcome, Passed), isinstance(other.outcome, Passed)
    if right != (True, True):
        return replace(bare, change={(False, True): "rescued", (True, False): "broken"}.get(right, "both_wrong"))
    mine, theirs = timing_of(one), timing_of(other)
    if mine is None or theirs is None or not (mine.speedup > 0 and theirs.speedup > 0):
        return bare
    if rule_of(case.direction, one.protocol_version) != rule_of(case.direction, other.protocol_version):
        return replace(bare, change="other_rule")
    if mine.time != theirs.time:  # call times are there on both sides
        mine, theirs = (t.other if t.time == "device" and t.other is not None else t for t in (mine, theirs))
    ratio = theirs.speedup / mine.speedup
    error = math.hypot(*(log_error(t.low, t.high, unknown=math.inf) for t in (mine, theirs)))
    p = math.erfc(abs(math.log(ratio)) / (error * math.sqrt(2))) if error > 0 else float(ratio == 1)
    low, high = ratio * math.exp(-Z * error), ratio * math.exp(Z * error)
    return replace(bare, change="not_told", ratio=ratio, low=low, high=high, p=p)


def _noise(one: Result, other: Result) -> float:
    """The noise floors of both timings, as one logarithm."""
    timings = [t for t in (timing_of(one), timing_of(other)) if t is not None]
    return math.hypot(*(math.log1p(t.noise) for t in timings)) if timings else 0.0


def _with_changes(drafts: Sequence[Cell], noise: Sequence[float]) -> list[Cell]:
    """The cells, with p-values adjusted over all of them, and faster or slower where these and the noise allow it."""
    timed = [i for i, cell in enumerate(drafts) if not math.isnan(cell.p)]
    adjusted = stats.false_discovery_control([drafts[i].p for i in timed]) if timed else []
    found = list(drafts)
    for i, p in zip(timed, adjusted, strict=True):
        cell = drafts[i]
        beyond = abs(math.log(cell.ratio)) > noise[i]
        change = ("faster" if cell.ratio > 1 else "slower") if p < LEVEL and beyond else "not_told"
        found[i] = replace(cell, change=change, p=float(p))
    return found


def _pairs(cells: Sequence[Cell], before: Sequence[Result], after: Sequence[Result]) -> list[Pair]:
    groups = by_key(((r.task, r.case.direction, r.machine, r.sample), i) for i, r in enumerate(before))
    found = []
    for (task, direction, _, _), members in groups.items():
        logs = [math.log(cells[i].ratio) for i in members if not math.isnan(cells[i].ratio)]
        found.append(
            Pair(
                task=task,
                direction=direction,
                before=all_right([before[i] for i in members]),
                after=all_right([after[i] for i in members]),
                ratio=math.exp(sum(logs) / len(logs)) if logs else math.nan,
                faster=sum(cells[i].change == "faster" for i in members),
                slower=sum(cells[i].change == "slower" for i in members),
                timed=len(logs),
            )
        )
    return found


def _speed(cells: Sequence[Cell]) -> Score:
    timed = [c for c in cells if not math.isnan(c.ratio)]
    if not timed:
        return NOTHING("no cell is right and timed in both")
    tasks = tuple(dict.fromkeys(c.task for c in timed))
    table = nested(tasks, [(c.task, c.direction, math.log(c.ratio)) for c in timed])

    def mean(draw: Draw) -> Floats:
        drawn = table.values if draw.whole else draw.cells(table)
        n = np.sum(~np.isnan(drawn), axis=-1)
        of_pairs = np.nansum(drawn, axis=-1) / np.maximum(n, 1)
        there = n > 0
        sums = np.stack([np.where(there, of_pairs, 0.0).sum(axis=-1), there.sum(axis=-1)], axis=-1)
        total, count = (draw.sums(sums) if draw.whole else sums.sum(axis=1)).T
        out: Floats = np.exp(total / count)
        return out

    *found, _ = interval(mean, len(tasks), table.values.size, never_outside=(0.0, math.inf))
    return scored(found, len(timed), few_tasks(len(tasks)))
