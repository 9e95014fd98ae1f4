"""Windows in which the energy of candidate and baseline is counted: they go through their calls again and again."""

from __future__ import annotations

import math
import secrets
import statistics
import time

import torch

from kerneleval.devices import Device
from kerneleval.judge.energy import Check, Look, energy_of
from kerneleval.judge.images import Image
from kerneleval.judge.pair import Pair
from kerneleval.judge.timed_outputs import Arbiter, Bounds, verify
from kerneleval.judge.windows import Runner, Window
from kerneleval.records import Evidence, Samples

__all__ = ["energy_in_windows"]

_LOOKS = 2
"""Such windows follow one another, so a candidate can tell them from timed ones: the outputs of so many are compared,
more or less.
"""

_WINDOW_NS = 250e6
"""One goes through its calls so often that it lasts so long, or up to twice as often: on an H100, revealing and
collecting a window of a large gelu took eight times as long as its 20 ms of calls."""

_MOST_TIMES = 4
"""So many times as long it lasts at most, but for the pass that is under way."""


def energy_in_windows(
    pair: Pair, image: Image, samples: Samples, seconds: float, device: Device, how: tuple[Bounds, Arbiter]
) -> Evidence:
    """Energy of one call of either side; see :func:`energy_of`. Empty: the device counts none.

    The outputs of some of the candidate's windows, chosen in secret, are compared. They are those of the last pass over
    its calls, and which pass is the last is a secret too.

    Args:
        pair: the two sides.
        image: what timed windows revealed; its first half is used, for the outputs of a pass lie beside those of the
            one before.
        samples: verified times.
        seconds: how long windows of either side follow one another.
        device: the device.
        how: bounds and arbiter, as of timed windows.

    Raises:
        TimedMismatch: an output was wrong.
        WorkerError, WorkerFailure: as in :meth:`Runner.window`.
    """
    if device.energy_mj() is None:
        return {}
    count = max(1, len(image.plan.calls) // 2)
    part = image.part(count)
    candidate_ns, baseline_ns = statistics.median(samples.candidate_ns), statistics.median(samples.baseline_ns)
    every = max(1, int(seconds * 1e9 / (1.5 * _WINDOW_NS) / _LOOKS))

    def window_of(runner: Runner, call_ns: float, look: Look) -> tuple[Window, int]:
        least = max(2, math.ceil(_WINDOW_NS / (call_ns * count)))
        made, passes = 1, least + secrets.randbelow(least)
        ends = time.perf_counter_ns() + _MOST_TIMES * _WINDOW_NS

        def again() -> torch.Generator | None:
            nonlocal made
            look()
            if made >= passes or time.perf_counter_ns() > ends:  # whoever takes longer now has no figure anyway
                return None
            made += 1
            return pair.generator

        window = pair.once(runner, part, again=again)
        return window, made * count

    def mine(look: Look) -> tuple[float, int, Check | None]:
        window, calls = window_of(pair.candidate, candidate_ns, look)
        if secrets.randbelow(every):
            return window.elapsed_ns, calls, None
        return window.elapsed_ns, calls, lambda: verify((window, pair.alone(pair.baseline, part)), part, *how)

    def theirs(look: Look) -> tuple[float, int, Check | None]:
        window, calls = window_of(pair.baseline, baseline_ns, look)
        pause = None if secrets.randbelow(every) else lambda: None  # counting begins anew as often as the candidate's
        return window.elapsed_ns, calls, pause

    return energy_of(device, mine, theirs, seconds=seconds, candidate_ns=candidate_ns, baseline_ns=baseline_ns)
