"""The numbers that lie in the arguments of a candidate's kernels, before each launch and after it.

Host memory alone is read. ``judge/checks/track.py`` compares them with what comes out: what is there before any kernel
wrote it was computed elsewhere.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["Contents"]

_MOST_BYTES = 1 << 23
"""Of all arguments together; what comes later is left out."""

_DEEPEST = 3
"""Nesting of tuples and lists that is looked into."""


class Contents:
    """What was shown of each launch (``languages/common/watch.py``), but what lies in the memory of the inputs."""

    def __init__(self, inputs: torch.Tensor | None = None) -> None:
        self.rows: list[dict[str, Any]] = []
        """``after``: whether the kernel has run; ``data``: its bytes, in base64; ``type``: of floating numbers NumPy's
        name, else empty: the bits may be those of others."""
        self._start = 0 if inputs is None else inputs.data_ptr()
        self._stop = 0 if inputs is None else self._start + inputs.nbytes
        self._left = _MOST_BYTES

    def keep(self, values: Sequence[Any], after: bool) -> None:
        """Keep what lies in these values, in order of time."""
        for one in _arrays(values, _DEEPEST):
            with contextlib.suppress(Exception):  # a kind of tensor or array that has no numbers to read
                self._keep(one, after)

    def _keep(self, value: Any, after: bool) -> None:
        import torch

        if value.nbytes > self._left:
            return
        if isinstance(value, torch.Tensor):
            value = value.detach().resolve_conj().resolve_neg()
            value = (value.view(torch.int16) if value.dtype is torch.bfloat16 else value).numpy()
        value = np.ndarray.view(value, np.ndarray)
        if self._start <= value.__array_interface__["data"][0] < self._stop:
            return
        if value.dtype.hasobject:
            return
        data, kind = value.tobytes(), value.real.dtype.str[1:]
        self._left -= len(data)
        row = {"after": after, "type": kind if kind[0] == "f" else "", "data": base64.b64encode(data).decode()}
        self.rows.append(row)


def _arrays(value: Any, deepest: int) -> Iterator[Any]:
    """The tensors and arrays in host memory that a value holds."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu":
            yield value
    elif isinstance(value, np.ndarray):
        yield value
    elif deepest and isinstance(value, (Sequence, Mapping)) and not isinstance(value, (str, bytes)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _arrays(one, deepest - 1)
