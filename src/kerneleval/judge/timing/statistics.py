"""How much a tier measures, and what is claimed from the samples: speedup, interval, claim. See ``docs/timing.md``.

Pure functions; nothing here touches a clock: ``clock.py`` does. The noise floor comes from ``timer.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kerneleval.devices import Device
from kerneleval.records import Protocol, Samples, Timing
from kerneleval.records.outcomes import Claim


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a tier does; the standard one where nothing else is said."""

    window_ns: float = 8e6
    min_quads: int = 4
    """Quads that every cell gets in a session."""
    max_quads: int = 16
    """Quads after which a session ends, however far its quads scatter."""
    half_width: float = 0.01
    """A session ends when the half width (log ratio) of its own interval is below this."""
    max_seconds: float = 1.0
    """A session of a cell ends after this much wall time."""
    max_calls: int = 512
    warm_windows: int = 4
    sessions: int = 2
    """Fresh process pairs."""
    energy_s: float = 0.0
    """Seconds for which energy is counted on each side, where the device counts it; 0: none is."""
    patience: int = 1
    """Factor of quads and wall time for calls of 100 us and more, whose ratio should be within 1 %."""


TIERS: dict[str, Effort] = {
    "quick": Effort(window_ns=1e6, min_quads=1, max_quads=1, half_width=0.0, max_calls=64, warm_windows=0, sessions=1),
    "standard": Effort(patience=4),
    "precise": Effort(
        window_ns=20e6,
        min_quads=5,
        max_quads=30,
        max_seconds=6.0,
        max_calls=1024,
        warm_windows=20,
        sessions=3,
        energy_s=2.0,
    ),
}

_HOST_CALLS = 512
"""Calls in one window at most where waking a worker costs a large part of a millisecond."""

_HOST_QUADS = 2
"""Quads at least there: a single one says nothing of its own scatter."""


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


def beside_others(effort: Effort) -> Effort:
    """The effort where other judges use the hardware: the noise of an idle machine says little then, so there are
    enough quads for their own scatter to count.
    """
    least = max(effort.min_quads, FEW)
    return replace(effort, min_quads=least, max_quads=max(effort.max_quads, least))


_LARGEST_EQUAL = 0.1
"""A machine noisier than this cannot show that two times are equal."""

_SURE = 3.29 / 1.96
"""A 99.9 % interval is so many times as wide as the 95 % one."""

FEW = 3
"""From so many quads on, their own scatter is a better guide than anything else."""

KNOWN_QUADS = 4
"""The machine's noise figure counts as so many quads of a verdict. On a machine three times busier than when it was
measured, 43 of 2,000 equal cells that are judged alone are then called faster or slower, and 6 of 2,000 that are judged
eight in a verdict (``benchmarks/claims_simulated.py``)."""

_DISTURBED = 16.0
"""A square counts as at most so many times the usual one: one disturbed quad says little of the others."""
_MEDIAN_SQUARE = 0.4549
"""Median of the square of a standard normal number."""


def pair_log_ratios(samples: Samples) -> list[np.ndarray]:
    """Log speedups of the quads, one array a session.

    A quad is two window pairs measured as ABBA or BAAB, so that drift that is linear in time cancels within it.
    """
    ratios = np.log(np.asarray(samples.baseline_ns)) - np.log(np.asarray(samples.candidate_ns))
    sessions = np.asarray(samples.sessions)
    out = []
    for session in sorted(set(samples.sessions)):
        mine = ratios[sessions == session]
        out.append(mine[: len(mine) // 2 * 2].reshape(-1, 2).mean(axis=1))
    return out


def freedom_of(cells: Sequence[Samples]) -> int:
    """Degrees of freedom of :func:`busier`, of all timed cells of a verdict: one for each quad beside those known."""
    return KNOWN_QUADS + sum(len(samples.candidate_ns) // 2 for samples in cells)


def busier(cells: Sequence[tuple[Samples, float]]) -> tuple[float, int]:
    """How many times as much quads scatter now as when the machine's noise was measured, at least 1, and the degrees of
    freedom of that figure. A quad's two pairs differ by twice its own standard error.

    Args:
        cells: every timed cell of a verdict, with the noise figure of its duration class (standard deviation of the log
            ratio of single quads).
    """
    squares = []
    for samples, spread in cells:
        ratios = np.log(np.asarray(samples.baseline_ns)) - np.log(np.asarray(samples.candidate_ns))
        pairs = ratios[: len(ratios) // 2 * 2].reshape(-1, 2)
        squares.append((np.diff(pairs, axis=1).ravel() / 2 / max(spread, 1e-9)) ** 2)
    found = np.concatenate(squares) if squares else np.empty(0)
    freedom = freedom_of([samples for samples, _ in cells])
    usual = max(1.0, float(np.median(found)) / _MEDIAN_SQUARE) if len(found) else 1.0
    total = KNOWN_QUADS + float(np.minimum(found, _DISTURBED * usual).sum())
    return math.sqrt(max(1.0, total / freedom)), freedom


def interval(
    sessions: Sequence[np.ndarray], spread: float, between: float, freedom: int = KNOWN_QUADS
) -> tuple[float, float, float]:
    """(estimate, low, high) of the log speedup, 95 %: Maritz and Jarrett's standard error of a session's median (JASA
    73, 1978) times Student's t, see ``docs/timing.md``.

    ``spread`` is the standard deviation of single quads, with so many degrees of ``freedom``, ``between`` that of
    sessions beyond it, both from A/A runs of this machine and duration class: fewer than three quads, and fewer than
    three sessions, say too little of their own.
    """
    means = np.array([np.median(quads) for quads in sessions])
    estimate = float(means.mean())
    if len(means) >= 3:
        half = _student(0.975, len(means) - 1) * float(means.std(ddof=1)) / math.sqrt(len(means))
        return estimate, estimate - half, estimate + half
    variance = 0.0
    for quads in sessions:
        n = len(quads)
        if n >= FEW:
            # a known spread guards against a lucky small sample of quads that happen to agree
            own = _student(0.975, n - 1) * _of_median(quads)
            half = max(own, 1.96 * spread / math.sqrt(n) * 0.5)
        else:
            half = _student(0.975, freedom) * max(spread, float(quads.std(ddof=1)) if n > 1 else 0.0) / math.sqrt(n)
        variance += half**2
    half = math.sqrt(variance / len(sessions) ** 2 + (1.96 * between) ** 2 / len(sessions))
    return estimate, estimate - half, estimate + half


def _student(probability: float, freedom: int) -> float:
    """Quantile of Student's t, as ``scipy.stats.t.ppf`` has it: to import that takes a second."""
    from scipy import special

    return float(special.stdtrit(freedom, probability))


def _of_median(quads: np.ndarray) -> float:
    """Standard error of the median, as ``scipy.stats.mstats.mjci`` has it: Maritz and Jarrett's."""
    from scipy import special

    n = len(quads)
    below = (n + 1) // 2
    weights = np.diff(special.betainc(below - 1, n - below, np.arange(n + 1) / n))
    ordered = np.sort(quads)
    return math.sqrt(max(0.0, float(weights @ ordered**2 - (weights @ ordered) ** 2)))


def resolution(samples: Samples) -> float:
    """Half width (log ratio) that the scatter of the window's constant, ``empty_spread_ns``, leaves open over all
    windows. Of fewer than three quads the disagreement of pairs counts alike.
    """
    candidate, baseline = np.asarray(samples.candidate_ns), np.asarray(samples.baseline_ns)
    shortest = samples.calls * min(float(np.median(candidate)), float(np.median(baseline)))
    of_constant = samples.empty_spread_ns / max(shortest, 1.0)
    ratios = np.log(baseline) - np.log(candidate)
    of_pairs = float(ratios.std(ddof=1)) if 1 < len(ratios) < 2 * FEW else 0.0
    return 1.96 * max(of_constant, of_pairs) / math.sqrt(len(ratios))


def sure(sessions: Sequence[np.ndarray], freedom: int = KNOWN_QUADS) -> float:
    """How many times as wide as the 95 % interval the 99.9 % one is: by Student's t, as three quads or sessions that
    happen to agree say little. Sessions rest on the scatter of their own quads, three and more on that of their
    medians; where quads are few, ``freedom`` is that of the known spread.
    """
    own = [len(quads) for quads in sessions if len(quads) >= FEW]
    if len(sessions) >= 3:
        freedom = len(sessions) - 1
    elif own:
        freedom = sum(own) - len(own)
    return _student(0.9995, freedom) / _student(0.975, freedom)


def claim_of(low: float, high: float, estimate: float, noise: float, times: float = _SURE) -> Claim:
    """What may be said of a speedup (ratios, not logs) with that 95 % interval on a machine with that noise floor.
    Faster and slower are said only where the interval at 99.9 %, so many ``times`` as wide, excludes 1: of hundreds of
    cells in a run, 5 % of honest intervals exclude the truth.
    """
    if low > 0 and (math.log(low) > 0 or math.log(high) < 0):
        surer = times * math.log(high / low) / 2
        if estimate > 1 + noise and math.log(estimate) > surer:
            return "faster"
        if estimate < 1 / (1 + noise) and -math.log(estimate) > surer:
            return "slower"
    if noise <= _LARGEST_EQUAL and low >= 1 / (1 + noise) and high <= 1 + noise:
        return "equal"
    return "inconclusive"


def timing_from(
    samples: Samples, *, spread: float, between: float, noise: float, device_time: str, freedom: int = KNOWN_QUADS
) -> Timing:
    """The :class:`Timing` of raw samples under the machine's noise figures (standard deviations of log ratios); for
    ``freedom`` see :func:`busier`.
    """
    sessions = pair_log_ratios(samples)
    centre, bottom, top = interval(sessions, spread, between, freedom)
    half = math.hypot((top - bottom) / 2, resolution(samples))
    estimate, low, high = (math.exp(v) for v in (centre, centre - half, centre + half))
    return Timing(
        samples=samples,
        speedup=estimate,
        low=low,
        high=high,
        noise=noise,
        claim=claim_of(low, high, estimate, noise, sure(sessions, freedom)),
        device_time=device_time,
    )
