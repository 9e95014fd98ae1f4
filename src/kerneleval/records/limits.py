"""What a machine can do at best: the two roofs of its roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kerneleval.records.reading import _fields, _float

__all__ = ["Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Measured limits of one machine (Williams, Waterman, Patterson 2009, CACM 52(4):65), none of a data sheet."""

    bandwidth_bytes_per_s: float
    """Bytes that come from and go to the device's memory in a second, at best of copying and of summing."""
    flop_per_s: tuple[tuple[str, float], ...]
    """(data type, floating-point operations a second) at best of large matrix products in that type."""

    def least_s(self, flops: float, nbytes: float, dtype: str) -> float:
        """The least time in which a call can do so many operations and move so many bytes, whichever takes longer; in a
        data type whose operations were not measured the bytes alone count.
        """
        rate = dict(self.flop_per_s).get(dtype)
        return max(nbytes / self.bandwidth_bytes_per_s, flops / rate if rate else 0.0)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Limits:
        """Inverse of :func:`to_plain`."""
        values = _fields(cls, plain)
        values["bandwidth_bytes_per_s"] = _float(values["bandwidth_bytes_per_s"])
        values["flop_per_s"] = tuple((str(dtype), _float(rate)) for dtype, rate in values["flop_per_s"])
        return cls(**values)
