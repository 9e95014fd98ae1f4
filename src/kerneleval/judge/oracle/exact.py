"""Outputs that are judged by equality: integers, positions of elements, counts, and copies of an input.

Floating outputs get bounds by ``calibration.py`` instead, drawn ones a law by ``distribution.py``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.judge.oracle.calibration import independent
from kerneleval.judge.oracle.expectation import Expected, Kind, is_eight_bit, opened, steps
from kerneleval.judge.oracle.tolerances import NATIVE, slack_of_count

__all__ = ["exactly", "positions"]

_FEW = 0.01
"""Share of the integers out of a floating computation that native may get otherwise before their distance counts."""

_TIES = 14
"""One integer in 2^14 may be off by one, however few native gets otherwise in this draw: a number near a half is
rounded up by one kernel and down by another. (Of 983,040 integers of a quantisation to eight bits, the native reference
got two otherwise than fp64, and a kernel with a reciprocal one.)"""


def exactly(
    kind: Kind,
    oracle: torch.Tensor,
    native: torch.Tensor,
    args: Sequence[Any],
    *,
    near: Sequence[torch.Tensor] = (),
) -> Expected:
    """An output that is judged by equality.

    Args:
        kind: ``exact``, ``index`` or ``count``.
        oracle: what the fp64 reference gives; of the native dtype, or floating for exact outputs.
        native: what the native reference gives.
        args: the arguments; indices select from the first floating tensor among them whose largest or smallest elements
            the oracle's select, along the dim in which its shape and the output's differ (the last one where several
            would do). Where they select from none, they are judged as ``count``.
        near: what the oracle gives on inputs that are moved by a few roundings, for counts. It tells nothing where any
            is off by more than one: those are places (of a largest element), which do not hang on how sums are rounded.
    """
    if kind == "index":
        selected = _source_of(oracle, args)
        if selected is not None:
            return Expected(kind=kind, oracle=oracle, native=native, source=selected[0], dim=selected[1])
        kind = "count"  # positions in something computed on the way: which elements are equal there is not known
    if kind == "count" and is_eight_bit(native):
        rounded = oracle.to(native.dtype)
        places = [steps(other.to(native.dtype)) for other in near]
        allowed, far = _allowed(steps(rounded), steps(native), places, numbers=True)
        return Expected(kind=kind, oracle=opened(rounded), native=native, allowed=allowed, far=far)
    if kind == "count":
        quantised = native.dtype in (torch.int8, torch.uint8)
        allowed, far = _allowed(oracle, native, near, numbers=quantised)
        return Expected(kind=kind, oracle=oracle, native=native, allowed=allowed, far=far)
    return Expected(kind=kind, oracle=oracle.to(native.dtype), native=native)


def _allowed(
    oracle: torch.Tensor, native: torch.Tensor, near: Sequence[torch.Tensor], *, numbers: bool = False
) -> tuple[int, float]:
    """Integers that may differ, and the bound on their rms distance: infinite where it does not count, which it always
    does of ``numbers`` of eight bits, that are nowhere far apart (of those quantised from bfloat16 one in fifty lies
    half way between two: were these free, a row might be missing). Of numbers those that repeat others are one, and
    where few differ, chance may make another kernel's more by twice the root of how many.
    """
    count = native.numel()
    others = [native, *(near if all(_by_one(oracle, other) for other in near) else ())]
    differing = max(int(torch.count_nonzero(oracle != other)) for other in others) if count else 0
    ties = count >> _TIES if count >> _TIES > 2 * differing else 0
    far = math.inf
    if differing > _FEW * count or ties or (numbers and count):
        distances = [torch.linalg.vector_norm((other.double() - oracle.double()).flatten()) for other in others]
        distance = float(torch.stack(distances).max())
        far = slack_of_count(count) * math.sqrt(((NATIVE * distance) ** 2 + ties) / count)
    copies = count // max(1, independent(native)) if numbers and differing else 1
    chance = math.ceil(2 * math.sqrt(differing / copies)) if numbers else 0
    return max(2 * differing + copies * chance, ties), far


def _by_one(oracle: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether integers are nowhere further apart than one."""
    return not oracle.numel() or float((other.double() - oracle.double()).abs().max()) <= 1


def positions(native: torch.Tensor, values: Sequence[torch.Tensor], args: Sequence[Any]) -> Expected | None:
    """An integer output that says where in an argument the elements of another output are, as of a sort with its order;
    None: it is no such.

    Among equal elements any may be named; but none twice, where the native reference names none twice.

    Args:
        native: the integers.
        values: the floating outputs of the same call, of the native reference.
        args: the arguments.
    """
    if native.dtype == torch.bool or not native.numel() or bool((native < 0).any()):
        return None
    alike = [v for v in values if v.shape == native.shape]
    for arg in args if alike else ():
        if not isinstance(arg, torch.Tensor) or not arg.is_floating_point():
            continue
        for dim in reversed(range(arg.ndim)):
            flat = native.ndim < arg.ndim
            index = native.unsqueeze(dim) if native.ndim == arg.ndim - 1 else native
            kept = [a for d, a in enumerate(index.shape) if d != dim]
            if index.ndim != arg.ndim or kept != [a for d, a in enumerate(arg.shape) if d != dim]:
                continue
            if bool((index >= arg.shape[dim]).any()):
                continue
            chosen = arg.gather(dim, index.long())
            if any(_same(chosen.squeeze(dim) if flat else chosen, v) for v in alike):
                distinct = not _repeats(index, dim)
                return Expected(
                    kind="index", oracle=native, native=native, source=arg, dim=dim, distinct=distinct and not flat
                )
    return None


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype == other.dtype and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _repeats(index: torch.Tensor, dim: int) -> bool:
    return bool((index.sort(dim).values.diff(dim=dim) == 0).any())


def _source_of(oracle: torch.Tensor, args: Sequence[Any]) -> tuple[torch.Tensor, int] | None:
    shape = tuple(oracle.shape)
    for arg in args:
        if not isinstance(arg, torch.Tensor) or not arg.is_floating_point():
            continue
        for dim in reversed(range(arg.ndim)):
            kept = (*arg.shape[:dim], 1, *arg.shape[dim + 1 :])
            flat = shape == (*arg.shape[:dim], *arg.shape[dim + 1 :])
            if (flat or shape == kept) and _is_extreme(arg, dim, oracle.reshape(kept)):
                return arg, dim
    return None


def _is_extreme(source: torch.Tensor, dim: int, index: torch.Tensor) -> bool:
    """Whether indices (of the source's shape with 1 at ``dim``) select its largest, or its smallest, elements: a NaN
    where there is one.
    """
    if not index.numel():
        return True
    if bool((index < 0).any()) or bool((index >= source.shape[dim]).any()):
        return False
    chosen = source.gather(dim, index.long())
    for reduce in (torch.amax, torch.amin):
        extreme = reduce(source, dim, keepdim=True)
        if bool(((chosen == extreme) | (chosen.isnan() & extreme.isnan())).all()):
            return True
    return False
