"""Whole numbers beyond the few bits that flags, counters and ids usually have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.records import Argument, Case, TensorSpec

_BASES = 10
"""Secret numbers about which those of a call lie, beside 0 and 1."""

_STEPS = (0, 1, -1, 1 << 8, 1 << 10, 1 << 16, 1 << 24, 1 << 32)
"""What lies beside each: its neighbours, and what is the same number in a narrower type."""

_STYLES = 8
"""Kinds of rows: the first half as usual, then with two or eight numbers that lie together, with any of them, and with
any of the type."""

_WINDOWS = (2, 8)

_PRIMES = (2, 2, 2, 3, 5, 3, 7, 11, 13, 17, 19, 2, 3, 3, 23, 29, 31, 37, 41, 5, 7, 3)
"""Factors of the number whose divisors are drawn, as many of them in turn as the type holds."""


def widen(specs: Sequence[Argument], values: list[Any], case: Case, generator: torch.Generator) -> None:
    """Gives a secret half of the rows (last dim; of vectors, of the elements) of each argument with ``TensorSpec.wide``
    wide numbers, in standard cases that are not expanded. The rows, and the few numbers that a row takes, are the same
    in all arguments, so that equal ones and neighbours meet. Of floating arguments they are no integers.
    """
    if case.distribution != "standard" or case.layout == "expanded":
        return
    unit = torch.rand(_BASES, generator=generator, device=generator.device, dtype=torch.float64).tolist()
    drawn: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}
    for place, spec in enumerate(specs):
        if not isinstance(spec, TensorSpec) or not spec.wide or not spec.numel:
            continue
        rows = (*spec.shape[:-1], 1) if len(spec.shape) > 1 else spec.shape
        if rows not in drawn:
            style = torch.randint(_STYLES, rows, generator=generator, device=generator.device)
            start = torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)
            drawn[rows] = style, start
        style, start = drawn[rows]
        if values[place].is_floating_point():
            found, usual = _no_integers(values[place], style), style < _STYLES // 2
        elif spec.wide == "divisors":
            found, usual = _divisors(values[place], generator), (style < _STYLES // 2) & (values[place].itemsize > 1)
        elif spec.wide == "shifts":
            bits = torch.iinfo(values[place].dtype).bits
            found = torch.randint(bits, spec.shape, generator=generator, device=generator.device)
            usual = style < _STYLES // 2
        else:
            found, usual = _together(spec, values[place], style, start, unit, generator), style < _STYLES // 2
        values[place] = torch.where(usual, values[place], found.to(values[place].dtype))


def _no_integers(usual: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
    """The numbers as quarters, as multiples of 256, next to 0, or NaN where they are not 0: what a cast to an integer
    makes 0, or a comparison loses.
    """
    factors = (0.25, 256.0, float(torch.finfo(usual.dtype).tiny), math.nan)
    factor = usual.new_tensor(factors)[(style - _STYLES // 2).clamp(min=0)]
    return torch.where(usual == 0, usual, usual * factor)


def mark_ignored(specs: Sequence[Argument], values: Sequence[Any], generator: torch.Generator) -> None:
    """Gives a secret eighth or half of the indices the number that ``TensorSpec.ignored`` names."""
    for spec, value in zip(specs, values, strict=True):
        if isinstance(spec, TensorSpec) and spec.ignored and value.numel():
            kind, half = torch.randint(8, (value.numel() + 1,), generator=generator, device=value.device).split(
                (value.numel(), 1)
            )
            marker = next(v for one, v in zip(specs, values, strict=True) if one.name == spec.ignored)
            value.masked_fill_((kind <= torch.where(half % 2 == 0, 0, 3)).view(value.shape), marker)


def _together(
    spec: TensorSpec,
    usual: torch.Tensor,
    style: torch.Tensor,
    start: torch.Tensor,
    unit: Sequence[float],
    generator: torch.Generator,
) -> torch.Tensor:
    """Numbers of up to ``spec.wide`` bits, of either sign where the usual ones are: from a list that all arguments have
    in common, those at neighbouring places of it in a row; in some rows any.
    """
    assert isinstance(spec.wide, int)
    most = min((1 << spec.wide) - 1, torch.iinfo(usual.dtype).max)
    least = -most if spec.low < 0 else spec.low
    listed = []
    for place, base in enumerate((0, 1, *(int(2 ** (u * most.bit_length())) | int(1e6 * u) for u in unit))):
        sign = -1 if least < 0 and place % 2 else 1
        listed += [max(least, min(sign * (base + step), most)) for step in _STEPS]
    every = torch.tensor(listed, dtype=torch.int64, device=usual.device)
    window = torch.full_like(style, len(listed))
    for number, few in enumerate(_WINDOWS):
        window = torch.where(style == _STYLES // 2 + number, few, window)
    beside = torch.rand(usual.shape, generator=generator, device=usual.device, dtype=torch.float64)
    found = every[((start * len(listed)).long() + (beside * window).long()) % len(listed)]
    free = torch.randint(least, most, usual.shape, generator=generator, device=usual.device)
    return torch.where(style == _STYLES - 1, free, found)


def _divisors(usual: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Divisors of one number of the type, of either sign: the least common multiple of any two divides it as well, and
    their product often is no number of the type. All numbers up to 11 are among them, but in eight bits.
    """
    most = torch.iinfo(usual.dtype).max
    found = torch.ones_like(usual, dtype=torch.int64)
    product = 1
    for prime in _PRIMES:
        if product * prime <= most:
            product *= prime
            taken = torch.randint(2, usual.shape, generator=generator, device=usual.device)
            found *= torch.where(taken > 0, prime, 1)
    sign = torch.randint(2, usual.shape, generator=generator, device=usual.device) * 2 - 1
    return found * sign
