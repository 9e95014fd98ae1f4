"""Where a generator is slower than the baseline, and why cells failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kerneleval.records import SHAPE_CATEGORIES, Failed, Result, Score
from kerneleval.scores.common.cells import checked, primary, timing_of
from kerneleval.scores.common.intervals import in_order, share
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register


def regressed(results: Sequence[Result], setting: Setting = DEFAULT) -> list[Result]:
    """The cells of the primary device that are slower than the baseline beyond noise, the slowest first."""
    slow = [
        (t.speedup, r) for r in primary(results, setting) if (t := timing_of(r)) is not None and t.claim == "slower"
    ]
    return [r for _, r in sorted(slow, key=lambda pair: pair[0])]


@register
def regressions(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Share of the correct, timed cells of the primary device that are slower than the baseline beyond noise, by shape
    category and over all.

    Slower is what the timing claims: the interval is below 1 and the effect exceeds the noise floor. Wilson's
    interval; n is the number of timed cells; the note counts the regressions and names the worst.
    """
    timed = [r for r in primary(checked(results), setting) if timing_of(r) is not None]
    known = {r.case.shape_category for r in timed}
    table: Table = {}
    for category in [*in_order(known, SHAPE_CATEGORIES), "all"]:
        cells = [r for r in timed if category in (r.case.shape_category, "all")]
        if not cells:
            continue
        slow = regressed(cells)
        worst = timing_of(slow[0]) if slow else None
        note = f"{len(slow)} cells, worst {worst.speedup:.3g}x at {slow[0].case.key}" if worst else ""
        tasks = len({r.task for r in cells})
        table[category] = share(len(slow) / len(cells), len(cells), independent=tasks, note=note)
    return table


@register
def failures(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Share of all planned cells, on every device, that failed for that reason.

    Keys are ``STAGE/REASON``, the commonest first; n is the number of cells; the note counts the tasks. These are
    counts of what was planned, not estimates, so the interval is the value.
    """
    del setting
    failed = [
        (f"{r.outcome.stage}/{r.outcome.reason}", r.task) for r in checked(results) if isinstance(r.outcome, Failed)
    ]
    counted = Counter(key for key, _ in failed)
    table: Table = {}
    for key, count in counted.most_common():
        tasks = sorted({task for of, task in failed if of == key})
        named = ", ".join(tasks[:3]) + (f" and {len(tasks) - 3} more" if len(tasks) > 3 else "")
        value = count / len(results)
        table[key] = Score(value=value, low=value, high=value, n=count, note=named)
    return table
