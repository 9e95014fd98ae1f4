"""Arguments that a problem file gives alike under every seed and that say one thing in two ways.

Lengths and their mask, segments and their offsets, positions in them, an order and its inverse, edges and degrees: a
candidate may read either. How ``get_inputs()`` makes one of the other is not known, so their values tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.formats.soundness import is_eight_bit

MOST = 1 << 22
"""The most elements that are looked at, and the largest number that is counted."""

_ROWS = 4
"""A tensor of so many rows at most is also looked at row by row: sources and targets of edges."""


def kin(owns: Mapping[int, torch.Tensor]) -> frozenset[int]:
    """Positions of arguments of which one follows from another."""
    return frozenset().union(*relatives(owns))


def relatives(owns: Mapping[int, torch.Tensor]) -> list[frozenset[int]]:
    """Positions of arguments of which one follows from another, by what they say together: it holds the counts, steps,
    sums or inverse order of another, or both have such in common, or they are one mask, or opposite ones. Equal
    integers alone are no kin.
    """
    small = {index: own for index, own in owns.items() if own.numel() <= MOST and _varies(own)}
    masks = {index for index, own in small.items() if _is_mask(own)}
    values = {index: own.reshape(-1).double() for index, own in small.items()}
    facts = {index: list(_facts(own, index in masks)) for index, own in small.items()}
    found: list[frozenset[int]] = []
    for one, other in itertools.combinations(small, 2):
        a, b = values[one], values[other]
        if _tells(a, b):
            related = {one, other} <= masks
        else:
            related = {one, other} <= masks and _tells(1 - a, b)
            related |= any(_tells(x, y) for x in (a, *facts[one]) for y in (b, *facts[other]))
        if related:
            met = [group for group in found if group & {one, other}]
            found = [group for group in found if group not in met] + [frozenset({one, other}).union(*met)]
    return found


def _varies(tensor: torch.Tensor) -> bool:
    """Whether its numbers are real and not all 0, all 1 or the like: ones follow from everything. Equal ones above 1
    may be the lengths of segments.
    """
    if tensor.numel() < 2 or tensor.is_complex() or is_eight_bit(tensor):
        return False
    first = tensor.reshape(-1)[0]
    return bool((tensor != first).any()) or (not tensor.is_floating_point() and int(first) > 1)


def _is_mask(tensor: torch.Tensor) -> bool:
    return bool(((tensor == 0) | (tensor == 1)).all())


def _facts(tensor: torch.Tensor, mask: bool) -> Iterator[torch.Tensor]:
    """What else may be given of a tensor, as vectors."""
    numbers = tensor.double() if mask else tensor
    if mask:
        for dim in range(tensor.dim()):
            yield numbers.sum(dim).reshape(-1)
        yield numbers.cumsum(-1).reshape(-1) - 1
        if bool((numbers.sum(-1) == 1).all()):
            yield numbers.argmax(-1).reshape(-1).double()
    elif not tensor.is_floating_point():
        table = tensor.long().reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.long().reshape(1, -1)
        for row in (*(table if 1 < len(table) <= _ROWS else ()), table.reshape(-1)):
            yield from (row.diff().double(), row.cumsum(0).double())
            if _is_order(row):
                yield row.argsort().double()
            if int(row.min()) >= 0 and int(row.max()) < MOST:
                yield row.bincount().double()
        for vector in vectors(tensor):
            if (runs := run_lengths(vector)) is not None:
                # rows that all count from 0 on are those of a padded batch, too, whose lengths may be others
                whole = tensor.dim() > 1 and len(runs) > 1 and int(runs.amin()) == tensor.shape[-1]
                yield (F.pad(runs.cumsum(0), (1, 0)) if whole else runs).double()


def vectors(tensor: torch.Tensor) -> list[torch.Tensor]:
    """All integers in a row and, where its rows are equal, the first of them: packed positions of shape (1, T) or
    (B, T) stand beside offsets of T rows, or of B times T.
    """
    rows = tensor.long().reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
    alike = 1 < len(rows) < rows.numel() and bool((rows == rows[0]).all())
    return [rows.reshape(-1), *([rows[0]] if alike else [])]


def run_lengths(vector: torch.Tensor) -> torch.Tensor | None:
    """How long the segments are in which integers count from 0 on; None: they are no such positions."""
    begins = (vector == 0).nonzero().reshape(-1)
    if not len(begins) or int(vector[0]) or bool(((vector.diff() != 1) & (vector[1:] != 0)).any()):
        return None
    return torch.cat([begins, begins.new_full((1,), len(vector))]).diff()


def _is_order(row: torch.Tensor) -> bool:
    """Whether it holds the numbers from 0 on, each once, and not in order: places, of which there is an inverse."""
    numbers = torch.arange(len(row), device=row.device)
    return torch.equal(row.sort().values, numbers) and not torch.equal(row, numbers)


def _tells(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two vectors are equal, and not all of one number below 2."""
    return len(one) > 1 and torch.equal(one, other) and bool(one.amax() > 1 or (one != one[0]).any())
