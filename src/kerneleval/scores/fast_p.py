"""Correctness and speed over tasks: fast_p and the geometric mean of KernelBench; and what k samples are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import Attempted, attempted, checked, primary
from kerneleval.scores.common.intervals import NOTHING, geometric_mean_of, notes, share
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import where


def fast(of: Attempted, p: float) -> bool:
    """Whether the attempt is correct and strictly faster than p times the baseline; correct is enough for p = 0."""
    return of.correct and (p == 0 or of.speedup > p)


def with_suite(results: Sequence[Result], setting: Setting) -> dict[str, list[Attempted]]:
    """The samples of each task on the primary device; tasks of the suite without results have failed."""
    found = dict(attempted(primary(results, setting)))
    for task, _, _ in setting.suite:
        found.setdefault(task, [Attempted(task=task, sample=0, correct=False, speedup=math.nan)])
    return found


@register
def fast_p(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Share of all tasks that are correct in every supported case and strictly faster than p times the baseline, on the
    primary device (KernelBench).

    A task's speedup is the geometric mean over its timed forward cells (backward ones where only these are timed);
    fast_0 is the share of correct tasks. With several samples of a task their mean counts. Keys are the thresholds;
    Wilson's interval; n is the number of tasks.
    """
    tasks = with_suite(checked(results), setting)
    everything = [of for samples in tasks.values() for of in samples]
    untimed = sum(of.correct and math.isnan(of.speedup) for of in everything)
    table: Table = {}
    for p in setting.thresholds:
        if p and untimed and untimed == sum(of.correct for of in everything):
            table[f"{p:g}"] = NOTHING("no correct task was timed", len(tasks))
            continue
        value = sum(sum(fast(of, p) for of in samples) / len(samples) for samples in tasks.values())
        left = f"{untimed} correct and not timed, counted as not faster" if p and untimed else ""
        n = len(tasks)
        table[f"{p:g}"] = share(value / n if n else 0.0, n, independent=n, note=notes(where(results, setting), left))
    return table


@register
def geometric_mean(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Geometric mean of the speedups of the correct, timed tasks on the primary device.

    Wrong tasks don't count here, so read it beside fast_p. With several samples of a task, its correct ones are
    averaged (geometrically) first. BCa bootstrap over tasks, no interval under 3; n is the number of tasks.
    """
    logs = []
    tasks = attempted(primary(checked(results), setting))
    for samples in tasks.values():
        good = [math.log(of.speedup) for of in samples if not math.isnan(of.speedup)]
        if good:
            logs.append(sum(good) / len(good))
    if not logs:
        return NOTHING("no correct task was timed")
    return geometric_mean_of(logs, where(results, setting), f"over {len(logs)} of {len(tasks)} tasks")


# -- k samples --------------------------------------------------------------------------------------------------------


def at_least_one(n: int, good: int, k: int) -> float:
    """Probability that k of n samples, drawn without replacement, hold at least one of the good ones.

    1 - C(n - good, k) / C(n, k): the unbiased estimate of pass@k (Chen et al. 2021, arXiv:2107.03374).

    Raises:
        ValueError: unless 0 <= good <= n and 1 <= k <= n.
    """
    if not (0 <= good <= n and 1 <= k <= n):
        raise ValueError(f"no {k} of {n} samples with {good} good ones can be drawn")
    return 1 - math.comb(n - good, k) / math.comb(n, k)


@register
def pass_at_k(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Probability that at least one of k samples of a task is correct in every supported case, unbiased
    (1 - C(n - c, k) / C(n, k) of n samples with c correct), mean over all tasks, on the primary device.

    Keys are k; NaN where a task has fewer than k samples. A sample that was planned and never came is a wrong one.
    Wilson's interval; n is the number of tasks.
    """
    return _at_k(results, setting, lambda of: of.correct)


@register
def fast_p_at_k(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Probability that at least one of k samples of a task is correct and strictly faster than p times the baseline
    (p = 1 unless set), unbiased as pass@k, mean over all tasks, on the primary device.
    """
    return _at_k(results, setting, lambda of: fast(of, setting.fast_at))


def _at_k(results: Sequence[Result], setting: Setting, good: Callable[[Attempted], bool]) -> Table:
    def at_least_one_good(tasks: Sequence[Sequence[Attempted]], k: int) -> Score:
        values = [at_least_one(len(samples), sum(map(good, samples)), k) for samples in tasks]
        n = len(values)
        return share(sum(values) / n, n, independent=n, note=where(results, setting))

    return _by_k(results, setting, at_least_one_good)


def _by_k(
    results: Sequence[Result],
    setting: Setting,
    score: Callable[[Sequence[Sequence[Attempted]], int], Score],
    *,
    named: bool = True,
) -> Table:
    """The score of the samples of all tasks at every k; none where a task has fewer (``named``: the note names one)."""
    tasks = with_suite(checked(results), setting)
    table: Table = {}
    for k in setting.ks:
        short = [task for task, samples in tasks.items() if len(samples) < k]
        if short:
            who = f"{short[0]} and {len(short) - 1} more tasks have" if len(short) > 1 else f"{short[0]} has"
            who = who if named else f"{len(short)} tasks have"
            table[str(k)] = NOTHING(f"{who} fewer than {k} samples", len(tasks))
        else:
            table[str(k)] = score(list(tasks.values()), k) if tasks else NOTHING("nothing planned")
    return table


def expected_best(values: Sequence[float], k: int) -> float:
    """Mean of the largest of k values, over all ways to draw k of them without replacement.

    The i-th smallest of n is the largest of C(i - 1, k - 1) of the C(n, k) draws.

    Raises:
        ValueError: unless 1 <= k <= n.
    """
    n = len(values)
    if not 1 <= k <= n:
        raise ValueError(f"no {k} of {n} values can be drawn")
    ordered = sorted(values)
    return sum(v * math.comb(i, k - 1) for i, v in enumerate(ordered)) / math.comb(n, k)


@register
def best_of_k(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Speedup to expect of a user who takes the fastest right one of k samples of a task, and the baseline where that
    is faster: geometric mean over all tasks, on the primary device.

    A sample that is wrong, not timed or slower than the baseline counts as 1. Logarithms are averaged over all draws of
    k of the samples, unbiased as pass@k. Keys are k; NaN where a task has fewer than k samples. Student's t over tasks,
    no interval under 3; n is the number of tasks.
    """

    def best(tasks: Sequence[Sequence[Attempted]], k: int) -> Score:
        gains = [[max(math.log(of.speedup), 0.0) if of.speedup > 0 else 0.0 for of in samples] for samples in tasks]
        found = geometric_mean_of([expected_best(of, k) for of in gains], where(results, setting))
        return replace(found, low=max(found.low, 1.0))  # NaN stays

    return _by_k(results, setting, best, named=False)
