"""Energy of a call, where the device counts its energy: mean power while windows run back to back, times the time.

Counters step every 1 to 100 ms, which is longer than a window. So windows of one side follow one another until the
counter has stepped often enough, and power is the energy between the first and the last step over the time between
them. Revealing inputs lies between the windows, and takes its part of that time: ``busy`` says how much was the
windows' own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kerneleval.devices import Device
from kerneleval.records import Evidence

__all__ = ["energy_of", "mean_power_w"]

_STEPS = 11
"""A counter must step so often: its step is then a tenth of what is said at most."""

_LONGER = 2
"""So many times as long as usual windows follow one another where the counter steps seldom: NVML's does every 0.1 s."""

_BUSY = 0.5
"""Windows must fill so much of the time, or the figure is the pauses' rather than theirs."""


def energy_of(
    device: Device,
    candidate: Callable[[], float],
    baseline: Callable[[], float],
    *,
    seconds: float,
    candidate_ns: float,
    baseline_ns: float,
) -> Evidence:
    """Energy of one call of either side, in joules, as plain data; empty: the device counts no energy.

    Args:
        device: its :meth:`Device.conditions` have ``energy_mj``, or it counts none.
        candidate: runs a window of the candidate; how long it took (ns).
        baseline: the same of the baseline.
        seconds: how long windows of either side follow one another; at most twice as long where the counter has not
            stepped often enough.
        candidate_ns: verified time of one call.
        baseline_ns: the same of the baseline.
    """
    if _counter_mj(device) is None:
        return {}
    found: Evidence = {}
    for side, window, call_ns in (("candidate", candidate, candidate_ns), ("baseline", baseline, baseline_ns)):
        power_w, busy, steps = mean_power_w(lambda: _counter_mj(device), window, seconds)
        if power_w is None:
            text = f"the counter stepped {steps} times in {_LONGER * seconds:g} s, at least {_STEPS} are needed"
            return {"why_not": text}
        if busy < _BUSY:
            return {"why_not": f"the {side}'s windows filled {busy:.0%} of the time, at least {_BUSY:.0%} are needed"}
        found |= {f"{side}_w": power_w, f"{side}_j": power_w * call_ns / 1e9, f"{side}_busy": busy}
    return found


def _counter_mj(device: Device) -> float | None:
    value = device.conditions().get("energy_mj")
    return None if value is None else float(value)


def mean_power_w(
    counter_mj: Callable[[], float | None],
    window: Callable[[], float],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float | None, float, int]:
    """(mean power in watts, None: the counter stepped too seldom; share of the time within windows; steps)."""
    steps: list[tuple[float, float]] = []
    began, last, within_ns = clock(), counter_mj(), 0.0
    while True:
        within_ns += window()
        now, value = clock(), counter_mj()
        if value is not None and value != last:
            steps.append((now, value))
            last = value
        if now - began >= (seconds if len(steps) >= _STEPS else _LONGER * seconds):
            break
    busy = within_ns / 1e9 / max(now - began, 1e-9)
    if len(steps) < _STEPS:
        return None, busy, len(steps)
    (first_s, first_mj), (last_s, last_mj) = steps[0], steps[-1]
    return (last_mj - first_mj) / 1e3 / (last_s - first_s), busy, len(steps)
