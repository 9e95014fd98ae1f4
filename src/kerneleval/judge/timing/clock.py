"""The judge's clock: blocks of commit-reveal windows, candidate and baseline over inputs of equal content.

All windows of a turn, one of each worker, meet one content that none has seen: the buffer is refreshed between turns,
so the trusted baseline's outputs are the expectation for the candidate's. How
many windows there are says ``effort.py``, what the samples mean ``statistics.py``; ``timer.py`` calls this.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from kerneleval.devices import Device
from kerneleval.devices.common.call_graph import NotRecordedError
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.timing.effort import HOST_TIERS, TIERS, Effort
from kerneleval.judge.timing.energy import energy_in_windows
from kerneleval.judge.timing.pair import (
    CANDIDATE,
    Arbiter,
    BaselineSide,
    CutMismatch,
    Pair,
    TimedCall,
    TimedMismatch,
    timed_call,
    verify,
    without_outputs,
)
from kerneleval.judge.timing.statistics import FEW, MOST_DISTURBED, disturbed
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout
from kerneleval.judge.windows.locks import device_lock, judge_count
from kerneleval.judge.windows.protocol import NotAtRestError, Runner, Window, output_views
from kerneleval.records import Direction, Evidence, Protocol, Samples, new_secret
from kerneleval.worker.host import WorkerError, WorkerFailure
from kerneleval.worker.waiting import TimeLimit

_REUSED = "an output that was collected changed when the candidate was called again: outputs must be new tensors"

_SHORT = 0.25
"""Windows of less than this part of their proper length are measured again with more calls: something else on the
machine may have made the first ones look long."""

_HELD_UP = 2.5
"""Times its proper length above which a host's first window of so many calls says nothing: it touches new memory, which
takes twice as long, and something else on the machine may have held it up."""

_MOST_TIMES = 10
"""The longer of two windows may take this many times its proper length."""

_DISTINCT = 4
"""Calls of a window that are drawn from scratch."""

_MOST_FIRST = 32
"""Calls of the first window at most, where no session has told how long the candidate's take."""

_FIRST_RECORDED = 16
"""Calls of the window whose device time says how many fill one."""

_LONG_NS = 1e5
"""Calls of the baseline that take longer (ns) get a tier's patience."""

_LLC_MULTIPLE = 3
"""Inputs of a window that are so many times as large as the last-level cache make it a cold one."""

_KEPT_BY_GRAPHS = 4
"""Times the bytes of a call, where the device does not count its memory: the graphs of a window's gradients keep what
forward calls computed."""

_LATE, _LATE_NS, _MOST_LATE = 10.0, 5e5, 4
"""A window was held up if its cost is above the median by ten times the median distance from it, and by 0.5 ms. At most
one in four counts as such."""

_DEFER_SLACK_NS, _DEFER_SLACK = 200_000.0, 0.05
"""Collecting may take this many ns longer than the baseline's, or this part of the baseline's window if that is less,
before the excess is charged to the candidate."""


@dataclass(frozen=True, kw_only=True)
class TimedRun:
    """Raw samples of one cell and session, with what the checks need."""

    samples: Samples
    device: Samples | None
    """Of recorded calls; None: there are none."""
    no_device: str
    """Why there are none; empty: there are, or the device records no calls."""
    device_sample: TimedCall | None = None
    """One of the recorded calls, drawn in secret, for the oracle."""
    lost: bool = False
    """Whether the candidate's process ended while its calls were recorded, or launched so."""
    excess_collect_ns: float
    """Collecting time beyond the baseline's, a call; it is part of the candidate's time."""
    mutated: str
    """What the candidate changed of its inputs in the window that was checked; empty: nothing."""
    sample: TimedCall
    """One call, drawn in secret, for the oracle."""
    energy: Evidence = field(default_factory=dict)
    """See :func:`energy_in_windows`; of the first session alone."""
    memory: Evidence = field(default_factory=dict)
    """Peak memory of a window of either side, in bytes, and how many calls it has; empty: the device does not count
    it."""


@dataclass(frozen=True, kw_only=True)
class TimedCell:
    """What is called in timed windows, and how its outputs are checked."""

    call: CallLayout
    direction: Direction
    draw: Callable[[int], list[torch.Tensor]]
    """seed -> the tensors of one call, in the order of ``call.slots``."""
    bounds: TimedBounds
    arbiter: Arbiter
    """Raises TimedMismatch if the oracle says that a call is wrong. It is asked about calls beyond the bounds: a few
    numbers may be ill-conditioned, and then the baseline may be as far off as the candidate."""
    usual: Callable[[float], float] = lambda call_ns: 0.0
    """ns of a call -> how far blocks of such calls scatter here; see :func:`disturbed`."""
    pace_ns: float = 0.0
    """What a call of the baseline took in an earlier session, from which the search for the number of calls begins; 0:
    not known."""
    own_pace_ns: float = 0.0
    """The same of the candidate."""
    slowest_ns: float = 0.0
    """What the candidate's slowest call took when it was judged."""
    recorded_pace_ns: float = 0.0
    """The same of a recorded call."""
    gradient_alone: bool = False
    """Whether the candidate has an entry point for gradients: then the baseline's forward calls are made before the
    clock starts. Else forward calls are in both times."""
    anew: bool = False
    """Whether every call is drawn anew before every window, because arguments follow from one another."""
    rests: bool = False
    """Whether windows of the baseline wait until the device is at rest, where no other judge uses it."""
    energy: bool = False
    """Whether the energy of a call is measured, in the tiers that do, where the device counts it; never of a gradient
    alone, whose graph cannot be gone through again and again."""


@dataclass(frozen=True, kw_only=True)
class _Chosen:
    """On which contents, by number and drawn in secret, windows are checked for more than their outputs."""

    mutation: int
    """That on which the candidate must not change its inputs."""
    sample: int
    """That of which the oracle sees a call."""
    kept: int
    """That of which the worker keeps the outputs of ``kept_call``."""
    kept_call: int
    cut: int
    """That before which a cut window comes for certain."""

    @classmethod
    def drawn(cls, contents: int, calls: int, first_cut: int) -> _Chosen:
        """Of so many contents of so many calls. ``first_cut`` at least come before the cut window, and one after it."""
        return cls(
            mutation=secrets.randbelow(contents),
            sample=secrets.randbelow(contents),
            kept=secrets.randbelow(contents - 1),
            kept_call=secrets.randbelow(calls),
            cut=first_cut + secrets.randbelow(contents - first_cut),
        )


@dataclass(kw_only=True)
class _Blocks:
    held: list[list[torch.Tensor]]
    """Outputs that the candidate's worker keeps, as they were collected."""
    windows: list[tuple[Window, Window]] = field(default_factory=list)
    """(candidate's, baseline's), without their outputs. In a block of two processes of the baseline the candidate's
    window stands beside either one's."""
    processes: list[int] = field(default_factory=list)
    """Which of the baseline's each was of, where there are two."""
    contents: int = 0
    """How many contents windows were timed on."""
    mutated: str = ""
    sample: TimedCall | None = None


def _most_calls(cell: TimedCell, effort: Effort, device: Device, peak_bytes: float = 0.0) -> int:
    """Calls for which a window has room; ``peak_bytes``: what one call of the baseline held, if known."""
    of_call: float = cell.call.nbytes
    if cell.gradient_alone:
        of_call = max(_KEPT_BY_GRAPHS * of_call, peak_bytes)
    return max(1, min(int(device.memory_budget_bytes() // 2 // max(of_call, 1)), effort.max_calls))


class _Drawn:
    """The first few calls of a cell, drawn from scratch. Further calls of a window begin as copies of those, and every
    one is changed at secret places before every window.
    """

    def __init__(self, cell: TimedCell, device: Device) -> None:
        self._cell, self._device = cell, device
        self._calls: list[list[torch.Tensor]] = []
        self._took_ns = math.inf

    def buffer(self, count: int) -> WindowBuffer:
        """One of so many calls."""
        buffer = WindowBuffer(WindowLayout([self._cell.call] * count, self._cell.direction), self._device)
        while len(self._calls) < min(count, _DISTINCT):
            began = time.perf_counter_ns()
            self._calls.append(self._cell.draw(new_secret()))
            self._device.synchronize()
            self._took_ns = min(self._took_ns, time.perf_counter_ns() - began)
        buffer.fill_all(self._calls)
        return buffer

    def settle_source(self, buffer: WindowBuffer, baseline: Window) -> None:
        """Have all calls drawn anew before every window where they are few, or where drawing takes no longer than the
        baseline's window: some results can be brought up to date in less time than computing takes (a sorted vector, an
        inverse between diagonal factors).
        """
        count = len(buffer.layout.calls)
        anew = self._cell.anew or count <= _DISTINCT or count * self._took_ns <= baseline.elapsed_ns
        buffer.source = self._cell.draw if anew else None


def _sized(
    pair: Pair,
    drawn: _Drawn,
    effort: Effort,
    device: Device,
    first: tuple[Window, Window] | None,
    count: int,
    most: int,
) -> WindowBuffer:
    """A buffer with as many calls as fill a window of the tier's length, ``most`` of them at most, found by growing it
    from ``count`` on. ``first`` are windows of one call of either side, if known: where they are short, nothing was
    compiled, loaded or tuned in them.
    """
    while True:
        count = min(most, count)
        buffer = drawn.buffer(count)
        pair.prepare(buffer.layout)
        if pair.recorded and (refused := pair.record()):
            raise NotRecordedError(refused)
        known = count == 1 and first is not None and max(side.elapsed_ns for side in first) < effort.window_ns
        if first is None or not known:
            first = pair.one_each(buffer)
        filled = _filled(*first)
        if 1 < count < most and device.slow_wakes and filled > _HELD_UP * effort.window_ns:
            filled = min(filled, _filled(*pair.one_each(buffer)))
        if count == most or (filled >= effort.window_ns / 2 and not known):
            if not known:
                pair.twins(buffer)
            drawn.settle_source(buffer, first[1])
            return buffer
        count = max(count + 1, math.ceil(count * effort.window_ns / filled))


def _first_count(cell: TimedCell, effort: Effort, device: Device, limit: TimeLimit) -> int:
    """Calls of the first window: those that fill one at the baseline's known pace; else one. There are fewer where the
    candidate would need ten windows' time for them, or where they might take half of its limit.
    """
    if not cell.pace_ns or device.slow_wakes or cell.gradient_alone:
        return 1
    most = _MOST_TIMES * effort.window_ns / cell.own_pace_ns if cell.own_pace_ns else _MOST_FIRST
    most = min(most, limit.calls_s * 1e9 / 2 / max(cell.slowest_ns, 1.0))
    return max(1, min(_most_calls(cell, effort, device), math.ceil(effort.window_ns / cell.pace_ns), int(most)))


def _suits(first: tuple[Window, Window], count: int, most: int, effort: Effort) -> bool:
    """Whether the first windows, of so many calls, had the proper length, so that nothing was compiled in them."""
    return 1 < count <= most and _short(first, effort) and (count == most or _filled(*first) >= effort.window_ns / 2)


def _short(first: tuple[Window, Window], effort: Effort) -> bool:
    return max(side.elapsed_ns for side in first) <= _MOST_TIMES * effort.window_ns


def _beside_others(effort: Effort) -> Effort:
    """The effort where other judges use the hardware: the noise of an idle machine says little then, so there are
    enough blocks for their own scatter to count.
    """
    least = max(effort.min_blocks, FEW)
    return replace(effort, min_blocks=least, max_blocks=max(effort.max_blocks, least))


def _begin(first: tuple[Window, Window], count: int, pace_ns: float, effort: Effort) -> int:
    """Calls with which the search for a window's number begins, after first windows of ``count``: those that fill the
    baseline's at its known pace, but not more than the candidate, by its first call, would need ten times as long for.
    """
    if count > 1:
        return math.ceil(count * effort.window_ns / _filled(*first)) if _short(first, effort) else 1
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
    baselines: tuple[BaselineSide, ...],
    cell: TimedCell,
    protocol: Protocol,
    device: Device,
    *,
    session: int,
    limit: TimeLimit,
) -> TimedRun:
    """Time one cell in one session.

    Args:
        baselines: one process, or two whose windows take turns.
        session: index of these processes.

    Raises:
        TimedMismatch: a timed output was wrong. Others as :meth:`Runner.window` and :meth:`Runner.aside`.
    """
    effort = (HOST_TIERS if device.slow_wakes else TIERS)[protocol.tier]
    effort = effort if device.graphs else replace(effort, outvotes=True)  # there call times are what claims are of
    pair = _pair_of(candidate, baselines, cell, device, session, limit)
    drawn, count = _Drawn(cell, device), _first_count(cell, effort, device, limit)
    buffer = drawn.buffer(count)
    first = pair.first_calls(buffer)  # they may compile for minutes: the device lock is not held
    held = [_outputs_of(first[0], buffer.layout, 0)]
    first = without_outputs(first[0]), without_outputs(first[1])
    most = _most_calls(cell, effort, device, first[1].peak_bytes or 0)
    with device_lock(device.hardware()) as offer:
        shared = judge_count(device.hardware()) > 1
        effort = _beside_others(effort) if shared else effort
        pair = replace(pair, rests=cell.rests and not shared)
        if _suits(first, count, most, effort):
            drawn.settle_source(buffer, first[1])
        else:
            del buffer  # before the next one is allocated
            begin = _begin(first, count, cell.pace_ns, effort)
            buffer = _sized(pair, drawn, effort, device, first if count == 1 else None, begin, most)
        while isinstance(found := _in_blocks(pair, buffer, cell, effort, held, most, offer), int):
            offer()
            buffer = _sized(pair, drawn, effort, device, None, found, most)
        if not candidate.unchanged(held, limit.calls_s):
            raise TimedMismatch(_REUSED, {}, reason="output_reused")
        samples, excess_ns = _timed(found, cell.call, len(buffer.layout.calls), session, device)
        joules: Evidence = {}
        if effort.energy_s and cell.energy and session == 0 and not cell.gradient_alone:
            joules = energy_in_windows(pair, buffer, samples, effort.energy_s, device, (cell.bounds, cell.arbiter))
        recorded = _recorded(replace(pair, recorded=True), cell, drawn, effort, device, offer, samples)
    run = TimedRun(
        samples=samples,
        device=None,
        no_device=recorded.why_not,
        lost=recorded.lost,
        excess_collect_ns=excess_ns,
        mutated=found.mutated,
        sample=_sampled(found),
        energy=joules,
        memory=_memory(found.windows, len(buffer.layout.calls)),
    )
    return run if recorded.blocks is None else _with_device(run, recorded, cell, session, device)


def _pair_of(
    candidate: Runner,
    baselines: tuple[BaselineSide, ...],
    cell: TimedCell,
    device: Device,
    session: int,
    limit: TimeLimit,
) -> Pair:
    return Pair(
        candidate=candidate,
        baselines=baselines,
        candidate_first=session % 2 == 0,
        generator=torch.Generator(device=device.judge_device).manual_seed(new_secret()),
        limit=limit,
        gradient_alone=cell.gradient_alone,
    )


def _sampled(blocks: _Blocks) -> TimedCall:
    assert blocks.sample is not None
    return blocks.sample


def _with_device(run: TimedRun, recorded: _Recording, cell: TimedCell, session: int, device: Device) -> TimedRun:
    blocks = recorded.blocks
    assert blocks is not None
    samples, excess_ns = _timed(blocks, cell.call, recorded.calls, session, device)
    return replace(
        run,
        device=replace(samples, launches=recorded.launches),
        device_sample=blocks.sample,
        excess_collect_ns=max(run.excess_collect_ns, excess_ns),
        mutated=run.mutated or blocks.mutated,
    )


def _memory(kept: list[tuple[Window, Window]], calls: int) -> Evidence:
    sides = zip(*((candidate.peak_bytes, baseline.peak_bytes) for candidate, baseline in kept), strict=True)
    counted = [[peak for peak in side if peak is not None] for side in sides]
    if not all(counted):
        return {}
    return {"candidate_bytes": max(counted[0]), "baseline_bytes": max(counted[1]), "calls": calls}


def _in_blocks(
    pair: Pair,
    buffer: WindowBuffer,
    cell: TimedCell,
    effort: Effort,
    held: list[list[torch.Tensor]],
    most: int,
    offer: Callable[[], float],
) -> _Blocks | int:
    """Blocks over one buffer, as many as the tier asks for; or, where the first one's windows are far too short and
    could have more calls, how many fill one.

    Args:
        buffer: as many calls as seem to fill a window.
        held: outputs that the candidate's worker holds; a secret call's follow.
        most: calls in a window at most.
        offer: lets others measure between two turns of windows, if this has taken long; gives the seconds.
    """
    count, orders = len(buffer.layout.calls), _orders(len(pair.baselines))
    pair.warm(buffer, effort.warm_windows, effort.max_seconds, offer)
    # if recorded calls are wrong in whole windows too, the recording is at fault: so a whole window comes first
    least = effort.min_blocks * (1 if len(pair.baselines) > 1 else 2)
    chosen, found = _Chosen.drawn(least, count, first_cut=int(pair.recorded)), _Blocks(held=held)
    started, patience = time.monotonic(), 1
    ratios: list[float] = []
    while len(ratios) < patience * effort.max_blocks or _again(pair, found.windows, cell, effort, count):
        parts = []
        for order in next(orders):
            started += offer()
            if found.contents or not pair.recorded:
                _split(pair, buffer, cell, effort, order, certain=found.contents == chosen.cut)
            parts += _in_turn(pair, buffer, cell, chosen, found, order)
        ratios.append(statistics.fmean(parts))
        if len(ratios) == 1 and (more := _more_calls(found.windows, count, most, effort)):
            return more
        if len(ratios) >= effort.min_blocks:
            if statistics.median(theirs.event_ns for _, theirs in found.windows) >= count * _LONG_NS:
                patience = effort.patience
            if time.monotonic() > started + patience * effort.max_seconds:
                break
            spread = float(np.std(ratios, ddof=1)) if len(ratios) > 1 else math.inf
            if 2.0 * spread / math.sqrt(len(ratios)) < effort.half_width:
                break
    # a candidate may have begun to merge calls since it saw a split window
    _split(pair, buffer, cell, effort, next(orders)[0], certain=True)
    return found


def _again(pair: Pair, kept: Sequence[tuple[Window, Window]], cell: TimedCell, effort: Effort, count: int) -> bool:
    """Whether blocks go on beyond those that the tier asks for; see :func:`disturbed`."""
    if len(kept) >= 2 * MOST_DISTURBED:
        return False
    events, clocked = np.array([[side.event_ns for side in pair] for pair in kept]), _clocked(kept)
    if not effort.outvotes and float(np.median(events[:, 1])) < count * _LONG_NS:
        return False
    calls = clocked - np.median(clocked[:, 1] - events[:, 1])
    if pair.recorded:
        return disturbed(calls, events)
    return disturbed(calls, usual=cell.usual(max(0.0, float(np.median(calls[:, 1]))) / count))


def _split(
    pair: Pair, buffer: WindowBuffer, cell: TimedCell, effort: Effort, order: tuple[int, ...], *, certain: bool
) -> None:
    """Split windows, one if ``certain`` and others by chance. How many have come says nothing of the next window: else
    a candidate could wait for the last one, which it sees by its first inputs, and merge calls from then on.
    """
    while certain or secrets.randbelow(effort.one_split_in) == 0:
        pair.cut(buffer, cell.bounds, cell.arbiter, order)
        certain = False


@dataclass(frozen=True, kw_only=True)
class _Recording:
    """What came of the windows of recorded calls."""

    blocks: _Blocks | None = None
    """None: there are none."""
    calls: int = 0
    """In each window."""
    launches: float = 0.0
    """Kernels of one call of either side, the larger number."""
    why_not: str = ""
    lost: bool = False
    """Whether the candidate's process ended."""


def _recorded(
    pair: Pair,
    cell: TimedCell,
    drawn: _Drawn,
    effort: Effort,
    device: Device,
    offer: Callable[[], float],
    of_calls: Samples,
) -> _Recording:
    """Blocks of windows of calls that were recorded before their inputs were there. A candidate that fails in them was
    right in all others: it has call time alone.

    Args:
        of_calls: of the same cell's calls that are not recorded.

    Raises:
        CutMismatch: outputs are right where all calls of a window are launched at once, and wrong where a window is cut
            in two, again and again: a call computes another one's outputs.
    """
    if not device.graphs:
        return _Recording()
    if math.isinf(cell.bounds.relative_rms):
        return _Recording(why_not="what is drawn at random would be the same at every launch")
    effort = effort.recorded
    of_call = cell.call.nbytes * (_KEPT_BY_GRAPHS if cell.gradient_alone else 1)
    most = max(of_calls.calls, min(device.memory_budget_bytes() // 4 // max(of_call, 1), effort.max_calls))
    count = min(of_calls.calls, _FIRST_RECORDED)
    if cell.recorded_pace_ns:
        slowest_ns = max(cell.recorded_pace_ns, statistics.median(of_calls.candidate_ns) / _MOST_TIMES)
        count = max(1, math.ceil(effort.window_ns / slowest_ns))
    try:
        buffer = _sized(pair, drawn, effort, device, None, count, most)
        try:
            found = _in_blocks(pair, buffer, cell, effort, [], len(buffer.layout.calls), offer)
        except CutMismatch:
            if _merges(pair, buffer, cell):
                raise
            return _Recording(why_not="launched as it was recorded, it is wrong now and then")
    except CutMismatch:
        raise
    except NotRecordedError as error:
        return _Recording(why_not=str(error))
    except TimedMismatch as error:
        return _Recording(why_not=f"launched as it was recorded, it is wrong: {error}")
    except NotAtRestError as error:
        return _Recording(why_not=str(error))
    except (WorkerError, WorkerFailure) as error:
        if isinstance(error, WorkerFailure) and error.reason == "tampering":
            raise
        why_not = f"the candidate failed while it was recorded, or launched so: {error}"
        return _Recording(why_not=why_not[:300], lost=isinstance(error, WorkerFailure))
    assert isinstance(found, _Blocks)
    return _Recording(blocks=found, calls=len(buffer.layout.calls), launches=max(pair.launches))


def _merges(pair: Pair, buffer: WindowBuffer, cell: TimedCell) -> bool:
    """Whether windows are right as long as they are whole, and wrong when they are cut. Raises TimedMismatch: a whole
    one is wrong too.
    """
    orders = _orders(len(pair.baselines))
    for _ in range(2):
        order = next(orders)[0]
        buffer.refresh(pair.generator)
        windows = pair.in_turn(buffer, order)
        verify((windows.pop(CANDIDATE), next(iter(windows.values()))), buffer, cell.bounds, cell.arbiter)
        try:
            pair.cut(buffer, cell.bounds, cell.arbiter, order)
        except CutMismatch:
            continue
        return False
    return True


def _orders(baselines: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """For each block, the order of the sides' windows over every content of its own: of two processes of the baseline
    and the candidate, each is first, second and last in three blocks, so that drift linear in time cancels in those; of
    one process, ABBA or BAAB.
    """
    random = secrets.SystemRandom()
    while True:
        sides = random.sample((CANDIDATE, *range(baselines)), 1 + baselines)
        if baselines == 1:
            yield tuple(sides), tuple(sides[::-1])
            continue
        turns = [sides[turn:] + sides[:turn] for turn in range(3)]
        for order in random.sample(turns, 3):
            yield (tuple(order),)


def _in_turn(
    pair: Pair, buffer: WindowBuffer, cell: TimedCell, chosen: _Chosen, found: _Blocks, order: tuple[int, ...]
) -> list[float]:
    """Time one window of every side in that order, on the same new content, check the candidate's outputs and note
    what the windows gave; the log ratios of the baseline's processes.
    """
    buffer.refresh(pair.generator)
    number, found.contents = found.contents, found.contents + 1
    keep = chosen.kept_call if number == chosen.kept and not pair.recorded else -1
    windows = pair.in_turn(buffer, order, look=number == chosen.mutation, keep=keep)
    mine = windows.pop(CANDIDATE)
    found.mutated = found.mutated or mine.mutated
    verify((mine, next(iter(windows.values()))), buffer, cell.bounds, cell.arbiter)
    if number == chosen.sample:  # the oracle sees it when the measurement is over
        found.sample = timed_call(mine, buffer, secrets.randbelow(len(buffer.layout.calls)))
    if keep >= 0:
        found.held.append(_outputs_of(mine, buffer.layout, keep))
    found.windows += [(without_outputs(mine), without_outputs(theirs)) for theirs in windows.values()]
    if len(windows) > 1:
        found.processes += windows
    if pair.recorded and all(window.event_ns for window in (mine, *windows.values())):
        return [math.log(theirs.event_ns / mine.event_ns) for theirs in windows.values()]
    return [math.log(theirs.elapsed_ns / mine.elapsed_ns) for theirs in windows.values()]


def _more_calls(kept: list[tuple[Window, Window]], count: int, most: int, effort: Effort) -> int:
    """How many calls fill a window, where ``count`` of them are far too few; else 0."""
    filled = min(_filled(*windows) for windows in kept)
    if count == most or filled >= _SHORT * effort.window_ns:
        return 0
    return max(count + 1, math.ceil(count * effort.window_ns / filled))


def _timed(blocks: _Blocks, call: CallLayout, count: int, session: int, device: Device) -> tuple[Samples, float]:
    """Whole windows as times of one call, and what is charged of each call for collecting late (ns). What a window
    costs beyond its calls is what the trusted baseline's windows took beyond their own device time: the candidate has
    no part in that figure.
    """
    kept = blocks.windows
    clocked, events = _clocked(kept), np.array([theirs.event_ns for _, theirs in kept])
    constants = clocked[:, 1] - events
    empty_ns, spread_ns = float(np.median(constants)), _spread(constants)
    collect = [statistics.median(pair[side].collect_ns for pair in kept) for side in (0, 1)]
    slack_ns = min(_DEFER_SLACK_NS, _DEFER_SLACK * statistics.median(theirs.elapsed_ns for _, theirs in kept))
    excess_ns = max(0.0, collect[0] - 1.5 * collect[1] - slack_ns)
    cold = count * call.input_bytes >= _LLC_MULTIPLE * device.machine().cache_bytes

    def per_call(window_ns: float) -> float:
        # what is left of a window cannot be distinguished from 0 below the constant's own scatter
        return max(window_ns - empty_ns, spread_ns, count) / count

    samples = Samples(
        candidate_ns=tuple(per_call(float(window_ns) + excess_ns) for window_ns in clocked[:, 0]),
        baseline_ns=tuple(per_call(float(window_ns)) for window_ns in clocked[:, 1]),
        candidate_event_ns=tuple((mine.event_ns + excess_ns) / count for mine, _ in kept),
        baseline_event_ns=tuple(theirs.event_ns / count for _, theirs in kept),
        calls=count,
        sessions=(session,) * len(kept),
        processes=tuple(blocks.processes),
        empty_ns=empty_ns,
        empty_spread_ns=spread_ns,
        cache="cold" if cold else "warm",
        unclocked_ns=statistics.median(mine.unclocked_ns for mine, _ in kept),
    )
    return samples, excess_ns / count


def _spread(constants: np.ndarray) -> float:
    """Standard deviation of what windows cost beyond their calls, without the few that something else on the machine
    held up: of ten windows one that is 7 ms late would hide all times below 2 ms.
    """
    beyond = np.sort(constants - np.median(constants))
    late = beyond > max(_LATE * float(np.median(np.abs(beyond))), _LATE_NS)
    kept = len(beyond) - min(int(late.sum()), len(beyond) // _MOST_LATE)
    return float(beyond[:kept].std(ddof=1))


def _clocked(kept: Sequence[tuple[Window, Window]]) -> np.ndarray:
    """What windows took by the judge's clock (ns), which runs until the inputs are destroyed: a device that is at work
    still makes that take longer. Shape (windows, 2): the candidate's, the baseline's.
    """
    elapsed, destroyed = (
        np.array([[getattr(window, of) for window in pair] for pair in kept]) for of in ("elapsed_ns", "destroy_ns")
    )
    for side in range(2):  # 0: not known of that window
        known = destroyed[:, side][destroyed[:, side] > 0]
        if len(known):
            destroyed[:, side] = np.where(destroyed[:, side] > 0, destroyed[:, side], np.median(known))
    return np.asarray(elapsed + destroyed)


def merge(runs: list[TimedRun]) -> TimedRun:
    """Samples of several sessions as one; the call for the oracle is the first session's."""
    first = runs[0]
    recorded = [run.device for run in runs if run.device is not None]
    return TimedRun(
        samples=_joined([run.samples for run in runs]),
        device=_joined(recorded) if len(recorded) == len(runs) else None,
        no_device=next((run.no_device for run in runs if run.no_device), ""),
        excess_collect_ns=max(run.excess_collect_ns for run in runs),
        mutated=next((run.mutated for run in runs if run.mutated), ""),
        sample=first.sample,
        energy=first.energy,
        memory=first.memory,
    )


def _joined(samples: Sequence[Samples]) -> Samples:
    joined = {
        name: tuple(v for one in samples for v in getattr(one, name))
        for name in ("candidate_ns", "baseline_ns", "candidate_event_ns", "baseline_event_ns", "sessions", "processes")
    }
    scatter = max(one.empty_spread_ns for one in samples)
    calls = min(one.calls for one in samples)
    return replace(samples[0], calls=calls, empty_spread_ns=scatter, **joined)  # type: ignore[arg-type]


def _outputs_of(window: Window, layout: WindowLayout, call: int) -> list[torch.Tensor]:
    return [output.clone() for output in output_views(window, layout, call)]
