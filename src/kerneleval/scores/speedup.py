"""The speedup of every timed cell."""

from __future__ import annotations

from collections.abc import Sequence

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import checked, device_names, timing_of
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register


@register
def speedup(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Baseline time over candidate time of each correct, timed cell, same device and protocol, with the 95 % interval
    of the timing.

    Keys are the cells (``DEVICE CASE``, with ``#SAMPLE`` for samples after the first); n is the number of window pairs.
    """
    del setting
    names = device_names(checked(results))
    table: Table = {}
    for r in results:
        if (timing := timing_of(r)) is not None:
            key = f"{names[r.machine]} {r.case.key} {r.case.shape_category}" + (f" #{r.sample}" if r.sample else "")
            table[key] = Score(
                value=timing.speedup,
                low=timing.low,
                high=timing.high,
                n=len(timing.samples.candidate_ns),
                note=timing.claim,
            )
    return table
