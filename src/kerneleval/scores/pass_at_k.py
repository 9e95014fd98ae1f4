"""pass@k and fast_p@k: what k samples are worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from kerneleval.records import Result
from kerneleval.scores.common.cells import Attempted, checked
from kerneleval.scores.common.intervals import NOTHING, share
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import where
from kerneleval.scores.fast_p import fast, with_suite


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
    return _table(results, setting, lambda of: of.correct)


@register
def fast_p_at_k(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Probability that at least one of k samples of a task is correct and strictly faster than p times the baseline
    (p = 1 unless set), unbiased as pass@k, mean over all tasks, on the primary device.
    """
    return _table(results, setting, lambda of: fast(of, setting.fast_at))


def _table(results: Sequence[Result], setting: Setting, good: Callable[[Attempted], bool]) -> Table:
    tasks = with_suite(checked(results), setting)
    table: Table = {}
    for k in setting.ks:
        short = [task for task, samples in tasks.items() if len(samples) < k]
        if short or not tasks:
            why = f"{short[0]} and {len(short) - 1} more tasks have" if len(short) > 1 else f"{''.join(short)} has"
            table[str(k)] = NOTHING(f"{why} fewer than {k} samples" if short else "nothing planned", len(tasks))
            continue
        values = [at_least_one(len(samples), sum(map(good, samples)), k) for samples in tasks.values()]
        n = len(values)
        table[str(k)] = share(sum(values) / n, n, independent=n, note=where(results, setting))
    return table
