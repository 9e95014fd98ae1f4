"""Whether runs of the same candidates, in fresh processes, contradict one another: opposite claims of a cell, pairs of
speedups farther apart than 1.96 of their standard errors, and the cells that are farthest apart.

``python -m benchmarks.claims_agree a.db b.db ...`` reads the latest run of each store; exits 1 at opposite claims.
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from benchmarks.report import Report, parser
from kerneleval.records import Machine, Passed, Timing
from kerneleval.store import open_store

_WORST = 12


def main() -> int:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("stores", nargs="+", help="SQLite files, each with one run")
    options = made.parse_args()
    cells: dict[tuple[str, str, str], list[Timing]] = defaultdict(list)
    machine: Machine | None = None
    for path in options.stores:
        for attempt, verdict in open_store(path, create=False, write=False).verdicts():
            machine = machine or verdict.machine
            for cell in verdict.cells:
                if isinstance(cell.outcome, Passed) and cell.outcome.timing is not None:
                    cells[attempt.generator, attempt.task, cell.case.key].append(cell.outcome.timing)
    assert machine is not None, "no verdicts in these stores"
    report = Report("claims_agree", machine, options.out)
    pairs = [pair for timings in cells.values() for pair in itertools.combinations(timings, 2)]
    decisive = [pair for pair in pairs if all(one.claim in ("faster", "slower") for one in pair)]
    opposite = [key for key, timings in cells.items() if {"faster", "slower"} <= {one.claim for one in timings}]
    apart = sum(_apart(*pair) > 1.96 for pair in pairs)
    rows = sorted(cells.items(), key=lambda item: -_range(item[1]))[:_WORST]
    report.table(("candidate", "cell", "apart", "speedups and intervals"), [_row(*row) for row in rows])
    every = [one for timings in cells.values() for one in timings]
    report.say(
        f"{len(options.stores)} runs, {len(cells)} cells, "
        f"{sum(len(timings) == len(options.stores) for timings in cells.values())} of them in every run",
        f"pairs of runs of a cell: {len(pairs)}; both decisive: {len(decisive)}; "
        f"opposite: {sum(a.claim != b.claim for a, b in decisive)}; "
        f"beyond 1.96 standard errors: {apart} ({apart / max(1, len(pairs)):.1%})",
        f"claims: {dict(Counter(one.claim for one in every))}; times: {dict(Counter(one.time for one in every))}",
        f"median half widths: below 20 us {_half_width(every, 0, 2e4):.2%}, "
        f"20 us and more {_half_width(every, 2e4, math.inf):.2%}",
        *(f"OPPOSITE: {' '.join(key)}" for key in opposite),
    )
    report.data = {"runs": len(options.stores), "cells": len(cells), "pairs": len(pairs), "decisive": len(decisive)}
    report.data |= {"opposite": [list(key) for key in opposite], "beyond_1_96": apart}
    report.write()
    return 1 if opposite else 0


def _apart(one: Timing, other: Timing) -> float:
    """How many standard errors two speedups are apart."""
    errors = [math.log(timing.high / timing.low) / (2 * 1.96) for timing in (one, other)]
    return abs(math.log(one.speedup / other.speedup)) / max(math.hypot(*errors), 1e-12)


def _range(timings: Sequence[Timing]) -> float:
    speedups = [one.speedup for one in timings]
    return max(speedups) / min(speedups)


def _row(key: tuple[str, str, str], timings: Sequence[Timing]) -> tuple[Any, ...]:
    said = "; ".join(f"{one.claim} {one.speedup:.3f} [{one.low:.3f}, {one.high:.3f}]" for one in timings)
    return key[0], key[2], f"{_range(timings):.2f}", said


def _half_width(timings: Sequence[Timing], least_ns: float, most_ns: float) -> float:
    widths = [math.sqrt(one.high / one.low) - 1 for one in timings if least_ns <= one.medians_ns[1] < most_ns]
    return statistics.median(widths) if widths else math.nan


if __name__ == "__main__":
    sys.exit(main())
