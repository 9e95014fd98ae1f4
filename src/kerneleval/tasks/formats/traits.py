"""What the inputs of a problem file promise beyond shape and dtype: symmetry, labels, order, rows that sum to 1.

A problem file draws inputs by code of its own; nothing declares that a matrix is symmetric or that a vector holds
labels. Code that changes such inputs must keep what the problem's candidates may rely on: samples show it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch

from kerneleval.tasks.formats.soundness import is_eight_bit

_SAMPLE = 4096
_FEW_VALUES = 16
_ROWS = 64
_SPARSE = 0.25
_MARKED = 8
"""Integers of which some lie at the same places in two draws by chance."""
_RECORD, _RECORDS = 8, 24
_LOG_ORDERS = math.log(700)
"""Logarithm of the orders that rows can have together from which on one of them is no chance: six numbers have 720."""
_MOST_AXES = 16
"""Rows of the largest matrix of which it is asked whether it is a rotation."""
_FROM_ZERO = 0.1
"""Part of the largest magnitude that numbers keep away from 0 if they are to have one sign."""

_ROOM = 8
"""Storage that a strided input may span, in multiples of its elements; what is spread wider is given contiguous."""
_ONE_IN = 8
"""At most one row in so many of a table is a padding row, or one row in all."""
_START = 64
"""Elements: a storage offset is kept modulo this, which keeps its alignment."""

_ALIKE = 16
"""Roundings of the largest element by which two elements of a symmetric matrix may differ."""

Doubling = Literal["halves", "pairs"]

Samples = dict[int, torch.Tensor]
"""Position of an argument -> some of its elements."""

Place = tuple[int, tuple[int, ...], int]
"""(elements of storage, strides, storage offset), in elements."""


@dataclass(frozen=True, kw_only=True)
class InputTraits:
    """Positions of arguments with a trait: of floating ones, but for ``frozen``, ``marks`` and ``placed``."""

    frozen: frozenset[int]
    """They come out the same under every seed, bit by bit."""
    marks: Mapping[int, int]
    """Integers that vary, but for one number at the same places in all draws, which marks them: ignored, or padding."""
    labels: frozenset[int]
    """They take 16 different values at most, and have more elements, or are 0 and 1: labels, signs, masks."""
    structured: frozenset[int]
    """Their elements depend on one another: symmetric, or a quarter or more of zeros (triangular, sparse). Exchanging
    single elements breaks that; scaling the whole tensor does not."""
    normed: frozenset[int]
    """Their rows sum to 1 or have length 1: probabilities, directions. They move as wholes, and are never scaled."""
    rigid: frozenset[int]
    """They are rotations, with or without a shift beside them (4 x 4). They stay as they are drawn."""
    records: frozenset[int]
    """Their rows are few numbers of which two are in order throughout: boxes, intervals. They move as wholes."""
    ordered: frozenset[int]
    """Their rows are in order throughout: edges, distribution functions."""
    positive: frozenset[int]
    """They keep away from 0 in two draws, and have one sign: scales, lengths. What is drawn from 0 on does not."""
    placed: Mapping[int, Place]
    """The places of those that are not row-major from the start of their storage: transposes, slices."""

    @property
    def signed(self) -> frozenset[int]:
        """Those that would be no such any more with another sign."""
        return self.records | self.ordered | self.positive

    @classmethod
    def of(cls, args: Sequence[Any], other: Mapping[int, torch.Tensor]) -> InputTraits:
        """The traits of arguments, given samples of what another seed draws."""
        every = sample(args)
        mine = {i: values for i, values in every.items() if is_float(values)}
        frozen = frozenset(i for i, values in every.items() if i in other and same_bits(values, other[i]))
        return cls(
            frozen=frozen,
            marks={i: mark for i, own in every.items() if i in other and (mark := _mark(own, other[i])) is not None},
            labels=frozenset(i for i, values in mine.items() if _labels(values, other.get(i)) or are_flags(values)),
            structured=frozenset(i for i, values in mine.items() if _structured(args[i], values)),
            normed=frozenset(i for i in mine if not are_flags(args[i]) and _normed(args[i])),
            rigid=frozenset(i for i in mine if _rigid(args[i])),
            records=frozenset(i for i in mine if _in_records(args[i])),
            ordered=frozenset(i for i in mine if is_ordered(args[i])),
            positive=frozenset(i for i in mine if i in other and i not in frozen and _one_sign(mine[i], other[i])),
            placed={i: place for i, arg in enumerate(args) if (place := _place(arg)) is not None},
        )


def are_flags(tensor: torch.Tensor) -> bool:
    """Whether its numbers are 0 and 1, of both some: a mask."""
    if tensor.is_complex() or is_eight_bit(tensor):
        return False
    return bool(((tensor == 0) | (tensor == 1)).all() and (tensor == 0).any() and (tensor == 1).any())


def is_float(value: Any) -> bool:
    """Whether it is a tensor of a floating type that PyTorch computes in: not one of eight bits."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def is_inexact(value: Any) -> bool:
    """The same, or of a complex type."""
    return is_float(value) or (isinstance(value, torch.Tensor) and value.is_complex())


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same, NaN included, which is equal to nothing."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (t.resolve_conj().reshape(-1).contiguous().view(torch.uint8) for t in (one, other))
    return torch.equal(a, b)


def sample(args: Sequence[Any]) -> Samples:
    """Up to 8191 evenly spaced elements of every tensor, the first included; empty tensors have none."""
    found = {}
    for index, value in enumerate(args):
        if isinstance(value, torch.Tensor) and value.numel():
            flat = value.reshape(-1)
            # An even step would meet one half of a checkerboard, or one column of a power-of-two matrix, alone.
            found[index] = flat[:: max(1, flat.numel() // _SAMPLE) | 1].clone()
    return found


def _mark(own: torch.Tensor, other: torch.Tensor) -> int | None:
    """The least of the integers of two draws, not above 0, that lies at several places, the same in both, where others
    vary; None: there is none.
    """
    if own.is_floating_point() or own.is_complex() or own.dtype == torch.bool:
        return None
    one, another = own.long(), other.long()
    if one.shape != another.shape or one.numel() < _MARKED:
        return None
    least = int(one.min())
    places = one == least
    fixed = least <= 0 and int(places.sum()) > 1 and torch.equal(places, another == least)
    return least if fixed and not torch.equal(one, another) else None


def _place(value: Any) -> Place | None:
    """The places of a tensor's elements; None: row-major, no two apart (expanded), or too far from one another."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return None
    offset, strides = int(value.storage_offset()) % _START, tuple(map(int, value.stride()))
    if value.is_contiguous() and not offset:
        return None
    extent = 1
    for stride, size in sorted(zip(strides, value.shape, strict=True)):
        if size > 1 and stride < extent:
            return None
        extent += (size - 1) * stride
    return (offset + extent, strides, offset) if extent <= _ROOM * value.numel() else None


def _in_records(tensor: torch.Tensor) -> bool:
    """Whether the last dim is short and two numbers of it are in order in all of many rows, which is no chance."""
    if tensor.dim() < 2 or not 2 <= tensor.shape[-1] <= _RECORD:
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE]
    return len(rows) >= _RECORDS and bool((rows[:, :, None] < rows[:, None]).all(0).any())


def _labels(values: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Whether it takes few values, of which another draw has some too. Repeated rows of noise have few as well."""
    few = values.unique()
    shared = other is None or bool(torch.isin(few, other).any()) or bool(few.isnan().any())
    return values.numel() > _FEW_VALUES >= len(few) and shared


def is_ordered(tensor: torch.Tensor) -> bool:
    """Whether all rows rise, or all fall, which is no chance."""
    if not tensor.dim() or not tensor.numel():
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE]
    if len(rows) * math.lgamma(rows.shape[1] + 1) < _LOG_ORDERS:
        return False
    steps = rows.diff(dim=-1)
    return bool((steps != 0).any() and ((steps >= 0).all() or (steps <= 0).all()))


def doubling(tensor: torch.Tensor) -> Doubling | None:
    """How rows hold each of several numbers twice: in ``halves``, the second as the first, or in ``pairs``. None: they
    do not. Tables of cosines and sines do for rotary embeddings, and kernels read one of two.
    """
    if not is_float(tensor) or not tensor.numel() or not tensor.dim() or tensor.shape[-1] % 2 or tensor.shape[-1] < 4:
        return None
    how: Doubling
    for how in get_args(Doubling):  # a row of ones, as cosines of 0 are, says nothing
        one, other = _twins(tensor, how)
        if torch.equal(one, other) and bool((one != one[..., :1]).any()):
            return how
    return None


def doubled(tensor: torch.Tensor, how: Doubling | None) -> torch.Tensor:
    """The tensor with each number twice, where its rows can hold them so."""
    if how is None or tensor.shape[-1] % 2:
        return tensor
    one, _ = _twins(tensor, how)
    return torch.cat([one, one], -1) if how == "halves" else one.repeat_interleave(2, -1)


def _twins(tensor: torch.Tensor, how: Doubling) -> tuple[torch.Tensor, torch.Tensor]:
    half = tensor.shape[-1] // 2
    return (tensor[..., :half], tensor[..., half:]) if how == "halves" else (tensor[..., ::2], tensor[..., 1::2])


def is_symmetric(tensor: torch.Tensor) -> bool:
    """Whether it holds square matrices that are symmetric, and not all of one number."""
    square = tensor.dim() > 1 and tensor.numel() > 0 and tensor.shape[-1] == tensor.shape[-2] > 1
    return square and torch.equal(tensor, tensor.mT) and bool((tensor != tensor.reshape(-1)[0]).any())


def padding_rows(tensor: torch.Tensor) -> torch.Tensor | None:
    """Which rows of a table are padding: zero throughout, and few among others that differ. None: there are none."""
    if tensor.dim() != 2 or not is_inexact(tensor):
        return None
    zero = ~(tensor != 0).any(1)
    count = int(zero.sum())
    if not 1 <= count <= max(1, len(tensor) // _ONE_IN) or bool((tensor[~zero] == tensor[~zero][:1, :1]).all()):
        return None
    return zero


def _one_sign(*draws: torch.Tensor) -> bool:
    """Whether all numbers have one sign, and none is near 0."""
    values = torch.cat([draw.reshape(-1) for draw in draws])
    low, high = values.abs().aminmax()
    return bool(low > _FROM_ZERO * high) and bool((values > 0).all() or (values < 0).all())


def _structured(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    if float((values == 0).float().mean()) >= _SPARSE:
        return True
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2:
        return False
    matrix = tensor.reshape(-1, *tensor.shape[-2:])[0]
    if matrix.shape[0] != matrix.shape[1]:
        return False
    rows, columns = matrix[:_ROWS].double(), matrix[:, :_ROWS].double().T
    # a product with its own transpose is symmetric but for rounding, of sizes that are no multiples of a vector
    return bool(((rows - columns).abs() <= _ALIKE * torch.finfo(tensor.dtype).eps * rows.abs().max()).all())


def _normed(tensor: torch.Tensor) -> bool:
    if not tensor.dim() or tensor.shape[-1] < 2 or not tensor.numel():
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE].double()
    return sums_to_one(tensor) or bool(((rows.norm(dim=-1) - 1).abs() < _room(tensor)).all())


def sums_to_one(tensor: torch.Tensor) -> bool:
    """Whether all rows (last dim) sum to 1, but for rounding."""
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE].double()
    return bool(((rows.sum(-1) - 1).abs() < _room(tensor)).all())


def _rigid(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or not 2 <= tensor.shape[-1] <= _MOST_AXES:
        return False
    matrices = tensor.reshape(-1, *tensor.shape[-2:])[:_ROWS].double()
    turns = [matrices, matrices[:, :3, :3]] if tensor.shape[-1] == 4 else [matrices]
    return any(bool(((m @ m.mT - torch.eye(m.shape[-1]).to(m)).abs() < _room(tensor)).all()) for m in turns)


def _room(tensor: torch.Tensor) -> float:
    """How far from 1 a sum or a length of numbers of its type may be."""
    return max(1e-4, 4 * torch.finfo(tensor.dtype).eps)
