"""What is claimed from the samples of timed windows: speedup, interval, claim. See ``docs/timing.md``.

Pure functions; nothing here touches a clock: ``clock.py`` does. The noise floor comes from ``timer.py``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneleval.records import Samples, Timing
from kerneleval.records.outcomes import TOLD_APART, Claim, ClockBound, TimeKind

_LARGEST_EQUAL = 0.1
"""A machine noisier than this cannot show that two times are equal."""

_LEAST_FLOOR = 0.015
"""A/A runs over 224 cells of 28 operators on one H200 left up to 1.2 % in cells of 100 us or more."""

FEW = 4
"""From so many blocks on their median counts, and of fewer their mean."""

_FEW_SESSIONS = 3
"""From so many sessions on, their scatter may speak for itself."""

MOST_DISTURBED = 10
"""Blocks at most, where those that the tier asks for seem to have been disturbed."""

_MOST_BY_CLOCK = 5
"""The same where it is the judge's clock that says so."""

_CLOCK_SCATTER_NS = 2e4
"""By how much windows of recorded calls scatter by the judge's clock on an idle H200 at most, as a rule (7 to 20 us,
2026-11-27)."""

_EVENT_SCATTER = 0.01
"""Blocks of recorded calls usually agree better than this (log ratio) by events: within 0.2 % on an H200, but for a few
long calls, as gradients of attention and of transposed convolutions, whose windows scatter by 2 to 3 %."""

_FIRST = 6
"""The first entries of a cell (two of each block): their scatter can decide that it gets more blocks."""

_CALL_SCATTER = 0.1
"""Blocks of other calls usually agree better than this: within 3 to 8 % on two idle virtual processors."""

KNOWN = 4
"""The machine's noise figures count as so many sessions of A/A in a verdict, unless that refutes them."""

_ENOUGH, _KNOWN_TO_FEW = 4, 3
"""So many sessions of A/A may refute the machine's noise figures. Those count less beside two or three sessions, which
cannot, and by whose number the floor of a claim shrinks."""

_REFUTED, _OWN_REFUTES = 0.05, 0.001
"""Levels of the tests by which A/A in a verdict refutes the noise figures, and a cell's own scatter refutes A/A."""

SURE: dict[TimeKind, float] = {"device": 5e-6, "call": 1e-6}
"""Levels at which "faster" and "slower" are said: of ten thousand equal cells, on machines whose scatter is not normal,
none is to be called so. Of call times, which have no margin beside it, two of 130,000 were at 5e-6."""

_OWN_SURE = 0.005
"""Level at which "faster" and "slower" must hold by the scatter of the cell's own windows, too. Where the candidate
alone scatters by 5 %, its four windows are close together by chance once in 25 times, and refute nothing."""

_DISTURBED = 36.0
"""A square counts as at most so many times the usual one: one disturbed session says little of the others."""
_MEDIAN_SQUARE = 0.4549
"""Median of the square of a standard normal number."""

_AGREEMENT = 0.05
"""Device time within 5 % of the verified time agrees with it."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Noise of one duration class."""

    spread: float
    """Standard deviation of the log ratio of single blocks."""
    between: float
    """Standard deviation of session means beyond what the blocks explain (log ratio)."""
    farthest: float = 0.0
    """The most that a session mean was off (log ratio), where that is more than a normal distribution has."""

    @property
    def usual(self) -> float:
        """How far blocks of calls may scatter with no cause of their own, as a standard deviation (log ratio)."""
        return max(2 * self.spread, self.between)

    def floor(self, blocks: float, sessions: int) -> float:
        """Smallest effect (ratio minus 1) worth a claim: 3.29 standard deviations (99.9 %), the most that the mean of
        so many sessions was off, and 1.5 % at least.
        """
        variance = self.spread**2 / max(blocks, 1.0) + self.between**2 / max(sessions, 1)
        least = max(3.29 * math.sqrt(variance), self.farthest / math.sqrt(max(sessions, 1)))
        return max(math.exp(least) - 1, _LEAST_FLOOR)


_MOST_FORGED = 0.2
"""Where the judge's clock leaves more open than this, events count only if they say less than it."""

_WIDE, _SURER = 0.05, 2.0
"""From this margin on, which is one of 95 %, a claim must hold with so many times of it."""

_OF_SHORTEST = 2.0
"""Variance of the mean of the shortest quarter of some windows, in times of that of the mean of all: of normal windows
1 (two windows) to 2 (many), by simulation."""

_OF_THREE = 1.5
"""Variance of the log ratio of a block with two processes of the baseline, which has one window of each process, in
times of that of a block with one, which has two windows of either side."""

_NORMAL_QUARTILE = 0.6745


def clock_bound(samples: Samples, scatter: ClockScatter) -> ClockBound | None:
    """What the judge's clock says of the events of a cell; None: there are no events, or they say more than it bears
    out. Where they say less, nobody gained by that, and something made the clock err.

    What else the machine does makes a window longer and never shorter. So where all windows do not bear events out, the
    shortest of either side are asked: a candidate whose calls take longer than its events say has no short ones.

    Args:
        scatter: see :func:`scatter_of`.
    """
    events = np.asarray(samples.candidate_event_ns + samples.baseline_event_ns)
    if len(events) != 2 * len(samples.candidate_ns) or not (events > 0).all():
        return None
    by_clock, by_events = pair_log_ratios(samples), pair_log_ratios(samples, by_events=True)
    # a clock that errs may make a window look short: one that was shorter by events gained nothing
    times = (samples.candidate_ns, samples.candidate_event_ns), (samples.baseline_ns, samples.baseline_event_ns)
    mine, theirs = (samples.calls * max(map(statistics.median, side)) for side in times)
    of_processes = scatter.between_ns**2 * (1 / mine**2 + 1 / theirs**2 / (2 if samples.processes else 1))
    of_block = scatter.within_ns**2 * (1 / mine**2 + 0.5 / theirs**2)
    if not samples.processes:
        of_block = scatter.within_ns**2 * (0.5 / mine**2 + 0.5 / theirs**2)
    numbers = [len(blocks) for blocks in by_clock]
    of_all, of_shortest = (_of_centre(of_block, n) for n in numbers), (_OF_SHORTEST * of_block / n for n in numbers)
    events_say = _centre(by_events)
    for clocked, of_windows in ((_centre(by_clock), of_all), (_by_shortest(samples), of_shortest)):
        bound = ClockBound(
            larger=events_say - clocked,
            of_windows=math.sqrt(sum(of_windows)) / len(by_clock),
            of_processes=math.sqrt(of_processes / len(by_clock)),
        )
        if bound.larger <= 2 * bound.error:
            return bound
    return None


def _by_shortest(samples: Samples) -> float:
    """The log speedup by the judge's clock of the shortest quarter of each process's windows, two at least: the mean of
    the sessions'.
    """
    candidate, baseline, sessions = map(np.asarray, (samples.candidate_ns, samples.baseline_ns, samples.sessions))
    process = np.asarray(samples.processes or (0,) * len(sessions))
    found = []
    for session in sorted(set(samples.sessions)):
        one, other = ((sessions == session) & (process == number) for number in range(2))
        # of a block of two processes, both entries have the candidate's one window
        theirs = [_shortest(baseline[of]) for of in (one, other) if of.any()]
        found.append(float(np.log(theirs).mean() - math.log(_shortest(candidate[one]))))
    return statistics.fmean(found)


def _shortest(times: np.ndarray) -> float:
    return float(np.sort(times)[: max(2, math.ceil(len(times) / 4))].mean())


def _centre(sessions: Sequence[np.ndarray]) -> float:
    """The log speedup: the mean of the sessions'."""
    return float(np.mean([_centre_of(blocks) for blocks in sessions]))


def _centre_of(blocks: np.ndarray) -> float:
    """Their median; of few the mean."""
    return float(statistics.median(blocks.tolist()) if len(blocks) >= FEW else np.mean(blocks))


@dataclass(frozen=True, kw_only=True)
class ClockScatter:
    """How far what a window takes beyond its calls scatters, by the judge's clock: standard deviations (ns)."""

    within_ns: float
    """From window to window of one process."""
    between_ns: float = 0.0
    """From process to process beyond that."""


def scatter_of(cells: Sequence[Samples]) -> ClockScatter:
    """That of the trusted baseline's windows in all timed cells of a verdict, by robust figures: the windows of each of
    its processes in a session against one another, and against those of the other process.
    """
    within, apart, of_apart = [], [], []
    for samples in cells:
        beyond = samples.calls * (np.asarray(samples.baseline_ns) - np.asarray(samples.baseline_event_ns))
        process = np.asarray(samples.processes or (0,) * len(beyond))
        for session in sorted(set(samples.sessions)):
            here = np.asarray(samples.sessions) == session
            sides = [beyond[here & (process == one)] for one in range(2)]
            sides = [side for side in sides if len(side)]
            for side in sides:
                within.extend(np.abs(np.diff(side)))
            if len(sides) == 2:
                apart.append(np.median(sides[0]) - np.median(sides[1]))
                of_apart.append(sum(1 / len(side) for side in sides))
    if not within:
        within, apart, of_apart = apart, [], []
    found = _robust(within) ** 2 / 2
    # of a difference of two processes, what is twice as much as their windows' scatter explains is theirs, a half each:
    # in few cells that scatter looks larger or smaller by half, and all of it would count twice
    between = _robust(apart) ** 2 / 2 - found * float(np.mean(of_apart or (0,)))
    return ClockScatter(within_ns=math.sqrt(found), between_ns=math.sqrt(max(between, 0.0)))


def _robust(differences: Sequence[float]) -> float:
    """Standard deviation of numbers around 0."""
    return float(np.median(np.abs(differences))) / _NORMAL_QUARTILE if len(differences) else 0.0


def pair_log_ratios(samples: Samples, *, by_events: bool = False) -> list[np.ndarray]:
    """Log speedups of the blocks, one array a session.

    A block has two entries: of the baseline's two processes, beside the same window of the candidate's; or, where the
    baseline has one, of two window pairs measured as ABBA or BAAB.
    """
    ratios = _log_ratios(samples, by_events=by_events)
    sessions = np.asarray(samples.sessions)
    out = []
    for session in sorted(set(samples.sessions)):
        out.append(_in_pairs(ratios[sessions == session]).mean(axis=1))
    return out


def _log_ratios(samples: Samples, *, by_events: bool) -> np.ndarray:
    baseline = samples.baseline_event_ns if by_events else samples.baseline_ns
    candidate = samples.candidate_event_ns if by_events else samples.candidate_ns
    ratios: np.ndarray = np.log(np.asarray(baseline)) - np.log(np.asarray(candidate))
    return ratios


def rests_on_events(samples: Samples, kind: TimeKind, scatter: ClockScatter) -> bool:
    """Whether the interval is that of the workers' events: only of device times, where the judge's clock agrees, or
    scatters and says that the speedup is larger. A candidate that forged its events would gain nothing by those.
    """
    bound = clock_bound(samples, scatter) if kind == "device" else None
    return bound is not None and (bound.margin <= _MOST_FORGED or bound.larger <= 0)


def of_equal_code(samples: Samples, *, by_events: bool = False) -> list[np.ndarray]:
    """Log ratios of the baseline's two processes in the blocks, one array a session: A/A, in the same windows as the
    candidate's. Empty where there was one process.
    """
    times = np.log(np.asarray(samples.baseline_event_ns if by_events else samples.baseline_ns))
    if len(samples.processes) != len(times):
        return []
    signed = times * np.where(np.asarray(samples.processes) == 0, 1.0, -1.0)
    sessions = np.asarray(samples.sessions)
    return [_in_pairs(signed[sessions == session]).sum(axis=1) for session in sorted(set(samples.sessions))]


def _in_pairs(values: np.ndarray) -> np.ndarray:
    return values[: len(values) // 2 * 2].reshape(-1, 2)


@dataclass(frozen=True, kw_only=True)
class Error:
    """Of a log speedup: its variance, and that figure's degrees of freedom."""

    variance: float
    freedom: float

    def half_width(self, level: float = 0.05) -> float:
        """Half of the interval by Student's t that misses the truth with this probability."""
        return _student(1 - level / 2, self.freedom) * math.sqrt(self.variance)

    def refuted_by(self, own: Error) -> bool:
        """Whether a cell's own scatter is larger than this explains (F test)."""
        from scipy import special

        most = float(special.fdtri(own.freedom, self.freedom, 1 - _OWN_REFUTES))
        return own.variance > self.variance * most


def sure(freedom: float, kind: TimeKind) -> float:
    """How many times as wide as the 95 % interval that is on which a claim rests."""
    return _student(1 - SURE[kind] / 2, freedom) / _student(0.975, freedom)


def _student(probability: float, freedom: float) -> float:
    """Quantile of Student's t, as ``scipy.stats.t.ppf`` has it: to import that takes a second."""
    from scipy import special

    return float(special.stdtrit(freedom, probability))


def scatter_now(cells: Sequence[tuple[Samples, Noise]], *, by_events: bool = False) -> tuple[float, float]:
    """How many times the variance that the machine's noise figures say equal code has now, at least 1, and the degrees
    of freedom of that figure: by the baseline's two processes in every session of every timed cell of a verdict. The
    noise figures count as :data:`KNOWN` of them, or one less beside two or three, unless the others refute them.
    """
    squares = []
    for samples, noise in cells:
        for ratios in of_equal_code(samples, by_events=by_events):
            # the noise figures are of blocks with two windows of either side, this has one of either process
            usual = 2 * _of_centre(noise.spread**2, len(ratios)) + noise.between**2
            squares.append(_centre_of(ratios) ** 2 / max(usual, 1e-18))
    if not squares:
        return 1.0, KNOWN
    found = np.asarray(squares)
    usual = max(1.0, float(np.median(found)) / _MEDIAN_SQUARE)
    found = np.minimum(found, _DISTURBED * usual)
    if len(found) >= _ENOUGH and found.mean() > _most_by_chance(len(found)):
        return float(found.mean()), len(found)
    known = _KNOWN_TO_FEW if 1 < len(found) < _ENOUGH else KNOWN
    return max(1.0, float(known + found.sum()) / (known + len(found))), known + len(found)


def _most_by_chance(count: int) -> float:
    """Mean of so many squares of standard normal numbers that one in twenty exceeds (chi squared)."""
    from scipy import special

    return float(special.chdtri(count, _REFUTED)) / count


def _of_centre(variance: float, count: int) -> float:
    """Variance of the centre of so many blocks: of their mean, or of their median (normal numbers)."""
    return variance / count * (math.pi / 2 if count >= FEW else 1.0)


def error_of(samples: Samples, noise: Noise, times: float, freedom: float, *, by_events: bool = False) -> Error:
    """The error of the log speedup of a cell: what equal code has now, or the cell's own scatter if that is larger than
    chance has it: of sessions, of the blocks of a session, of the windows of either side.

    Args:
        times, freedom: see :func:`scatter_now`.
    """
    sessions = pair_log_ratios(samples, by_events=by_events)
    count, numbers = len(sessions), [len(blocks) for blocks in sessions]
    usual = 0.0
    for number in numbers:
        of_blocks = _of_centre(noise.spread**2, number)
        if samples.processes:
            # that of A/A is four thirds of a speedup's, in which the baseline's time is the mean of two
            usual += 0.75 * times * (2 * of_blocks + noise.between**2)
        else:
            usual += times * (of_blocks + noise.between**2)
    error = Error(variance=usual / count**2, freedom=freedom)
    for own in _own_errors(samples, sessions, by_events):
        if error.refuted_by(own):
            error = own
    return error


def _own_errors(samples: Samples, sessions: list[np.ndarray], by_events: bool) -> Iterator[Error]:
    count, numbers = len(sessions), [len(blocks) for blocks in sessions]
    if count >= _FEW_SESSIONS:
        centres = np.array([_centre_of(blocks) for blocks in sessions])
        yield Error(variance=float(centres.var(ddof=1)) / count, freedom=count - 1)
    if min(numbers) > 1 and sum(numbers) - count > 1:  # with one degree of freedom nothing could be said
        within = sum(_of_centre(float(blocks.var(ddof=1)), len(blocks)) for blocks in sessions)
        yield Error(variance=within / count**2, freedom=sum(numbers) - count)
    yield _own_error_of_windows(samples, numbers, by_events)


def _own_error_of_windows(samples: Samples, numbers: Sequence[int], by_events: bool) -> Error:
    """By how far windows of one side are apart: those of the baseline within blocks; the candidate's there too, or from
    block to block where each has one. Degrees of freedom by Satterthwaite.
    """
    own = np.log(samples.candidate_event_ns if by_events else samples.candidate_ns)
    base = np.log(samples.baseline_event_ns if by_events else samples.baseline_ns)
    parts = [_variance_within(_in_pairs(base))]
    if not samples.processes:
        parts.append(_variance_within(_in_pairs(own)))
    else:
        sessions = np.asarray(samples.sessions)
        blocks = [own[sessions == session][::2] for session in sorted(set(samples.sessions))]
        freedom = sum(len(one) - 1 for one in blocks)
        if freedom:
            squares = sum(float(((one - one.mean()) ** 2).sum()) for one in blocks)
            parts.append((2 * squares / freedom, freedom))  # its one window stands for the mean of two
        else:
            parts[0] = _OF_THREE * 2 * parts[0][0], parts[0][1]
    of_block = sum(variance for variance, _ in parts) / 2
    terms = sum(variance**2 / freedom for variance, freedom in parts)
    of_all = (2 * of_block) ** 2 / terms if terms else float(sum(of for _, of in parts))
    count = len(numbers)
    return Error(variance=sum(_of_centre(of_block, n) for n in numbers) / count**2, freedom=of_all)


def _variance_within(pairs: np.ndarray) -> tuple[float, int]:
    """Variance of a number by the differences in each pair, and its degrees of freedom."""
    return float((np.diff(pairs, axis=1) ** 2).mean()) / 2, len(pairs)


def disturbed(clock_ns: np.ndarray, event_ns: np.ndarray | None = None, usual: float = 0.0) -> bool:
    """Whether blocks are too far apart, or the judge's clock does not bear out their events: something else on the
    machine may have made one window long.

    Args:
        clock_ns, event_ns: what the calls of a window took, shape (windows, 2): the candidate's, the baseline's. Of
            recorded calls by events, of others by the clock alone.
        usual: how far blocks of others scatter on this machine (:attr:`Noise.usual`): more of them would say little.
    """
    by_clock = _blocks_of(clock_ns)
    clock_counts = len(by_clock) < _MOST_BY_CLOCK
    if event_ns is None:
        return clock_counts and len(by_clock) > 1 and bool(by_clock.std(ddof=1) > max(_CALL_SCATTER, usual))
    if not (event_ns > 0).all():
        return False
    by_events = _blocks_of(event_ns)
    # two blocks may agree by chance whose windows do not. Once blocks are apart, all that there may be are measured: to
    # go on until the last ones agree would choose windows that are alike by chance
    of_windows = np.log(event_ns[:_FIRST, 1] / event_ns[:_FIRST, 0]).std(ddof=1) / math.sqrt(2)
    of_blocks = np.abs(by_events - by_events[0]).max() / math.sqrt(2)
    if max(of_blocks, of_windows) > _EVENT_SCATTER:
        return len(by_clock) < MOST_DISTURBED
    apart_ns = abs(_centre_of(by_clock) - _centre_of(by_events)) * event_ns.min(axis=1).mean()
    return clock_counts and bool(apart_ns > _CLOCK_SCATTER_NS)


def _blocks_of(times_ns: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = np.log(np.maximum(times_ns, 1.0)).reshape(-1, 4) @ (-0.5, 0.5, -0.5, 0.5)
    return ratios


def resolution(samples: Samples) -> float:
    """Standard error (log ratio) that the scatter of the window's constant, ``empty_spread_ns``, leaves over all
    windows. Of fewer than four blocks the disagreement of pairs counts alike.
    """
    candidate, baseline = np.asarray(samples.candidate_ns), np.asarray(samples.baseline_ns)
    shortest = samples.calls * min(map(statistics.median, (samples.candidate_ns, samples.baseline_ns)))
    of_constant = samples.empty_spread_ns / max(shortest, 1.0)
    ratios = np.log(baseline) - np.log(candidate)
    of_pairs = float(ratios.std(ddof=1)) if 1 < len(ratios) < 2 * FEW else 0.0
    return max(of_constant, of_pairs) * math.sqrt((_OF_THREE if samples.processes else 1.0) / len(ratios))


def claim_of(half_width: float, surer: float, log_speedup: float, noise: float, margin: float = 0.0) -> Claim:
    """What may be said of a log speedup whose 95 % interval has this half width, on a machine with that noise floor (a
    ratio minus 1). Faster and slower are said only where the interval at :data:`SURE`, whose half width is ``surer``,
    excludes 1: a run has hundreds of cells. What could be forged, ``margin`` (log ratio), counts against every claim.
    """
    floor = math.log1p(noise)
    if abs(log_speedup) > max(surer, half_width, floor) + margin:
        return "faster" if log_speedup > 0 else "slower"
    if noise <= _LARGEST_EQUAL and abs(log_speedup) + half_width <= floor - margin:
        return "equal"
    return "inconclusive"


def timings_of(cells: Sequence[tuple[Samples, Noise]], kind: TimeKind = "call") -> list[Timing]:
    """The :class:`Timing` of every timed cell of a verdict, from its samples and its duration class's noise figures."""
    scatter = scatter_of([samples for samples, _ in cells] if kind == "device" else [])
    rest = [rests_on_events(samples, kind, scatter) for samples, _ in cells]
    # the judge's clock scatters more than events do, and counts for the cells that rest on it
    now = {
        by_events: scatter_now(
            [one for one, rests in zip(cells, rest, strict=True) if rests or not by_events], by_events=by_events
        )
        for by_events in set(rest)
    }
    return [
        _timing(samples, noise, now[by_events], kind, scatter)
        for (samples, noise), by_events in zip(cells, rest, strict=True)
    ]


def _timing(samples: Samples, noise: Noise, now: tuple[float, float], kind: TimeKind, scatter: ClockScatter) -> Timing:
    by_events = rests_on_events(samples, kind, scatter)
    sessions = pair_log_ratios(samples, by_events=by_events)
    centre, error = _centre(sessions), error_of(samples, noise, *now, by_events=by_events)
    bound = clock_bound(samples, scatter) if by_events else None
    margin = bound.margin if bound is not None else 0.0
    if not by_events:
        error = replace(error, variance=error.variance + resolution(samples) ** 2)
    half = error.half_width()
    of_windows = _own_error_of_windows(samples, list(map(len, sessions)), by_events)
    surer = max(error.half_width(SURE[kind]), of_windows.half_width(_OWN_SURE))
    floor = noise.floor(sum(map(len, sessions)) / (_OF_THREE if samples.processes else 1.0), len(sessions))
    claim = claim_of(half, surer, centre, floor, margin * (_SURER if margin > _WIDE else 1.0))
    half += margin if margin >= TOLD_APART else 0.0
    estimate, low, high = (math.exp(v) for v in (centre, centre - half, centre + half))
    return Timing(
        samples=samples,
        speedup=estimate,
        low=low,
        high=high,
        noise=floor,
        claim=claim,
        device_time="accepted" if by_events else device_time(samples),
        time=kind,
        margin=math.expm1(margin),
        clock=bound,
        freedom=error.freedom,
    )


def device_time(samples: Samples) -> str:
    """What becomes of the worker's claim of its device time, by the judge's own clock."""
    if not samples.candidate_event_ns:
        return "none"
    claimed = statistics.median(samples.candidate_event_ns)
    verified = statistics.median(samples.candidate_ns)
    if verified * (1 - _AGREEMENT) <= claimed <= verified * (1 + _AGREEMENT):
        return "accepted"
    how = "longer" if claimed > verified else "shorter"
    return f"rejected: claims {claimed / 1e3:.2f} us, {how} than the verified {verified / 1e3:.2f} us"
