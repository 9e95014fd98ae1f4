"""Whether a candidate's kernels only copy: the numbers that come out lay in their arguments before any of them wrote.

Numbers are looked for wherever they lie, and outputs as they are. What such a kernel reads was computed elsewhere: by a
library in a way that is not seen, or by another process.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["Copies"]

_FEW, _FEW_WHOLE = 8, 16
"""So many numbers must have been looked for, or be in an output that is looked for, before anything is said."""

_NEAR = {torch.float32: 1e-6, torch.complex64: 1e-6, torch.float64: 1e-14, torch.complex128: 1e-14}
"""Relative distance up to which two numbers are one; in narrower dtypes too many are the same by chance."""

_NEAR_NARROW = 1e-3

_ALIKE = 0.9999
"""Square of the correlation from which on numbers are but a factor and an offset apart."""

_MOST_OUTPUTS = 1 << 16


class Copies:
    """Counts over several calls.

    Args:
        whole: look for outputs as they are alone, not for single numbers or scaled ones: a kernel behind a library's
            arithmetic may change few numbers, or scale, and do what it is for.
    """

    def __init__(self, *, whole: bool = False) -> None:
        self._whole = whole
        self.wanted = self.found = 0
        """Numbers that came out and are in no input, whole ones apart; those that lay in arguments of kernels."""
        self.wanted_whole = self.found_whole = 0
        """The same of outputs as they are, from the first element to the last."""

    @property
    def is_clear(self) -> bool:
        """Whether enough was looked for."""
        return self.wanted >= _FEW or self.wanted_whole > 0

    @property
    def are_all(self) -> bool:
        """Whether most of what came out was only copied."""
        most = self.wanted >= _FEW and self.found > self.wanted // 2
        return most or 0 < self.wanted_whole == self.found_whole

    @staticmethod
    def fit(outputs: Sequence[torch.Tensor]) -> bool:
        """Whether such outputs can be looked for."""
        return 0 < sum(t.numel() for t in outputs) <= _MOST_OUTPUTS

    def add(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], rows: Any) -> None:
        """Look for the outputs of one call in what the worker says that lay in arguments, in order of time."""
        read = [*_read(rows)]
        if not self._whole and all(t.dtype in _NEAR for t in outputs):
            self._add_numbers(outputs, inputs, read)
        for output in outputs:
            if _distinct(output) >= _FEW_WHOLE and not any(_is_part(output, given) for given in inputs):
                self.wanted_whole += 1
                scaled = not self._whole
                there = (r.after for r in read if r.holds(output) or (scaled and r.is_scaled(output, inputs)))
                self.found_whole += next(there, True) is False

    def _add_numbers(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], rows: Sequence[_Row]
    ) -> None:
        near = _NEAR[outputs[0].dtype]
        wanted = np.unique(np.concatenate([_numbers(t) for t in outputs]))
        wanted = wanted[np.isfinite(wanted) & (wanted != np.round(wanted))]
        for given in inputs:
            wanted = wanted[~_there(wanted, _numbers(given), near)]
        self.wanted += wanted.size
        for row in rows:
            there = _there(wanted, row.numbers, near)
            self.found += 0 if row.after else int(there.sum())
            wanted = wanted[~there]  # what a kernel wrote is its own from then on


@dataclass(frozen=True)
class _Row:
    """What lay in one argument of a launch."""

    after: bool
    data: bytes
    type: str
    """NumPy's name of floating numbers; empty: of other kinds."""

    @property
    def numbers(self) -> Any:
        """As float64; other kinds may be the bits of floating numbers."""
        size = len(self.data) // 4 * 4
        with np.errstate(invalid="ignore"):  # such bits may be a signalling NaN
            return np.frombuffer(self.data if self.type else self.data[:size], self.type or "f4").astype(np.float64)

    def holds(self, output: torch.Tensor) -> bool:
        """Whether it holds this output, element after element."""
        wanted = _bytes(output)
        if wanted in self.data:
            return True
        if not self.type or not output.is_floating_point():
            return False
        return wanted in _bytes(torch.from_numpy(self.numbers).to(output.dtype))

    def is_scaled(self, output: torch.Tensor, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether it is nearly the output, but for a factor and an offset, and no copy of inputs."""
        numbers = self.numbers
        if not (self.type and output.is_floating_point() and numbers.size == output.numel()):
            return False
        wanted = _numbers(output)
        if not (np.isfinite(numbers).all() and numbers.std() and np.isfinite(wanted).all() and wanted.std()):
            return False
        if np.corrcoef(numbers, wanted)[0, 1] ** 2 < _ALIKE:
            return False
        given = np.concatenate([_numbers(t) for t in inputs] or [np.zeros(0)])
        return bool(_there(numbers, given, _NEAR_NARROW if self.type == "f2" else 1e-6).mean() < 0.5)


def _bytes(tensor: torch.Tensor) -> bytes:
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return bytes(tensor.view(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def _distinct(tensor: torch.Tensor) -> int:
    """How many different elements there are, or parts of eight bytes; PyTorch cannot tell of every type."""
    return int(np.unique(np.frombuffer(_bytes(tensor), f"u{min(tensor.itemsize, 8)}")).size)


def _is_part(output: torch.Tensor, given: torch.Tensor) -> bool:
    """Whether an input holds the output, element after element."""
    if given.is_complex() != output.is_complex():
        return False
    return _bytes(output) in _bytes(given.to(output.dtype))


def _numbers(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach().cpu()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double().numpy().reshape(-1)


def _there(wanted: Any, numbers: Any, near: float) -> Any:
    """Which of these numbers are among the others."""
    numbers = np.unique(numbers[np.isfinite(numbers)])
    if not numbers.size:
        return np.zeros(wanted.shape, bool)
    after = np.searchsorted(numbers, wanted)
    beside = (numbers[np.clip(after - step, 0, numbers.size - 1)] for step in (0, 1))
    low, high = (np.abs(one - wanted) for one in beside)
    return np.minimum(low, high) <= near * np.abs(wanted)


def _read(rows: Any) -> Iterator[_Row]:
    """What the worker sent, as far as it has the form."""
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("data"), str):
            kind = str(row["type"]) if row.get("type") in ("f2", "f4", "f8") else ""
            with contextlib.suppress(ValueError):
                data = base64.b64decode(row["data"], validate=True)
                if len(data) >= 4 and len(data) % int(kind[1:] or 1) == 0:
                    yield _Row(bool(row.get("after")), data, kind)
