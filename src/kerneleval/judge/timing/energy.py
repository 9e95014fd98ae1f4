"""Energy of a call, where the device counts its energy: mean power while calls follow one another, times the time.

Counters step every 1 to 100 ms, which is longer than a window. So windows that measure energy go through their calls
again and again while the counter is read: power is the energy between its first and its last step over the time
between them (``docs/timing.md``). Outputs are compared like those of timed windows.
"""

from __future__ import annotations

import math
import secrets
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.timing.pair import Arbiter, BaselineSide, Pair, verify
from kerneleval.judge.windows.buffers import WindowBuffer
from kerneleval.judge.windows.protocol import CallMode, Runner, Window
from kerneleval.records import Evidence, Samples

_STEPS = 10
"""So many intervals between steps of the counter are needed: a step is then a tenth of what is counted at most."""

_LONGER = 2
"""So many times as long as usual is counted where the counter steps seldom: NVML's does every 0.1 s."""

_PATIENCE = 5
"""After so many times as long windows end, whatever was counted in them: the calls of some are over at once."""

_BUSY = 0.5
"""Calls must fill so much of the time, or the figure is the pauses' rather than theirs."""

_PACE = 1.25
"""A call may take so many times as long as when it was timed, or as little: else it is something else that it does."""

_READ_S = 0.005
"""The counter is read no more often."""


@dataclass(kw_only=True)
class Counted:
    """What was counted while one window went through its calls."""

    steps: list[tuple[float, float]] = field(default_factory=list)
    """When the counter stepped (s), and to which value (mJ)."""
    span_s: float = 0.0
    within_ns: float = 0.0
    """How much of that its calls took."""
    calls: int = 0

    @property
    def between(self) -> tuple[float, float]:
        """(seconds, millijoules) from the first step to the last."""
        if not self.steps:
            return 0.0, 0.0
        (first_s, first_mj), (last_s, last_mj) = self.steps[0], self.steps[-1]
        return last_s - first_s, last_mj - first_mj


Windows = Callable[[], Counted]
"""Runs a window of one side, and does whatever belongs to it before the next one."""


class Meter:
    """Reads the counter every few milliseconds in a thread of its own: NVML takes its time to answer."""

    def __init__(self, counter_mj: Callable[[], float | None]) -> None:
        self._counter_mj = counter_mj
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._read, name="energy", daemon=True)
        self._began_s = 0.0
        self._counted = Counted()

    def start(self) -> None:
        """Count from now on."""
        self._began_s = time.perf_counter()
        self._thread.start()

    def stop(self) -> Counted:
        """What was counted, up to now; nothing if it was never started."""
        if self._began_s and not self._ends.is_set():
            self._counted.span_s = time.perf_counter() - self._began_s
            self._ends.set()
            self._thread.join()
        return self._counted

    def _read(self) -> None:
        last = self._counter_mj()
        while not self._ends.wait(_READ_S):
            value = self._counter_mj()
            if value is not None and value != last:
                self._counted.steps.append((time.perf_counter(), value))
                last = value


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What one side's windows took."""

    power_w: float | None
    """Mean power; None: the counter stepped too seldom."""
    busy: float
    steps: int
    span_s: float
    call_ns: float


def energy_of(
    candidate: Windows, baseline: Windows, *, seconds: float, candidate_ns: float, baseline_ns: float
) -> Evidence:
    """Energy of one call of either side, in joules, as plain data; ``why_not`` where it cannot be told.

    Args:
        seconds: for how long is counted at either side; at most twice as long where the counter has not stepped often
            enough, and a window longer.
        candidate_ns: verified time of one call.
    """
    found: Evidence = {}
    for side, windows, call_ns in (("candidate", candidate, candidate_ns), ("baseline", baseline, baseline_ns)):
        spent = mean_power(windows, seconds)
        if spent.power_w is None:
            text = f"the counter stepped {spent.steps} times in {spent.span_s:.1f} s, which is too seldom"
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


def mean_power(windows: Windows, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Spent:
    """Mean power while calls follow one another; see :func:`energy_of`."""
    counted: list[Counted] = []
    ends = clock() + _PATIENCE * seconds
    while True:
        counted.append(windows())
        span_s = sum(one.span_s for one in counted)
        intervals = sum(max(len(one.steps) - 1, 0) for one in counted)
        enough = intervals >= _STEPS
        if span_s >= (seconds if enough else _LONGER * seconds) or clock() > ends:
            break
    between_s, between_mj = (sum(part) for part in zip(*(one.between for one in counted), strict=True))
    within_ns = sum(one.within_ns for one in counted)
    return Spent(
        power_w=between_mj / 1e3 / between_s if enough else None,
        busy=within_ns / 1e9 / max(span_s, 1e-9),
        steps=sum(len(one.steps) for one in counted),
        span_s=span_s,
        call_ns=within_ns / max(sum(one.calls for one in counted), 1),
    )


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
        samples: verified times, and what a round trip takes.
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
            window = pair.once(runner, buffer, mode=CallMode(rounds=rounds, again=again))
        finally:
            counted = meter.stop()
        counted.within_ns = max(last_ns - first_ns - (made - 1) * samples.empty_ns, 0.0)
        counted.calls = (made - 1) * rounds * count
        return window, counted

    def mine() -> Counted:
        window, counted = window_of(pair.candidate, candidate_ns)
        verify((window, pair.alone(pair.baseline, buffer, places=window.output_offsets)), buffer, *how)
        return counted

    def theirs() -> Counted:
        return window_of(pair.baseline, baseline_ns)[1]

    return energy_of(mine, theirs, seconds=seconds, candidate_ns=candidate_ns, baseline_ns=baseline_ns)
