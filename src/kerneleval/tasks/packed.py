"""Whole numbers of few bits in words of 32 bits, and the orders in which kernels of weights in few bits keep them.

All steps are shifts, masks and permutations of int32, the same on every device. K is the dim that a product sums over.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor

_TILE, _WIDE = 16, 64
"""Marlin's tiles: rows (along K) and columns."""

_ROWS = (2, 4, 2)
"""A tile's 16 rows k = 8 h + 2 r + o as (h, r, o)."""

_COLUMNS = {"dense": (4, 2, 8), "sparse": (8, 2, 4)}
"""A tile's 64 columns: 16 w + 8 b + c as (w, b, c) and, for weights of which two in four are kept, 8 c + 4 b + w as
(c, b, w)."""

_ORDERS = {
    # dims (tile, h, r, o, tile, columns...) in the order (tile, tile, c, r, w, bits of a word)
    ("dense", 4): (0, 4, 7, 2, 5, 3, 6, 1),
    ("dense", 8): (0, 4, 7, 2, 5, 6, 3, 1),
    ("sparse", 4): (0, 4, 5, 2, 7, 3, 6, 1),
    ("sparse", 8): (0, 4, 5, 2, 7, 6, 3, 1),
}


def _shifts(words: Tensor, bits: int) -> Tensor:
    return torch.arange(0, 32, bits, device=words.device, dtype=torch.int32)


def unpack(words: Tensor, bits: int) -> Tensor:
    """The 32 / bits numbers of each word, the one in its lowest bits first, along a further last dim."""
    return (words[..., None] >> _shifts(words, bits)) & ((1 << bits) - 1)


def pack(numbers: Tensor, bits: int) -> Tensor:
    """Inverse of :func:`unpack`, for numbers of no more bits."""
    return (numbers << _shifts(numbers, bits)).sum(-1, dtype=torch.int32)


def halves(octets: Tensor) -> Tensor:
    """The last dim of bytes as two: their lower four bits, and then their upper four."""
    return torch.stack((octets & 15, octets >> 4), -2)


def unpack_rows(words: Tensor, bits: int) -> Tensor:
    """Words (..., K * bits / 32, N), each of them of neighbours along K, as (..., K, N)."""
    return unpack(words, bits).movedim(-1, -2).flatten(-3, -2)


def pack_rows(numbers: Tensor, bits: int) -> Tensor:
    """Inverse of :func:`unpack_rows`."""
    return pack(numbers.unflatten(-2, (-1, 32 // bits)).movedim(-2, -1), bits)


def evens_first(numbers: Tensor) -> Any:
    """The last dim in the order 0, 2, 4, ..., 1, 3, 5, ..."""
    return numbers.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def unpack_evens_first(words: Tensor, bits: int) -> Any:
    """Words (..., N * bits / 32), each of them of neighbours along N of which those at even places come first, as
    (..., N).
    """
    return unpack(words, bits).unflatten(-1, (2, -1)).transpose(-1, -2).flatten(-3)


def marlin(numbers: Tensor, bits: int, kind: str = "dense") -> Tensor:
    """Numbers (K, N) as words of Marlin's tiles, (K / 16, N * bits / 2)."""
    rows = numbers.unflatten(1, (-1, *_COLUMNS[kind])).unflatten(0, (-1, *_ROWS))
    words = rows.permute(_ORDERS[kind, bits]).flatten(1)
    return pack(words.unflatten(1, (-1, 32 // bits)), bits)


def of_marlin(words: Tensor, bits: int, kind: str = "dense") -> Tensor:
    """Inverse of :func:`marlin`."""
    order = _ORDERS[kind, bits]
    sizes = (words.shape[0], *_ROWS, words.shape[1] * 2 // bits // _WIDE, *_COLUMNS[kind])
    tiles = unpack(words, bits).reshape([sizes[dim] for dim in order])
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return tiles.permute(inverse).reshape(_TILE * sizes[0], _WIDE * sizes[4])


def of_marlin_scales(scales: Tensor, kind: str = "dense") -> Any:
    """Scales or zero points of groups, (groups, N), from Marlin's order: each 64 of them, seen as 8 times 8,
    transposed; of weights of which two in four are kept each 8, seen as 4 times 2.
    """
    parts = (8, 8) if kind == "dense" else (4, 2)
    return scales.unflatten(-1, (-1, *parts)).transpose(-1, -2).flatten(-3)
