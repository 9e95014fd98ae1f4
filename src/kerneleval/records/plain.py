"""Records as plain data, to be stored or sent; ``reading.py`` is the way back."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from kerneleval.records.outcomes import Failed, Passed

__all__ = ["to_plain"]


def to_plain(value: Any) -> Any:
    """A record as JSON-ready plain data; NaN and infinities become the strings ``nan``, ``inf``, ``-inf``.

    Raises:
        TypeError: for a value that is no record and no plain data (a callable, a tensor).
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        if isinstance(value, (Passed, Failed)):
            plain["passed"] = isinstance(value, Passed)
        return plain
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(v) for v in value]
    raise TypeError(f"no plain form for {type(value).__name__}: {value!r:.80}")
