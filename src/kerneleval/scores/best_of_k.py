"""What the best of k samples is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import Attempted, checked
from kerneleval.scores.common.intervals import NOTHING, mean_over_tasks
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import where
from kerneleval.scores.fast_p import with_suite


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
    tasks = with_suite(checked(results), setting)
    table: Table = {}
    for k in setting.ks:
        short = [task for task, samples in tasks.items() if len(samples) < k]
        if short or not tasks:
            why = f"{len(short)} tasks have fewer than {k} samples" if short else "nothing planned"
            table[str(k)] = NOTHING(why, len(tasks))
            continue
        logs = [expected_best([_gain(of) for of in samples], k) for samples in tasks.values()]
        value, low, high = (math.exp(v) for v in mean_over_tasks(logs))
        note = "; ".join(filter(None, (where(results, setting), "fewer than 3 tasks: no interval" * (len(logs) < 3))))
        table[str(k)] = Score(
            value=value, low=low if math.isnan(low) else max(low, 1.0), high=high, n=len(logs), note=note
        )
    return table


def _gain(of: Attempted) -> float:
    """Logarithm of the speedup that a user has of it."""
    return max(math.log(of.speedup), 0.0) if of.correct and of.speedup > 0 else 0.0
