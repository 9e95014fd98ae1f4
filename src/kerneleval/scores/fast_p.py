"""fast_p and the geometric mean of KernelBench: correctness and speed over tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import Attempted, attempted, checked, primary
from kerneleval.scores.common.intervals import NOTHING, mean_over_tasks, share
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
        note = "; ".join(filter(None, (where(results, setting), left)))
        n = len(tasks)
        table[f"{p:g}"] = share(value / n if n else 0.0, n, independent=n, note=note)
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
    value, low, high = (math.exp(v) for v in mean_over_tasks(logs))
    note = "" if len(logs) >= 3 else "fewer than 3 tasks: no interval"
    note = "; ".join(filter(None, (where(results, setting), f"over {len(logs)} of {len(tasks)} tasks", note)))
    return Score(value=value, low=low, high=high, n=len(logs), note=note)
