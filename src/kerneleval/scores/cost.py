"""What a generator's samples cost to make and to judge, and what a right or an accepted one costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kerneleval.records import PUBLISHED, Result, Score
from kerneleval.scores.common.cells import attempted, beyond_noise, by_key, checked, primary, timing_of
from kerneleval.scores.common.intervals import NOTHING, interval, scored
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import few_tasks

_KINDS: dict[str, Callable[[Result], float]] = {
    "usd": lambda r: r.origin.money_usd or math.nan,
    "tokens_in": lambda r: float(r.origin.tokens_in) or math.nan,
    "tokens_out": lambda r: float(r.origin.tokens_out) or math.nan,
    "making_s": lambda r: r.origin.seconds or math.nan,
    "judging_s": lambda r: r.judged_s if r.candidate and r.device != PUBLISHED else math.nan,
}
"""Kind of cost -> that of a sample; what an origin has as 0 was not recorded."""

_PER = ("sample", "correct", "accepted")
"""What costs are divided by; each of them is one of those before it too."""


@register
def cost(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """What one sample, one correct one and one accepted speedup cost on the primary device: money (``usd``), tokens in
    and out, seconds of making it (``making_s``) and of judging it (``judging_s``, wall time).

    Keys are ``KIND/sample``, ``KIND/correct``, ``KIND/accepted``: all costs over the number of these, those of failed
    samples included. Accepted is what is correct and, in a direction, as a whole faster than the baseline beyond noise.
    A kind that no sample has recorded is left out; samples that lack it, where others have it, are left out of it, and
    counted in the note. Tasks are drawn for the interval (bootstrap); n is the number of samples.
    """
    samples = _samples(primary(checked(results), setting))
    table: Table = {}
    for kind, cost_of in _KINDS.items():
        known = [(r.task, paid, counts) for r, counts in samples if not math.isnan(paid := cost_of(r))]
        for per in _PER if known else ():
            table[f"{kind}/{per}"] = _ratio(known, per, len(samples))
    return table


def _samples(results: Sequence[Result]) -> list[tuple[Result, tuple[str, ...]]]:
    """The first cell of each sample, and as which of :data:`_PER` it counts."""
    right = {(a.task, a.sample) for of in attempted(results).values() for a in of if a.correct}
    found = []
    for key, of in by_key(((r.task, r.sample), r) for r in results).items():
        faster = any(
            beyond_noise([t for r in of if r.case.direction == direction and (t := timing_of(r)) is not None]) > 0
            for direction in ("forward", "backward")
        )
        found.append((of[0], _PER[: 1 + (key in right) + (key in right and faster)]))
    return found


def _ratio(samples: Sequence[tuple[str, float, tuple[str, ...]]], per: str, all_samples: int) -> Score:
    """All costs over the number of samples that count, of (task, cost, as what it counts)."""
    tasks = by_key((task, (paid, per in counts)) for task, paid, counts in samples)
    sums = np.array([[float(sum(column)) for column in zip(*of, strict=True)] for of in tasks.values()])
    if not sums[:, 1].any():
        return NOTHING(f"no {per} sample")
    bounds = (0.0, math.inf)
    value, low, high, undefined = interval(lambda draw: draw.ratio(sums), len(tasks), len(tasks), never_outside=bounds)
    said = [few_tasks(len(tasks))]
    if len(samples) < all_samples:
        said.append(f"recorded of {len(samples)} of {all_samples} samples")
    if undefined > 0.025:  # the upper end of the interval is none
        high = math.inf
        said.append(f"resamples of the tasks may have no {per} sample, so that there is no upper end")
    return scored((value, low, high), len(samples), *said)
