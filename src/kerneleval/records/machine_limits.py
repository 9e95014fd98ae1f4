"""What a machine can do at best: measured peaks, and the two roofs of its roofline."""

from __future__ import annotations

from dataclasses import dataclass

from kerneleval.records.plain import FiniteFloat

__all__ = ["Limits", "Peak", "Peaks"]


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One measured peak of a machine; ``why_not`` says why there is none."""

    name: str
    """``copy``, ``read``, ``write``, ``triad``, ``cache``; ``matrix/`` or ``vector/`` and a data type."""
    unit: str
    """``B/s``, ``FLOP/s`` or, for integers, ``OP/s``."""
    best: FiniteFloat = 0.0
    """The highest rate that was seen; 0: not available."""
    median: FiniteFloat = 0.0
    """Median rate of the samples at the size where the highest was seen."""
    n: int = 0
    """How many samples there were at that size."""
    how: str = ""
    """What was measured, in a few words, with the size."""
    date: str = ""
    """Day of the measurement, ISO 8601."""
    why_not: str = ""
    """Why this machine has none; empty: it has."""


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """The peaks of one machine as far as they were measured."""

    machine: str
    """Fingerprint of the machine; it holds the versions of driver, PyTorch and Triton."""
    peaks: tuple[Peak, ...] = ()
    """One a name."""

    def find(self, name: str) -> Peak | None:
        """The peak of that name; None: it was not asked for yet."""
        return next((peak for peak in self.peaks if peak.name == name), None)

    def rate(self, *names: str) -> float:
        """The highest of these, 0 where there is none."""
        return max((peak.best for peak in self.peaks if peak.name in names), default=0.0)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Measured limits of one machine (Williams, Waterman, Patterson 2009, CACM 52(4):65), none of a data sheet."""

    bandwidth_bytes_per_s: float
    """Bytes that come from and go to the device's memory in a second, at best of copying, reading, writing, adding."""
    flop_per_s: tuple[tuple[str, float], ...]
    """(data type, operations a second) at best of large matrix products and of chains of multiply-adds in that type."""
    cache_bytes_per_s: float = 0.0
    """The same bytes where they lie in a cache; 0: not measured."""
    cache_bytes: int = 0
    """All caches together; 0: not known, and everything counts as coming from memory."""

    def rate(self, dtype: str, *, tf32: bool = False) -> float:
        """Operations a second that a kernel may reach in a type, with TF32 or without; 0: not measured."""
        rates = dict(self.flop_per_s)
        return max(rates.get(dtype, 0.0), rates.get("tf32", 0.0) if tf32 and dtype == "float32" else 0.0)

    def memory_s(self, nbytes: float, calls: int = 0) -> float:
        """The least time of a call that moves so many bytes, one of ``calls`` that run one after another.

        When they begin, the first inputs may lie in the caches; when they end, the last outputs may lie there still. So
        up to twice the caches' size moves at the caches' speed (in no time, where that was not measured), and the rest
        at the memory's. 0 calls: everything comes from memory, as on a machine without caches.
        """
        moved = nbytes * max(calls, 1)
        near = min(moved, 2.0 * self.cache_bytes) if calls else 0.0
        near_s = near / self.cache_bytes_per_s if self.cache_bytes_per_s else 0.0
        return ((moved - near) / self.bandwidth_bytes_per_s + near_s) / max(calls, 1)

    def least_s(self, flops: float, nbytes: float, dtype: str, *, calls: int = 0, tf32: bool = False) -> float:
        """The least time in which a call can do so many operations and move so many bytes, whichever takes longer; in a
        data type whose operations were not measured the bytes alone count. ``calls``: see :meth:`memory_s`.
        """
        rate = self.rate(dtype, tf32=tf32)
        return max(self.memory_s(nbytes, calls), flops / rate if rate else 0.0)
