"""Energy of a call, where the device counts its energy: mean power while windows run back to back, times the time.

Counters step every 1 to 100 ms, which is longer than a window. So windows of one side follow one another until the
counter has stepped often enough, and power is the energy between the first and the last step over the time between
them. Revealing and collecting take longer than the calls of many a window: those whose energy is told go through their
calls again and again before anything is collected. What is left of other work takes its part of the time: ``busy``
says how much was the calls' own. While outputs are compared nothing is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from kerneleval.devices import Device
from kerneleval.records import Evidence

__all__ = ["Check", "Look", "Spent", "Windows", "energy_of", "mean_power"]

Look = Callable[[], None]
"""Reads the counter; to be called as often as can be while a window runs."""

Check = Callable[[], None]
"""Compares the outputs of a window."""

Windows = Callable[[Look], tuple[float, int, Check | None]]
"""Runs a window of one side; how long its calls took altogether (ns), how many there were, and what is to be done
before the next one, if anything, while nothing is counted."""

_STEPS = 11
"""A counter must step so often, and once more for every time that counting began anew: a step is then a tenth of what
is counted at most."""

_LONGER = 2
"""So many times as long as usual windows follow one another where the counter steps seldom: NVML's does every 0.1 s."""

_BUSY = 0.5
"""Calls must fill so much of the time, or the figure is the pauses' rather than theirs."""

_PACE = 1.25
"""A call may take so many times as long as when it was timed, or as little: else it is something else that it does."""

_READ_S = 0.005
"""The counter is read no more often."""


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one side's windows took."""

    power_w: float | None
    """Mean power; None: the counter stepped too seldom."""
    busy: float
    """Share of the time within calls."""
    steps: int
    """How often the counter stepped."""
    call_ns: float
    """What one call took."""


def energy_of(
    device: Device,
    candidate: Windows,
    baseline: Windows,
    *,
    seconds: float,
    candidate_ns: float,
    baseline_ns: float,
) -> Evidence:
    """Energy of one call of either side, in joules, as plain data; ``why_not`` where it cannot be told.

    Args:
        device: whose counter is read; it has one.
        candidate: runs windows of the candidate.
        baseline: the same of the baseline.
        seconds: how long windows of either side follow one another; at most twice as long where the counter has not
            stepped often enough.
        candidate_ns: verified time of one call.
        baseline_ns: the same of the baseline.
    """
    found: Evidence = {}
    for side, windows, call_ns in (("candidate", candidate, candidate_ns), ("baseline", baseline, baseline_ns)):
        spent = mean_power(device.energy_mj, windows, seconds)
        if spent.power_w is None:
            text = f"the counter stepped {spent.steps} times in {_LONGER * seconds:g} s, which is too seldom"
            return {"why_not": text}
        if spent.busy < _BUSY:
            text = f"the {side}'s calls filled {spent.busy:.0%} of the time, at least {_BUSY:.0%} are needed"
            return {"why_not": text}
        if not 1 / _PACE <= spent.call_ns / call_ns <= _PACE:
            return {
                "why_not": f"a call of the {side} took {spent.call_ns / 1e3:.1f} us while energy was counted, and "
                f"{call_ns / 1e3:.1f} us when it was timed"
            }
        found |= {
            f"{side}_w": spent.power_w,
            f"{side}_j": spent.power_w * call_ns / 1e9,
            f"{side}_busy": spent.busy,
        }
    return found


def mean_power(
    counter_mj: Callable[[], float | None],
    windows: Windows,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Spent:
    """Mean power while windows follow one another; see :func:`energy_of`."""
    counted = [_Steps(counter_mj, clock)]
    within_ns, calls, spent_s = 0.0, 0, 0.0
    while True:
        began = clock()
        taken_ns, number, check = windows(counted[-1].look)
        within_ns, calls = within_ns + taken_ns, calls + number
        counted[-1].look()
        spent_s += clock() - began
        steps = sum(len(one.steps) for one in counted)
        enough = steps - len(counted) >= _STEPS - 1
        if check is not None:
            check()
        if spent_s >= (seconds if enough else _LONGER * seconds):
            break
        if check is not None:
            counted.append(_Steps(counter_mj, clock))
    pairs = sum(max(len(one.steps) - 1, 0) for one in counted)
    between_s, between_mj = (sum(part) for part in zip(*(one.between for one in counted), strict=True))
    return Spent(
        power_w=between_mj / 1e3 / between_s if pairs >= _STEPS - 1 else None,
        busy=within_ns / 1e9 / max(spent_s, 1e-9),
        steps=steps,
        call_ns=within_ns / max(calls, 1),
    )


class _Steps:
    """When the counter stepped, from now on."""

    def __init__(self, counter_mj: Callable[[], float | None], clock: Callable[[], float]) -> None:
        self._counter_mj, self._clock = counter_mj, clock
        self._read = clock()
        self._last = counter_mj()
        self.steps: list[tuple[float, float]] = []

    def look(self) -> None:
        """Read the counter, if it was not read just now."""
        if self._clock() - self._read < _READ_S:
            return
        value = self._counter_mj()
        self._read = self._clock()
        if value is not None and value != self._last:
            self.steps.append((self._read, value))
            self._last = value

    @property
    def between(self) -> tuple[float, float]:
        """(seconds, millijoules) from the first step to the last."""
        if not self.steps:
            return 0.0, 0.0
        (first_s, first_mj), (last_s, last_mj) = self.steps[0], self.steps[-1]
        return last_s - first_s, last_mj - first_mj
