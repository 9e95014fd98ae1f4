"""How far a kernel's speedup depends on the machine.

The same source, at the same cells, on every machine where it was timed. KernelBench-X reports speedups that differ by
up to 21 times between machines.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy import stats

from kerneleval.analysis.rubric import uncertainty
from kerneleval.records import Case, Result, Score, Timing
from kerneleval.scores.common.cells import device_names, timing_of
from kerneleval.scores.common.intervals import NOTHING, median_over_cells, nested, scored
from kerneleval.scores.common.speeds import few_tasks

_Key = TypeVar("_Key")

FEWEST_KERNELS = 3
"""Two kernels are ranked alike or not: no agreement differs from chance."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One source for one task, on the machines where it was timed."""

    task: str
    candidate: str
    generators: tuple[str, ...]
    speedups: Mapping[str, float]
    """Machine -> geometric mean of its speedups over the common cells."""
    cells: int
    """Cells that are right and timed on every one of these machines."""
    left_out: int
    """Cells that are right and timed on some of them alone."""
    cv: float
    """Coefficient of variation of the speedup over machines (n - 1); NaN: fewer than two machines."""
    ratio: Score
    """Speedup on the best machine over that on the worst. Interval from those of the timings; the choice of the two
    extremes is not in it. n is the number of common cells."""
    best: str = ""
    worst: str = ""
    beyond_noise: bool = False
    """Whether the interval of the ratio excludes 1 and the ratio exceeds both machines' noise floors."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """One generator at one task over machines, whatever source it gave for each of them."""

    generator: str
    task: str
    speedups: Mapping[str, float]
    """Machine -> geometric mean of the speedups of its right, timed cells, all samples together."""
    cells: Mapping[str, int]
    same_cells: bool
    """Whether they are the same cells everywhere; otherwise the machines have none in common (a GPU is given larger
    shapes than a CPU), and each is measured by its own."""
    same_source: bool
    """Whether the same sources were timed everywhere."""
    variance: float
    """Sample variance (n - 1) of the speedup over machines, as KernelBench-X means cross-hardware speedup variance:
    each speedup is against the baseline of its own machine. NaN: fewer than two machines."""
    cv: float
    """Its root over the mean."""
    ratio: float
    """Highest speedup over lowest; NaN: fewer than two machines."""
    note: str = ""
    """Why there is none: the machines where nothing was right and timed."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Whether two machines rank kernels alike."""

    first: str
    second: str
    tau: float
    """Kendall's tau-b (1945, Biometrika 33:239) of the kernels' speedups; NaN: see ``note``."""
    p: float
    kernels: int
    """Kernels with a common cell."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Speedup over machines, of a whole run or several."""

    machines: Mapping[str, str]
    """Fingerprint -> name for people, by which the other fields name it."""
    cv: Score
    """Median over kernels of the coefficient of variation; hierarchical bootstrap over tasks, n is the number of
    kernels."""
    kernels: tuple[Kernel, ...]
    """Every kernel that was timed, the most variable first."""
    agreements: tuple[Agreement, ...]
    spreads: tuple[Spread, ...] = ()
    """One for each generator and task that has a timed cell, the largest variance first."""


Table = dict[str, dict[Case, Timing]]
"""Machine -> cell -> timing."""


def hardware(results: Iterable[Result]) -> Hardware:
    """Variation of every kernel's speedup over machines, and how far machines agree on the order of kernels. The
    same source made twice counts once.
    """
    cells = list(results)
    names = device_names(cells)
    tables: dict[tuple[str, str], Table] = {}
    makers: dict[tuple[str, str], dict[str, None]] = {}
    for r in cells:
        if r.candidate and (timing := timing_of(r)) is not None and timing.speedup > 0:
            key = (r.task, r.candidate)
            tables.setdefault(key, {}).setdefault(names[r.machine], {})[r.case] = timing
            makers.setdefault(key, {})[r.generator] = None
    kernels = [_kernel(*key, tuple(makers[key]), table) for key, table in tables.items()]
    pairs = itertools.combinations(names.values(), 2)
    return Hardware(
        machines=names,
        cv=_median_cv(kernels, len(names)),
        kernels=tuple(sorted(kernels, key=lambda k: (math.isnan(k.cv), -k.cv, k.task, k.candidate))),
        agreements=tuple(_agreement(first, second, tables) for first, second in pairs),
        spreads=_spreads(cells, names),
    )


def _spreads(cells: Sequence[Result], names: Mapping[str, str]) -> tuple[Spread, ...]:
    tables: dict[tuple[str, str], dict[str, dict[tuple[Case, int], Timing]]] = {}
    sources: dict[tuple[str, str], dict[str, set[str]]] = {}
    for r in cells:
        if (timing := timing_of(r)) is not None and timing.speedup > 0:
            key, machine = (r.generator, r.task), names[r.machine]
            tables.setdefault(key, {}).setdefault(machine, {})[r.case, r.sample] = timing
            sources.setdefault(key, {}).setdefault(machine, set()).add(r.candidate)
    every = tuple(dict.fromkeys(names.values()))
    found = [_spread(*key, table, sources[key], every) for key, table in tables.items()]
    return tuple(sorted(found, key=lambda s: (math.isnan(s.variance), -s.variance, s.generator, s.task)))


def _spread(
    generator: str,
    task: str,
    table: Mapping[str, Mapping[tuple[Case, int], Timing]],
    sources: Mapping[str, set[str]],
    machines: Sequence[str],
) -> Spread:
    common = _common(table.values())
    used = {machine: common or list(of) for machine, of in table.items()}
    speedups = {machine: _geometric_mean(of, used[machine]) for machine, of in table.items()}
    values, several = list(speedups.values()), len(speedups) > 1
    absent = [machine for machine in machines if machine not in table]
    return Spread(
        generator=generator,
        task=task,
        speedups=speedups,
        cells={machine: len(of) for machine, of in used.items()},
        same_cells=bool(common),
        same_source=len({frozenset(of) for of in sources.values()}) == 1,
        variance=statistics.variance(values) if several else math.nan,
        cv=_variation(values),
        ratio=max(values) / min(values) if several else math.nan,
        note=f"nothing right and timed on {', '.join(absent)}" if absent else "",
    )


def _kernel(task: str, candidate: str, generators: tuple[str, ...], table: Table) -> Kernel:
    common = _common(table.values())
    everywhere = len(set().union(*table.values()))
    speedups = {machine: _geometric_mean(of, common) for machine, of in table.items()} if common else {}
    best = max(speedups, key=speedups.__getitem__, default="")
    worst = min(speedups, key=speedups.__getitem__, default="")
    beyond = False
    if len(table) < 2:
        ratio = NOTHING(f"timed on {next(iter(table))} alone", len(common))
    elif not common:
        ratio = NOTHING(f"no cell is timed on all of {', '.join(table)}")
    else:
        ratio, beyond = _ratio(table[best], table[worst], common)
    return Kernel(
        task=task,
        candidate=candidate,
        generators=generators,
        speedups=speedups,
        cells=len(common),
        left_out=everywhere - len(common),
        cv=_variation(list(speedups.values())),
        ratio=ratio,
        best=best if len(speedups) > 1 else "",
        worst=worst if len(speedups) > 1 else "",
        beyond_noise=beyond,
    )


def _common(cells: Iterable[Mapping[_Key, Timing]]) -> list[_Key]:
    first, *others = cells
    return [case for case in first if all(case in other for other in others)]


def _geometric_mean(timings: Mapping[_Key, Timing], cases: Sequence[_Key]) -> float:
    return math.exp(statistics.fmean(math.log(timings[case].speedup) for case in cases))


def _variation(speedups: Sequence[float]) -> float:
    return statistics.stdev(speedups) / statistics.fmean(speedups) if len(speedups) > 1 else math.nan


def _ratio(best: Mapping[Case, Timing], worst: Mapping[Case, Timing], common: Sequence[Case]) -> tuple[Score, bool]:
    """Ratio of two geometric means over the same cells, and whether it is beyond noise."""
    centre = statistics.fmean(math.log(best[case].speedup / worst[case].speedup) for case in common)
    half, noise = uncertainty([[of[case] for case in common] for of in (best, worst)])
    note = "timings without an interval" if math.isnan(half) else ""
    low, high = math.exp(centre - half), math.exp(centre + half)
    score = Score(value=math.exp(centre), low=low, high=high, n=len(common), note=note)
    return score, centre > half and centre > noise


def _median_cv(kernels: Sequence[Kernel], machines: int) -> Score:
    scattered = [kernel for kernel in kernels if not math.isnan(kernel.cv)]
    if machines < 2:
        return NOTHING("one machine says nothing of others" if machines else "no results")
    if not scattered:
        return NOTHING("no kernel has a cell that is right and timed on two machines")
    tasks = tuple(dict.fromkeys(kernel.task for kernel in scattered))
    table = nested(tasks, [(kernel.task, 0, kernel.cv) for kernel in scattered])
    return scored(median_over_cells(table, never_outside=(0.0, math.inf)), len(scattered), few_tasks(len(tasks)))


def _agreement(first: str, second: str, tables: Mapping[tuple[str, str], Table]) -> Agreement:
    pairs = []
    for table in tables.values():
        if first in table and second in table and (common := _common([table[first], table[second]])):
            pairs.append([_geometric_mean(table[machine], common) for machine in (first, second)])
    tau, p, note = math.nan, math.nan, ""
    if len(pairs) < FEWEST_KERNELS:
        note = f"{len(pairs)} kernels in common; {FEWEST_KERNELS} are needed"
    else:
        one, other = np.array(pairs).T
        if np.ptp(one) == 0 or np.ptp(other) == 0:
            note = "every kernel is as fast as every other on one of them"
        else:
            found = stats.kendalltau(one, other)
            tau, p = float(found.statistic), float(found.pvalue)
    return Agreement(first=first, second=second, tau=tau, p=p, kernels=len(pairs), note=note)
