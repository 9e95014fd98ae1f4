"""The judge's clock: quads of commit-reveal windows, candidate and baseline over inputs of equal content.

Each pair of windows meets contents that neither worker has seen: the image is refreshed between pairs, and both workers
of a pair get the same image, so the trusted baseline's outputs are the expectation for the candidate's.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from kerneleval.devices import Device
from kerneleval.judge.timing.energy_windows import energy_in_windows
from kerneleval.judge.timing.pair import Pair
from kerneleval.judge.timing.statistics import FEW
from kerneleval.judge.timing.timed_outputs import Arbiter, Bounds, TimedCall, TimedMismatch, timed_call, verify
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout
from kerneleval.judge.windows.device_lock import device_lock, judge_count
from kerneleval.judge.windows.protocol import Runner, Window, output_views
from kerneleval.records import Evidence, Protocol, Samples, new_secret

__all__ = ["TIERS", "Effort", "TimedRun", "measure"]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a tier does."""

    window_ns: float
    """Target length of a window."""
    min_quads: int
    """Quads that every cell gets in a session."""
    max_quads: int
    """Quads after which a session ends, however far its quads scatter."""
    half_width: float
    """A session ends when the half width (log ratio) of its own interval is below this."""
    max_seconds: float
    """A session of a cell ends after this much wall time."""
    max_calls: int
    """Calls in one window at most."""
    warm_windows: int
    """Warm-up windows at most."""
    sessions: int
    """Fresh process pairs."""
    energy_s: float = 0.0
    """Windows of each side follow one another for so long, where the device counts its energy; 0: they do not."""
    patience: int = 1
    """So many times the quads and the wall time for calls of 100 us and more, whose ratio should be within 1 %."""


TIERS: dict[str, Effort] = {
    "quick": Effort(
        window_ns=1e6,
        min_quads=1,
        max_quads=1,
        half_width=0.0,
        max_seconds=1.0,
        max_calls=64,
        warm_windows=0,
        sessions=1,
    ),
    "standard": Effort(
        window_ns=8e6,
        min_quads=4,
        max_quads=16,
        half_width=0.01,
        max_seconds=1.0,
        max_calls=512,
        warm_windows=4,
        sessions=2,
        patience=4,
    ),
    "precise": Effort(
        window_ns=20e6,
        min_quads=5,
        max_quads=30,
        half_width=0.01,
        max_seconds=6.0,
        max_calls=1024,
        warm_windows=20,
        sessions=3,
        energy_s=2.0,
    ),
}

_SHORT = 0.25
"""Windows of less than this part of their proper length are measured again, longer: what one of them took may have been
the work of something else on the machine."""

_MOST_TIMES = 10
"""So many times its proper length the longer of two windows may take."""

_DISTINCT = 4
"""Calls of a window that are drawn from scratch."""

_LONG_NS = 1e5
_HOST_CALLS = 512
_HOST_QUADS = 2
_LLC_MULTIPLE = 3
_DEFER_SLACK_NS = 200_000.0
_DEFER_SLACK = 0.05
"""Collecting may take this much longer than the baseline's, or this part of the baseline's window if that is less,
before the excess is charged to the candidate."""


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """Raw samples of one cell and session, with what the checks need."""

    samples: Samples
    """Raw samples."""
    excess_collect_ns: float
    """Collecting time beyond the baseline's, a call; it is part of the candidate's time."""
    mutated: bool
    """Whether the candidate changed its inputs in the window that was checked."""
    sample: TimedCall
    """One call, drawn in secret, for the oracle."""
    energy: Evidence = field(default_factory=dict)
    """See :func:`energy_in_windows`; of the first session alone."""
    memory: Evidence = field(default_factory=dict)
    """Peak memory of a window of either side, in bytes, and how many calls it has; empty: the device does not count
    it."""


@dataclass(frozen=True, kw_only=True)
class _Quads:
    kept: list[tuple[Window, Window]]
    mutated: bool
    sample: TimedCall


def effort_for(protocol: Protocol, device: Device) -> Effort:
    """The tier's effort; where waking a worker costs a large part of a millisecond, windows are longer and more."""
    effort = TIERS[protocol.tier]
    if not device.least_window_ns:
        return effort
    return replace(
        effort,
        window_ns=max(effort.window_ns, device.least_window_ns),
        max_calls=max(effort.max_calls, _HOST_CALLS),
        min_quads=max(effort.min_quads, _HOST_QUADS),
        max_quads=max(effort.max_quads, _HOST_QUADS),
        patience=1,  # there most calls take that long
    )


def _beside_others(effort: Effort) -> Effort:
    """Where other judges compile and check on the hardware, the noise of an idle machine says little: so many quads
    that their own scatter counts.
    """
    least = max(effort.min_quads, FEW)
    return replace(effort, min_quads=least, max_quads=max(effort.max_quads, least))


def _most_calls(call: CallLayout, effort: Effort, device: Device) -> int:
    room = device.memory_budget_bytes() // 2 // max(call.input_bytes + call.output_bytes, 1)
    return max(1, min(room, effort.max_calls))


def _sized(
    pair: Pair,
    call: CallLayout,
    direction: Any,
    draw: Callable[[int], list[torch.Tensor]],
    effort: Effort,
    device: Device,
    first: tuple[Window, Window] | None,
    count: int = 1,
) -> WindowBuffer:
    """An image with as many calls as fill a window of the tier's length, found by growing it from ``count`` on.

    ``first`` are windows of one call of candidate and baseline, if known: where they are short, nothing was compiled,
    loaded or tuned in them, and one call need not be measured again.

    The first few calls are drawn apart from one another; further ones begin as copies of them, and every one is changed
    at secret places before every window. Where they are few, or drawing takes no longer than the baseline's window, all
    are drawn anew instead: an operator that does more than look at each element has results that can be brought up to
    date in less time than computing takes (a sorted vector, an inverse between diagonal factors).
    """
    most = _most_calls(call, effort, device)
    drawn: list[list[torch.Tensor]] = []
    drawing_ns = math.inf
    while True:
        count = min(most, count)
        image = WindowBuffer(WindowLayout([call] * count, direction), device)
        while len(drawn) < min(count, _DISTINCT):
            began = time.perf_counter_ns()
            drawn.append(draw(new_secret()))
            device.synchronize()
            drawing_ns = min(drawing_ns, time.perf_counter_ns() - began)
        for index in range(count):
            image.fill(index, drawn[index % len(drawn)])
        for runner in pair.sides:
            runner.prepare(image.plan)
        if count > 1 or first is None or max(window.elapsed_ns for window in first) >= effort.window_ns / 2:
            first = pair.one_each(image)
        mine, theirs = first
        filled = _filled(mine, theirs)
        if 1 < count < most and device.least_window_ns and filled >= effort.window_ns / 2:
            # on a host the first window of so many touches new memory
            filled = min(filled, _filled(*pair.one_each(image)))
        if count == most or filled >= effort.window_ns / 2:
            anew = count <= _DISTINCT or count * drawing_ns <= theirs.elapsed_ns
            image.source = draw if anew else None
            return image
        count = max(count + 1, math.ceil(count * effort.window_ns / filled))


def _begin(first: tuple[Window, Window], pace_ns: float, effort: Effort) -> int:
    """Calls with which the search for a window's number begins: those that fill the baseline's at its known pace, but
    not more than the candidate, by its first call, would need ten times as long for.
    """
    if not pace_ns:
        return 1
    mine, theirs = first
    own_ns = max(mine.elapsed_ns - (theirs.elapsed_ns - theirs.event_ns), 1e3)
    return max(1, math.ceil(min(effort.window_ns / pace_ns, _MOST_TIMES * effort.window_ns / own_ns)))


def _filled(mine: Window, theirs: Window) -> float:
    """How much of a window's length its calls took (ns): on the shorter of the two sides, which must fill it too, but
    the longer one must not take ten times as long.
    """
    empty = theirs.elapsed_ns - theirs.event_ns
    shorter, longer = sorted((mine.elapsed_ns - empty, theirs.event_ns))
    return max(shorter, longer / _MOST_TIMES, 1e3)


def measure(
    candidate: Runner,
    baseline: Runner,
    call: CallLayout,
    direction: Any,
    draw: Callable[[int], list[torch.Tensor]],
    protocol: Protocol,
    device: Device,
    *,
    relative_rms: float,
    worst: float,
    scales: Sequence[float] = (),
    session: int,
    timeout_s: float,
    arbiter: Arbiter,
    pace_ns: float = 0.0,
    energy: bool = False,
) -> TimedRun:
    """Time one cell in one session.

    Args:
        candidate: runner of the candidate's worker, loaded.
        baseline: runner of the trusted baseline's worker, loaded.
        call: form of one call.
        direction: ``forward`` or ``backward``.
        draw: seed -> the tensors of one call, in the order of ``call.slots``.
        protocol: names the tier.
        device: the device.
        relative_rms: bound on ||candidate - baseline|| / ||baseline|| of each output of a call.
        worst: bound on max |candidate - baseline| / rms(baseline) of each output of a call.
        scales: least rms by which each output's error is divided (a few numbers may be near zero by chance); empty: 0.
        session: index of this process pair.
        timeout_s: limit of one window.
        arbiter: raises TimedMismatch if the oracle says that a call is wrong. It is asked about calls beyond the
            bounds: a few numbers may be ill-conditioned, and then the baseline may be as far off as the candidate.
        pace_ns: what a call of the baseline took in an earlier session, from which the search for the number of calls
            begins; 0: not known.
        energy: whether the energy of a call is told, in the tiers that tell it, where the device counts it.

    Raises:
        TimedMismatch: a timed output was wrong.
        WorkerError, WorkerFailure: as in :meth:`Runner.window`.
    """
    effort = effort_for(protocol, device)
    bounds = Bounds(relative_rms=relative_rms, worst=worst, scales=tuple(scales))
    generator = torch.Generator(device=device.judge_device)
    generator.manual_seed(new_secret())

    pair = Pair(
        candidate=candidate,
        baseline=baseline,
        candidate_first=session % 2 == 0,
        generator=generator,
        timeout_s=timeout_s,
    )
    alone = WindowBuffer(WindowLayout([call], direction), device)
    alone.fill(0, draw(new_secret()))
    first = pair.first_calls(alone)  # they may compile for minutes, and nobody else need wait for that
    held = [_outputs_of(first[0], alone.plan, 0)]
    most = _most_calls(call, effort, device)
    with device_lock(device.hardware()) as offer:
        if judge_count(device.hardware()) > 1:
            effort = _beside_others(effort)
        image = _sized(pair, call, direction, draw, effort, device, first, _begin(first, pace_ns, effort))
        del alone, first
        while isinstance(found := _in_quads(pair, image, effort, bounds, arbiter, held, most, offer), int):
            offer()
            image = _sized(pair, call, direction, draw, effort, device, None, found)
        if not candidate.unchanged(held, timeout_s):
            text = "an output that was collected changed when the candidate was called again: outputs must be new"
            raise TimedMismatch(f"{text} tensors", {}, reason="output_reused")
        samples, excess_ns = _timed(found.kept, call, len(image.plan.calls), session, device)
        joules: Evidence = {}
        if energy and session == 0 and effort.energy_s:
            joules = energy_in_windows(pair, image, samples, effort.energy_s, device, (bounds, arbiter))
    return TimedRun(
        samples=samples,
        excess_collect_ns=excess_ns,
        mutated=found.mutated,
        sample=found.sample,
        energy=joules,
        memory=_memory(found.kept, len(image.plan.calls)),
    )


def _memory(kept: Sequence[tuple[Window, Window]], calls: int) -> Evidence:
    sides = zip(*((candidate.peak_bytes, baseline.peak_bytes) for candidate, baseline in kept), strict=True)
    counted = [[peak for peak in side if peak is not None] for side in sides]
    if not all(counted):
        return {}
    return {"candidate_bytes": max(counted[0]), "baseline_bytes": max(counted[1]), "calls": calls}


def _in_quads(
    pair: Pair,
    image: WindowBuffer,
    effort: Effort,
    bounds: Bounds,
    arbiter: Arbiter,
    held: list[list[torch.Tensor]],
    most: int,
    offer: Callable[[], float],
) -> _Quads | int:
    """Quads over one image, as many as the tier asks for; or, where the first one's windows are far too short and
    could have more calls, how many fill one.

    Args:
        pair: the workers.
        image: as many calls as seem to fill a window.
        effort: the tier's.
        bounds: see :func:`verify`.
        arbiter: see :func:`verify`.
        held: outputs that the candidate's worker holds; a secret call's follow.
        most: calls in a window at most.
        offer: lets others measure between two pairs of windows, if this has taken long; gives the seconds.
    """
    count = len(image.plan.calls)
    pair.warm(image, effort.warm_windows, effort.max_seconds, offer)
    pairs = 2 * effort.min_quads
    kept_at, kept_call = secrets.randbelow(pairs - 1), secrets.randbelow(count)
    looked, sampled, cut_at = secrets.randbelow(pairs), secrets.randbelow(pairs), secrets.randbelow(pairs + 1)
    mutated, sample = False, None
    started, patience = time.monotonic(), 1
    quads: list[float] = []
    kept: list[tuple[Window, Window]] = []
    while len(quads) < patience * effort.max_quads:
        candidate_first = bool(secrets.randbits(1))
        ratios = []
        for half in range(2):
            started += offer()
            if len(kept) == cut_at:
                pair.cut(image, bounds, arbiter)
            image.refresh(pair.generator)
            order = candidate_first if half == 0 else not candidate_first
            look = len(kept) == looked
            keep = kept_call if len(kept) == kept_at else -1
            mine, theirs = pair.both(image, candidate_first=order, look=look, keep=keep)
            mutated = mutated or mine.mutated
            verify((mine, theirs), image, bounds, arbiter)
            if len(kept) == sampled:
                sample = _sample(mine, image)
            if keep >= 0:
                held.append(_outputs_of(mine, image.plan, keep))
            kept.append((_without_outputs(mine), _without_outputs(theirs)))
            ratios.append(math.log(theirs.elapsed_ns / mine.elapsed_ns))
        quads.append(sum(ratios) / 2)
        if len(quads) == 1 and (more := _more_calls(kept, count, most, effort)):
            return more
        if len(quads) >= effort.min_quads:
            if statistics.median(theirs.event_ns for _, theirs in kept) >= count * _LONG_NS:
                patience = effort.patience
            if time.monotonic() > started + patience * effort.max_seconds:
                break
            spread = float(np.std(quads, ddof=1)) if len(quads) > 1 else math.inf
            if 2.0 * spread / math.sqrt(len(quads)) < effort.half_width:
                break
    if cut_at == pairs or effort.sessions > 1:  # for who began to compute ahead since
        pair.cut(image, bounds, arbiter)
    assert sample is not None
    return _Quads(kept=kept, mutated=mutated, sample=sample)


def _more_calls(kept: list[tuple[Window, Window]], count: int, most: int, effort: Effort) -> int:
    """How many calls fill a window, where ``count`` of them are far too few; else 0."""
    filled = min(_filled(*windows) for windows in kept)
    if count == most or filled >= _SHORT * effort.window_ns:
        return 0
    return max(count + 1, math.ceil(count * effort.window_ns / filled))


def _sample(window: Window, image: WindowBuffer) -> TimedCall:
    """One call of the window; the oracle sees it when the measurement is over."""
    return timed_call(window, image, secrets.randbelow(len(image.plan.calls)))


def _timed(
    kept: list[tuple[Window, Window]], call: CallLayout, count: int, session: int, device: Device
) -> tuple[Samples, float]:
    """Whole windows as times of one call, and what is charged of each call for collecting late (ns).

    What a window costs beyond its calls (round trip, wake-up, first touch of the device) is what the trusted baseline's
    windows took beyond their own device time; the candidate has no part in that figure. What the candidate's worker
    spends on collecting beyond the baseline's is work put off, and charged.
    """
    constants = [theirs.elapsed_ns - theirs.event_ns for _, theirs in kept]
    empty_ns = statistics.median(constants)
    spread_ns = statistics.stdev(constants)
    collect = [statistics.median(pair[side].collect_ns for pair in kept) for side in (0, 1)]
    slack_ns = min(_DEFER_SLACK_NS, _DEFER_SLACK * statistics.median(theirs.elapsed_ns for _, theirs in kept))
    excess_ns = max(0.0, collect[0] - 1.5 * collect[1] - slack_ns)
    cold = count * call.input_bytes >= _LLC_MULTIPLE * device.machine().cache_bytes

    def per_call(window_ns: float) -> float:
        # what is left of a window cannot be told from 0 below the constant's own scatter
        return max(window_ns - empty_ns, spread_ns, count) / count

    samples = Samples(
        candidate_ns=tuple(per_call(mine.elapsed_ns + excess_ns) for mine, _ in kept),
        baseline_ns=tuple(per_call(theirs.elapsed_ns) for _, theirs in kept),
        candidate_event_ns=tuple(mine.event_ns / count for mine, _ in kept),
        baseline_event_ns=tuple(theirs.event_ns / count for _, theirs in kept),
        calls=count,
        sessions=(session,) * len(kept),
        empty_ns=empty_ns,
        empty_spread_ns=spread_ns,
        cache="cold" if cold else "warm",
        unclocked_ns=statistics.median(mine.unclocked_ns for mine, _ in kept),
    )
    return samples, excess_ns / count


def merge(runs: list[TimedRun]) -> TimedRun:
    """Samples of several sessions as one; the call for the oracle is the first session's."""
    first = runs[0]
    joined = {
        name: tuple(v for run in runs for v in getattr(run.samples, name))
        for name in ("candidate_ns", "baseline_ns", "candidate_event_ns", "baseline_event_ns", "sessions")
    }
    scatter = max(run.samples.empty_spread_ns for run in runs)
    return TimedRun(
        samples=replace(first.samples, empty_spread_ns=scatter, **joined),  # type: ignore[arg-type]
        excess_collect_ns=max(run.excess_collect_ns for run in runs),
        mutated=any(run.mutated for run in runs),
        sample=first.sample,
        energy=first.energy,
        memory=first.memory,
    )


def _outputs_of(window: Window, plan: WindowLayout, call: int) -> list[torch.Tensor]:
    """The outputs of one call, without the rest of the window's."""
    return [output.clone() for output in output_views(window, plan, call)]


def _without_outputs(window: Window) -> Window:
    """The window's figures alone: the snapshots of many windows would fill the device."""
    return replace(window, outputs=window.outputs.new_empty(0))
