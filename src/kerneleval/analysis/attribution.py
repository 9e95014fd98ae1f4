"""What correctness follows: the category of the operator, or the method (generator) that made the kernel.

Logistic models of "this pair is right" on the one, on the other and on both, each against the model that knows neither.
KernelBench-X reports so that category explains about three times as much as method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerneleval.analysis.logistic import LikelihoodRatio, Model, logistic, null, ratio_test, saturated
from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import by_generator, checked, pairs, primary
from kerneleval.scores.common.intervals import NOTHING, share
from kerneleval.scores.common.registry import DEFAULT, Setting

PERMUTATIONS = 2000
"""Rearrangements behind a permutation p-value, which is therefore never below 1 / 2001."""

SEED = 20240607
"""Fixed, so that the same results always give the same p-value."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The three models of one run, and what each factor adds to the other."""

    taxonomy: str
    """What categories these are: ``category``, ``group``, or the name of the function given, without ``of_``."""
    right: Score
    """Share of the pairs that are right; Wilson's interval over tasks, n is the number of pairs."""
    null_log_likelihood: float
    """Log-likelihood of the model that knows the share alone; NaN where nothing, or everything, is right."""
    category: Model
    method: Model
    both: Model
    category_beyond_method: LikelihoodRatio
    method_beyond_category: LikelihoodRatio
    ratio: float
    """Pseudo-R2 of category over that of method; NaN: one of them is NaN, or both are 0."""
    note: str = ""
    """What was left out."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One (task, generator, sample, direction) pair."""

    task: str
    category: str
    """Its category in the taxonomy asked for."""
    method: str
    sample: int
    right: bool
    """Right in every supported case, of which there is one."""


def of_category(result: Result) -> str:
    """The operator category, one of the seven."""
    return result.category


def of_group(result: Result) -> str:
    """The category in KernelBench-X's taxonomy; empty: none, and the row is left out."""
    return result.group


def rows(
    results: Iterable[Result], setting: Setting = DEFAULT, *, key: Callable[[Result], str] = of_category
) -> list[Row]:
    """The pairs of the primary machine, of all generators; those whose category (``key``) is empty are left out. A
    pair that a generator did not try is wrong.

    Raises:
        UsageError: a cell comes twice, or the setting names a device that was not evaluated.
    """
    found = []
    for method, of in by_generator(primary(list(results), setting)).items():
        for pair in pairs(checked(of), DEFAULT):
            category = key(pair.cells[0])
            row = Row(task=pair.task, category=category, method=method, sample=pair.sample, right=pair.correct)
            found += [row] if category else []
    return found


def attribute(
    results: Iterable[Result], setting: Setting = DEFAULT, *, key: Callable[[Result], str] = of_category
) -> Attribution:
    """How far category and method explain which pairs are right. Arguments and errors as in :func:`rows`."""
    cells = list(results)
    data = rows(cells, setting, key=key)
    everything = rows(cells, setting, key=lambda _: "any")
    category, method = ([getattr(row, name) for row in data] for name in ("category", "method"))
    right = [row.right for row in data]
    one = logistic({"category": category}, right, permuted=_permuted(data, "category", ("task",), ()))
    other = logistic(
        {"method": method}, right, permuted=_permuted(data, "method", ("task", "method", "sample"), ("task",))
    )
    both = logistic({"category": category, "method": method}, right)
    tasks = len({row.task for row in data})
    left_out = len(everything) - len(data)
    taxonomy = str(getattr(key, "__name__", "category of one's own")).removeprefix("of_")
    a, b = one.pseudo_r2, other.pseudo_r2
    ratio = a / b if b and (a > 0 or b > 0) else math.inf if a > 0 else math.nan
    return Attribution(
        taxonomy=taxonomy,
        right=share(sum(right) / len(right), len(right), independent=tasks) if right else NOTHING("no pair"),
        null_log_likelihood=null(right),
        category=one,
        method=other,
        both=both,
        category_beyond_method=ratio_test(both, other),
        method_beyond_category=ratio_test(both, one),
        ratio=ratio,
        note=f"{left_out} pairs of tasks without a {taxonomy} left out" if left_out else "",
    )


def _permuted(data: Sequence[Row], level: str, unit: tuple[str, ...], block: tuple[str, ...]) -> Callable[[], float]:
    """Gives the p-value of rearranging the levels among the units of each block: rows of a unit are alike, which the
    chi-squared test does not know. All are names of fields.
    """

    def p() -> float:
        sums: dict[tuple[Any, ...], tuple[int, int]] = {}
        first: dict[tuple[Any, ...], Row] = {}
        for row in data:
            key = tuple(getattr(row, name) for name in unit)
            k, n = sums.get(key, (0, 0))
            sums[key] = (k + row.right, n + 1)
            first.setdefault(key, row)
        blocks = [tuple(getattr(row, name) for name in block) for row in first.values()]
        place = {one: i for i, one in enumerate(dict.fromkeys(blocks))}
        levels = [getattr(row, level) for row in first.values()]
        return _permutation_p(np.array(list(sums.values())), levels, np.array([place[one] for one in blocks]))

    return p


def _permutation_p(sums: NDArray[np.int_], levels: Sequence[str], within: NDArray[np.int_]) -> float:
    """Share of rearrangements of the levels among units of the same block that fit at least as well as what is.

    Args:
        sums: (units, 2) rows that are right, and rows.
        levels: the level of each unit.
        within: (units,) the block of each.
    """
    names = {level: i for i, level in enumerate(dict.fromkeys(levels))}
    ids = np.array([names[level] for level in levels])
    order = np.argsort(within, kind="stable")
    ids, sums, within = ids[order], sums[order], within[order]
    generator = np.random.default_rng(SEED)

    def fit(of: NDArray[np.int_]) -> float:
        k, n = (np.bincount(of, weights=sums[:, i], minlength=len(names)) for i in (0, 1))
        return float(saturated(k, n))

    least = fit(ids) - 1e-9
    as_good = 0
    for _ in range(PERMUTATIONS):
        shuffled = np.lexsort((generator.random(len(ids)), within))
        as_good += fit(ids[shuffled]) >= least
    return (1 + as_good) / (1 + PERMUTATIONS)
