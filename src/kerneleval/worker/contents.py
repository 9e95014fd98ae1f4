"""The numbers that lie in the arguments of a candidate's kernels, before each launch and after it.

Host memory alone is read. ``judge/checks/track.py`` compares them with what comes out: what is there before any kernel
wrote it was computed elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["Contents"]

_MOST_NUMBERS = 1 << 19
"""Of all arguments together; what comes later is left out."""

_DEEPEST = 3
"""Nesting of tuples and lists that is looked into."""


class Contents:
    """What was shown of each launch (``languages/common/watch.py``)."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        """``after``: whether the kernel has run; ``data``: the numbers as float64, in base64."""
        self._left = _MOST_NUMBERS

    def keep(self, values: Sequence[Any], after: bool) -> None:
        """Keep what lies in these values, in order of time."""
        for one in _arrays(values, _DEEPEST):
            with contextlib.suppress(Exception):  # a kind of tensor or array that has no numbers to read
                numbers = _numbers(one)
                if 0 < numbers.size <= self._left:
                    self._left -= numbers.size
                    self.rows.append({"after": after, "data": base64.b64encode(numbers.tobytes()).decode()})


def _arrays(value: Any, deepest: int) -> Iterator[Any]:
    """The tensors and arrays in host memory that a value holds."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.numel() <= _MOST_NUMBERS:
            yield value
    elif isinstance(value, np.ndarray):
        if value.size <= _MOST_NUMBERS:
            yield value
    elif deepest and isinstance(value, (Sequence, Mapping)) and not isinstance(value, (str, bytes)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _arrays(one, deepest - 1)


def _numbers(value: Any) -> Any:
    """An array of float64 of what one holds; whole numbers may be the bits of others."""
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        value = value.float().numpy() if value.dtype is torch.bfloat16 else value.numpy()
    plain = np.ascontiguousarray(np.ndarray.view(value, np.ndarray)).reshape(-1)
    if plain.dtype.kind == "c":
        plain = plain.view(plain.real.dtype)
    elif plain.dtype.kind != "f" and plain.nbytes % 4 == 0:
        plain = plain.view(np.float32)
    with np.errstate(all="ignore"):
        return plain.astype(np.float64)
