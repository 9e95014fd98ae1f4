"""What is claimed from raw timing samples: speedup, interval, claim. Formulas: ``docs/timing.md``.

Pure functions of :class:`Samples`; nothing here touches a clock. The noise floor comes from ``noise.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from kerneleval.records import Samples, Timing

__all__ = ["FEW", "claim_of", "interval", "pair_log_ratios", "resolution", "sure", "timing_from"]

_LARGEST_EQUAL = 0.1
"""A machine noisier than this cannot show that two times are equal."""

_SURE = 3.29 / 1.96
"""A 99.9 % interval is so many times as wide as the 95 % one."""

FEW = 3
"""From so many quads on, their own scatter is a better guide than anything else."""

Claim = Literal["faster", "slower", "equal", "inconclusive"]


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


def interval(sessions: Sequence[np.ndarray], spread: float, between: float) -> tuple[float, float, float]:
    """(estimate, low, high) of the log speedup, 95 %.

    A session says the median of its quads: one quad that another program disturbed may be off by a third. Its standard
    error is Maritz and Jarrett's (JASA 73, 1978), taken times Student's t; fewer than three quads borrow ``spread``,
    the standard deviation of single quads measured in A/A runs of this machine and duration class. ``between`` is the
    standard deviation between sessions (process pairs) from the same A/A runs: it does not shrink with more quads, only
    with more sessions. With three or more sessions Student's t over the sessions' medians replaces both.
    """
    means = np.array([np.median(quads) for quads in sessions])
    estimate = float(means.mean())
    if len(means) >= 3:
        from scipy import stats  # a second of work, which the quick tier has no use for

        half = float(stats.t.ppf(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means)))
        return estimate, estimate - half, estimate + half
    variance = 0.0
    for quads in sessions:
        n = len(quads)
        if n >= FEW:
            from scipy import stats

            # a known spread guards against a lucky small sample of quads that happen to agree
            own = float(stats.t.ppf(0.975, n - 1)) * float(stats.mstats.mjci(quads, prob=[0.5])[0])
            half = max(own, 1.96 * spread / math.sqrt(n) * 0.5)
        else:
            half = 1.96 * max(spread, float(quads.std(ddof=1)) if n > 1 else 0.0) / math.sqrt(n)
        variance += half**2
    half = math.sqrt(variance / len(sessions) ** 2 + (1.96 * between) ** 2 / len(sessions))
    return estimate, estimate - half, estimate + half


def resolution(samples: Samples) -> float:
    """Half width (log ratio) that the scatter of the window's constant leaves open, over all windows.

    Every window has the same constant taken off; what that constant may be off by is ``empty_spread_ns`` a window, and
    it weighs the more the shorter the windows are. Of fewer than three quads the disagreement of pairs counts alike.
    """
    candidate, baseline = np.asarray(samples.candidate_ns), np.asarray(samples.baseline_ns)
    shortest = samples.calls * min(float(np.median(candidate)), float(np.median(baseline)))
    of_constant = samples.empty_spread_ns / max(shortest, 1.0)
    ratios = np.log(baseline) - np.log(candidate)
    of_pairs = float(ratios.std(ddof=1)) if 1 < len(ratios) < 2 * FEW else 0.0
    return 1.96 * max(of_constant, of_pairs) / math.sqrt(len(ratios))


def sure(sessions: Sequence[np.ndarray]) -> float:
    """How many times as wide as the 95 % interval the 99.9 % one is: by Student's t where fewer than three sessions
    rest on the scatter of their own quads. A machine that is busier than when its noise was measured has a floor that
    is too low, and three quads that happen to agree say little.
    """
    own = [len(quads) for quads in sessions if len(quads) >= FEW]
    if len(sessions) >= 3 or not own:
        return _SURE
    from scipy import stats

    freedom = sum(own) - len(own)
    return float(stats.t.ppf(0.9995, freedom) / stats.t.ppf(0.975, freedom))


def claim_of(low: float, high: float, estimate: float, noise: float, times: float = _SURE) -> Claim:
    """What may be said of a speedup (ratios, not logs) with that 95 % interval on a machine with that noise floor.

    A run holds hundreds of cells, and 5 % of honest intervals exclude the truth: faster and slower are said only where
    the interval at 99.9 %, so many ``times`` as wide, excludes 1, and the effect exceeds the floor.
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


def timing_from(samples: Samples, *, spread: float, between: float, noise: float, device_time: str) -> Timing:
    """The :class:`Timing` of raw samples under the machine's noise figures (standard deviations of log ratios)."""
    sessions = pair_log_ratios(samples)
    centre, bottom, top = interval(sessions, spread, between)
    half = math.hypot((top - bottom) / 2, resolution(samples))
    estimate, low, high = (math.exp(v) for v in (centre, centre - half, centre + half))
    return Timing(
        samples=samples,
        speedup=estimate,
        low=low,
        high=high,
        noise=noise,
        claim=claim_of(low, high, estimate, noise, sure(sessions)),
        device_time=device_time,
    )
