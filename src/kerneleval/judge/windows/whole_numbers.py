"""Whole numbers beyond the few bits that flags, counters and ids usually have."""

from __future__ import annotations

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


def widen(specs: Sequence[Argument], values: list[Any], case: Case, generator: torch.Generator) -> None:
    """Gives a secret half of the rows (last dim; of vectors, of the elements) of each argument with ``TensorSpec.wide``
    wide numbers, in standard cases that are not expanded. The rows, and the few numbers that a row takes, are the same
    in all arguments, so that equal ones and neighbours meet.
    """
    if case.distribution != "standard" or case.layout == "expanded":
        return
    unit = torch.rand(_BASES, generator=generator, device=generator.device, dtype=torch.float64).tolist()
    drawn: dict[tuple[int, ...], tuple[torch.Tensor, torch.Tensor]] = {}
    for place, spec in enumerate(specs):
        if not isinstance(spec, TensorSpec) or not spec.wide or not spec.numel or values[place].is_floating_point():
            continue
        rows = (*spec.shape[:-1], 1) if len(spec.shape) > 1 else spec.shape
        if rows not in drawn:
            style = torch.randint(_STYLES, rows, generator=generator, device=generator.device)
            start = torch.rand(rows, generator=generator, device=generator.device, dtype=torch.float64)
            drawn[rows] = style, start
        style, start = drawn[rows]
        wide = _multiples if spec.wide == "multiples" else _together
        found = wide(spec, values[place], style, start, unit, generator)
        values[place] = torch.where(style < _STYLES // 2, values[place], found.to(values[place].dtype))


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


def _multiples(
    spec: TensorSpec,
    usual: torch.Tensor,
    style: torch.Tensor,
    start: torch.Tensor,
    unit: Sequence[float],
    generator: torch.Generator,
) -> torch.Tensor:
    """Multiples of a number that a row of all arguments has, so that the least common multiple of any two is a number
    of the type, and their product often is not.
    """
    most = torch.iinfo(usual.dtype).max
    common = (2 ** (start * (most.bit_length() - 1))).floor()
    factors = (0.999 * (most / common).sqrt()).floor()
    beside = torch.rand(usual.shape, generator=generator, device=usual.device, dtype=torch.float64)
    return common.long() * (beside * (2 * factors + 1) - factors).floor().long()
