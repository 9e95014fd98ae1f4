"""Windows in which the energy of candidate and baseline is counted: they go through their calls again and again.

Their outputs are compared like those of timed windows; their time counts for nothing. ``energy.py`` makes the figures.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time

import torch

from kerneleval.devices import Device
from kerneleval.judge.timing.energy import Counted, Meter, energy_of
from kerneleval.judge.timing.pair import BaselineSide, Pair
from kerneleval.judge.timing.timed_outputs import Arbiter, TimedBounds, verify
from kerneleval.judge.windows.buffers import WindowBuffer
from kerneleval.judge.windows.protocol import Passes, Runner, Window
from kerneleval.records import Evidence, Samples

__all__ = ["energy_in_windows"]

_WINDOW_NS = 1e9
"""Least time (ns) of one window, which lasts up to twice as long: NVML's counter steps every 0.1 s, and what lies
between two windows is not counted."""

_PASS_NS = 30e6
"""Time (ns) of one pass: on an H200 a large gelu's half window took 1.0 ms, the round trip between judge and worker
0.45 ms and what lies between two passes 0.6 ms, so that calls filled half of the time."""

_MOST_TIMES = 3
"""A window lasts at most this many times ``_WINDOW_NS``; the pass that is under way is finished."""


def energy_in_windows(
    pair: Pair, buffer: WindowBuffer, samples: Samples, seconds: float, device: Device, how: tuple[TimedBounds, Arbiter]
) -> Evidence:
    """Energy of one call of either side; see :func:`energy_of`. Empty: the device counts none.

    Such windows follow one another, so a candidate can tell them from timed ones: their outputs, which are those of the
    last pass, are compared, and which pass is the last is a secret.

    Args:
        pair: the two sides.
        buffer: what timed windows revealed.
        samples: verified times, and what a round trip takes.
        seconds: how long calls of either side are counted.
        device: the device.
        how: bounds and arbiter, as of timed windows.

    Raises:
        TimedMismatch, WorkerError, WorkerFailure: an output was wrong; as in :meth:`Runner.window`.
    """
    if device.energy_mj() is None:
        return {}
    count = len(buffer.layout.calls)
    candidate_ns, baseline_ns = statistics.median(samples.candidate_ns), statistics.median(samples.baseline_ns)

    def window_of(runner: Runner | BaselineSide, call_ns: float) -> tuple[Window, Counted]:
        rounds = math.ceil(_PASS_NS / (call_ns * count))
        least = max(3, math.ceil(_WINDOW_NS / (call_ns * count * rounds)))
        passes = least + secrets.randbelow(least)
        ends = time.perf_counter_ns() + _MOST_TIMES * _WINDOW_NS
        meter = Meter(device.energy_mj)
        made, first_ns, last_ns = 0, 0.0, 0.0

        def again(elapsed_ns: float) -> torch.Generator | None:
            nonlocal made, first_ns, last_ns
            made, last_ns = made + 1, elapsed_ns
            if made == 1:  # nothing that comes before the calls is counted, nor what they do but once
                first_ns = elapsed_ns
                meter.start()
            if made < passes and time.perf_counter_ns() < ends:  # slower calls would get no figure anyway
                return pair.generator
            meter.stop()
            return None

        try:
            window = pair.once(runner, buffer, passes=Passes(rounds=rounds, again=again))
        finally:
            counted = meter.stop()
        counted.within_ns = max(last_ns - first_ns - (made - 1) * samples.empty_ns, 0.0)
        counted.calls = (made - 1) * rounds * count
        return window, counted

    def mine() -> Counted:
        window, counted = window_of(pair.candidate, candidate_ns)
        verify((window, pair.alone(pair.baseline, buffer)), buffer, *how)
        return counted

    def theirs() -> Counted:
        return window_of(pair.baseline, baseline_ns)[1]

    return energy_of(mine, theirs, seconds=seconds, candidate_ns=candidate_ns, baseline_ns=baseline_ns)
