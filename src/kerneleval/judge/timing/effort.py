"""How much a tier measures: lengths of windows, blocks, sessions. The tables stand in ``docs/timing.md``."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much measuring a tier does; the standard one where nothing else is said."""

    window_ns: float = 8e6
    min_blocks: int = 6
    """Blocks that every cell gets in a session."""
    max_blocks: int = 24
    """Blocks after which a session ends, however far its blocks scatter."""
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
    device_window_ns: float = 4e6
    """Length of the windows of recorded calls."""
    device_blocks: int = 6
    """Their blocks in a session, at least."""
    device_calls: int = 1024
    patience: int = 1
    """Factor of blocks and wall time for calls of 100 us and more, whose ratio should be within 1 %."""
    outvotes: bool = True
    """Whether blocks of calls below 100 us that something disturbed are outvoted by further ones."""
    one_split_in: int = 4
    """One window in so many is a split one, by chance, beside those that are for certain."""

    @property
    def recorded(self) -> Effort:
        """That for windows of recorded calls."""
        least = max(self.min_blocks, self.device_blocks)
        return replace(
            self,
            window_ns=self.device_window_ns,
            min_blocks=least,
            max_blocks=max(self.max_blocks, least),
            max_calls=self.device_calls,
            outvotes=True,
        )


TIERS: dict[str, Effort] = {
    "quick": Effort(
        window_ns=1e6,
        min_blocks=2,
        max_blocks=2,
        half_width=0.0,
        max_calls=32,
        warm_windows=0,
        sessions=1,
        outvotes=False,  # of eager calls, launching takes most of it: nothing within 1.65 times is claimed
        device_window_ns=2e6,
        device_blocks=3,
        device_calls=256,
    ),
    "standard": Effort(patience=4),
    "precise": Effort(
        window_ns=20e6,
        min_blocks=8,
        max_blocks=40,
        max_seconds=6.0,
        max_calls=1024,
        device_window_ns=8e6,
        device_calls=2048,
        warm_windows=20,
        sessions=3,
        energy_s=2.0,
    ),
}

_HOST_WINDOW_NS = 2e6
_HOST_CALLS, _HOST_BLOCKS = 512, 4
"""At least, where waking a worker costs a large part of a millisecond: a window's length (ns), its calls at most, and
blocks, of which a single one says nothing of its own scatter."""

HOST_TIERS: dict[str, Effort] = {
    tier: replace(
        effort,
        window_ns=max(effort.window_ns, _HOST_WINDOW_NS),
        max_calls=max(effort.max_calls, _HOST_CALLS),
        min_blocks=max(effort.min_blocks, _HOST_BLOCKS),
        max_blocks=max(effort.max_blocks, _HOST_BLOCKS),
        outvotes=True,
        patience=1,  # there most calls take that long
    )
    for tier, effort in TIERS.items()
}
"""The same for devices with :attr:`~kerneleval.devices.Device.slow_wakes`."""
