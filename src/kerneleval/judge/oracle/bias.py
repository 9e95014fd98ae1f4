"""Whether the errors of an output in a half type have a sign in common: a factor, an offset, numbers that are cut.

Rounding to the nearest leaves errors of both signs, which average out over the elements; what is left of their mean is
a systematic error far below one rounding step. The rule is in ``docs/correctness.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kerneleval.judge.oracle.expectation import NATIVE, Expected, as_real, tiles

CERTAIN = 6.5
"""Standard errors beyond which a mean is no chance. For independent errors of either sign, whatever their sizes, the
probability is at most 2 exp(-6.5^2 / 2) = 1.3e-9 (Hoeffding 1963; Efron 1969 for sums divided by their own norm)."""

_VALUES = {torch.bfloat16: 1 << 10, torch.float16: 1 << 13}
"""Where each element follows from one of each input, as many of them count at most: there are few numbers of a half
type near 1, and equal inputs make equal errors. (Normal numbers are worth about 1,200 different ones in bfloat16, by
the inverse of the sum of their squared shares, and eight times as many in float16.)"""

_TIE = 1 + 2.0**-5
"""An element that is no further off than this many times the rounding to nearest is rounded to nearest."""


def sums(got: torch.Tensor, oracle: torch.Tensor, gain: float, *, ties: bool = True) -> torch.Tensor:
    """Of elements of a half type: sum of the errors beyond rounding times the oracle's sign, sum of those errors, and
    their norm, times the gain. The error is the distance from the oracle rounded to nearest: zero almost everywhere for
    kernels that round once, be the outputs equal, saturated or on a coarse grid.

    Args:
        ties: whether an element that is not the nearest but as near counts. Looking at each takes the longest.
    """
    exact = oracle.float()
    nearest = exact.to(got.dtype).float()
    error = got.float().sub_(nearest)
    if not ties:
        error.masked_fill_((got.float() - exact).abs_() <= (nearest - exact).abs_() * _TIE, 0.0)
    signed = torch.dot(error.reshape(-1), exact.sign().reshape(-1))
    return torch.stack([signed, error.sum(), torch.linalg.vector_norm(error)]).mul_(gain)


@dataclass(frozen=True, kw_only=True)
class Bias:
    """Mean errors of an output beyond rounding to nearest, times the bounds' gain."""

    along: float
    """Of errors times the oracle's sign: a factor."""
    shift: float
    """Of the errors themselves: an offset."""
    scatter: float
    """rms of the errors."""

    @classmethod
    def of(cls, table: list[tuple[float, float, float]], count: int) -> Bias:
        """From the ``sums`` of an output's tiles."""
        along, shift = (sum(row[i] for row in table) / count for i in (0, 1))
        return cls(along=along, shift=shift, scatter=math.sqrt(sum(row[2] ** 2 for row in table) / count))

    @property
    def most(self) -> float:
        """The larger of both."""
        return max(abs(self.along), abs(self.shift))


def bound(expected: Expected, found: Bias) -> float:
    """What the larger of the means may be, without what the native reference has."""
    bounds = expected.bounds
    assert bounds is not None
    few = bounds.independent
    if bounds.length <= 1:
        few = min(few, _VALUES.get(expected.native.dtype, 1))
    return bounds.bias + CERTAIN * math.hypot(found.scatter / math.sqrt(few), bounds.common)


def biased(expected: Expected, found: Bias, got: torch.Tensor) -> tuple[float, float] | None:
    """(mean, bound) where the mean error is beyond chance, what is allowed and twice what the native reference has.

    Args:
        found: with ties counted; only where it is beyond its bound the others are looked at.
    """
    if found.most <= bound(expected, found):
        return None
    found, native = _without_ties(expected, got), _without_ties(expected, expected.native)
    most = max(bound(expected, found), bound(expected, native)) + NATIVE * native.most
    return None if found.most <= most else (found.most, most)


def _without_ties(expected: Expected, output: torch.Tensor) -> Bias:
    bounds = expected.bounds
    assert bounds is not None
    own, oracle = (as_real(t).contiguous().view(bounds.shape) for t in (output, expected.oracle))
    rows = [sums(own[tile], oracle[tile], bounds.gain, ties=False) for tile in tiles(bounds.shape, own.device)]
    return Bias.of([(a, b, c) for a, b, c in torch.stack(rows).double().tolist()], own.numel())
