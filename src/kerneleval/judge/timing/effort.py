"""How much measuring a tier does: quads, windows and time of every timed cell.

It measures nothing: ``clock.py`` does, by these numbers, which docs/timing.md explains.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kerneleval.devices import Device
from kerneleval.judge.timing.statistics import FEW
from kerneleval.records import Protocol

__all__ = ["TIERS", "Effort", "beside_others", "effort_for"]


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
    """Seconds for which energy is counted on each side, where the device counts it; 0: none is."""
    patience: int = 1
    """Factor of quads and wall time for calls of 100 us and more, whose ratio should be within 1 %."""


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
