"""What came out at one cell: passed, with its timing, or failed, with the reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

__all__ = ["Claim", "Evidence", "Failed", "Outcome", "Passed", "Samples", "Timing"]


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Raw timing samples of one cell; statistics are computed on reading.

    The i-th entries of all tuples belong to the same window pair: two windows over inputs of equal content, one in the
    candidate's worker, one in the baseline's.
    """

    candidate_ns: tuple[float, ...] = ()
    """Verified time of one call, by the judge's clock, empty-window time taken off."""
    baseline_ns: tuple[float, ...] = ()
    """The same of the baseline."""
    candidate_event_ns: tuple[float, ...] = ()
    """Device time of one call as the candidate's worker claims it; empty where the device has no events."""
    baseline_event_ns: tuple[float, ...] = ()
    """The same of the baseline's worker."""
    calls: int = 0
    """Calls in one window."""
    sessions: tuple[int, ...] = ()
    """Session index of each pair (a session is a fresh pair of processes)."""
    empty_ns: float = 0.0
    """What a window costs beyond its calls (median, measured on the baseline), taken off each window."""
    empty_spread_ns: float = 0.0
    """How far that cost scattered over the baseline's windows (standard deviation)."""
    cache: str = "cold"
    """``cold``: a window's inputs exceed three times the last-level cache; ``warm`` otherwise."""

    unclocked_ns: float = 0.0
    """How long a window's inputs lay open outside of the clock (median): the most that early or late work could hide.
    0: the worker was paused meanwhile."""


Claim = Literal["faster", "slower", "equal", "inconclusive"]
"""What may be said of a speedup: see :attr:`Timing.claim`."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A cell's time: the raw samples and what is claimed from them."""

    samples: Samples
    """Raw samples."""
    speedup: float
    """Geometric mean of baseline over candidate time."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    noise: float
    """Noise floor of this machine and duration class, as a ratio minus 1 (0.01 is 1 %)."""
    claim: Claim
    """``faster``/``slower``: the interval excludes 1 and the effect exceeds the noise floor; ``equal``: the interval
    is within the noise floor around 1; else ``inconclusive``."""
    device_time: str = "none"
    """What became of the worker's own device time: ``accepted``, ``rejected: why`` or ``none``."""


Evidence = dict[str, Any]
"""Plain data that supports an outcome: error figures, bounds, the worst element, findings."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """The candidate was right here."""

    TAG: ClassVar[tuple[str, bool]] = ("passed", True)

    timing: Timing | None = None
    """None: this cell is not timed."""
    evidence: Evidence = field(default_factory=dict)
    """Error against the oracle, the native error, the bound."""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The candidate failed here."""

    TAG: ClassVar[tuple[str, bool]] = ("passed", False)

    stage: str
    """One of :data:`STAGES`."""
    reason: str
    """Slug: ``wrong_output``, ``timeout``, ``crash`` ... (``docs/verdicts.md``)."""
    message: str = ""
    """One sentence for people: what, where, how much."""
    evidence: Evidence = field(default_factory=dict)
    """What supports it."""
    replay: str = ""
    """The command line that judges just this cell again."""


Outcome = Passed | Failed
