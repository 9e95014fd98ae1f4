"""Other integers, flags and masks in place of those that a problem file gives alike under every seed.

What they mean is not known, so what makes them valid is kept: values come from the same line of the tensor (its longest
dim), a permutation stays one, what is sorted stays sorted, and no value disappears from a row of a mask.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.formats.kin import MOST, kin, relatives, run_lengths, vectors
from kerneleval.tasks.formats.soundness import is_eight_bit
from kerneleval.tasks.formats.traits import are_flags, is_symmetric

_PIECE = 1 << 24
"""Elements of a mask drawn together."""

_LARGE = 1 << 31
"""Equal integers from here on mark something."""

_MIXED = 0.5
"""Part of the elements that are drawn anew, beyond another order."""

_Pair = tuple[torch.Tensor, torch.Tensor]
"""The file's own tensor, and another in its place."""

Family = tuple[frozenset[int], ...]
"""Positions of arguments that change together, in parts that each say one thing: the segments of queries, and those of
keys.
"""

_ORDERS = 9
"""How often segments change places until their lengths do."""

_FEW, _CHANCE = 4, 8
"""Places in a row of a mask, and in all of its rows that have both values, that may be in order by chance."""

_ROW = 8
"""Integers of a batch of one that are a row of a mask, at least."""

_CLOSED = -1000.0
"""Numbers below this, added to scores, leave nothing of them."""


def redrawn(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Another tensor that is as valid; None: none is known (equal steps, equal negative integers, sorted integers that
    do not begin at 0, single flags and floating numbers, floating numbers of eight bits).

    Masks are flags, integers that are 0 or 1 in two or more dims, and floating numbers of few values: 0 and 1, 1 alone
    in two or more dims, or some 0 and others below -1000. Integers that are all different change places, and so do runs
    of consecutive ones (positions): all rows alike, but each in its own way where all are equal. Sorted numbers of
    segments stay sorted, each in use. Other sorted integers from 0 on may be offsets: their steps change places, so the
    last one and the longest part stay. All others are drawn from those of their line; where one number is negative, it
    marks what counts for nothing, and stays where it is. Of equal integers (lengths, types, steps so far) some become
    others: zeros ones, behind a place in their row, ones two, and larger ones as small as half.
    """
    if not tensor.numel() or tensor.is_complex() or is_eight_bit(tensor):
        return None
    if tensor.numel() == 1 and (tensor.dtype == torch.bool or tensor.is_floating_point()):
        return None
    if tensor.dtype == torch.bool:
        return _mask(tensor, torch.tensor([False, True], device=tensor.device), generator)
    low, high = (float(end) for end in tensor.aminmax())
    if tensor.is_floating_point():
        values = tensor.unique()
        closing = _closes(values)
        if are_ones(tensor) or (high == 1 and low == 0 and len(values) == 2):
            closing, values = True, torch.tensor([0, 1], dtype=tensor.dtype, device=tensor.device)
        return _mask(tensor, values, generator) if closing else None
    if low >= 0 and high == 1 and _is_table(tensor):
        return _mask(tensor, torch.tensor([0, 1], dtype=tensor.dtype, device=tensor.device), generator)
    if low == high:
        return _unequal(tensor, int(low), generator) if 0 <= low < _LARGE else None
    if is_symmetric(tensor):
        return _relabelled(tensor, generator)
    longest = max(range(tensor.dim()), key=lambda dim: tensor.shape[dim])
    lines = tensor.movedim(longest, -1)
    steps = lines[..., 1:].long() - lines[..., :-1].long()
    if bool((steps >= 0).all()) and not bool((steps == 1).all()):
        drawn = _segments(lines.reshape(-1), generator) if lines.shape[-1] == lines.numel() else None
        return None if drawn is None else drawn.view(tensor.shape)
    if different(tensor):
        rows = lines.reshape(-1, lines.shape[-1])
        in_memory = all(tensor.stride(dim) for dim, size in enumerate(tensor.shape) if size > 1)
        if len(rows) > 1 and in_memory and bool((rows == rows[0]).all()):
            return lines.gather(-1, _uniform(lines.shape, generator).argsort(-1)).movedim(-1, longest).contiguous()
        return tensor.index_select(longest, _order(tensor.shape[longest], generator))
    return _of_lines(lines, generator).movedim(-1, longest).contiguous()


def with_more_marks(tensor: torch.Tensor, mark: int, generator: torch.Generator, filled: bool) -> torch.Tensor:
    """Integers with a mark at more places of each row (last dim), next to its own where these are all at one end; the
    others stay. One of several rows has nothing else, but where all are to be ``filled``.
    """
    marked = tensor == mark
    rows = marked.reshape(-1, tensor.shape[-1])
    free = (~rows).sum(-1, keepdim=True)
    drawn = torch.rand(len(rows), 1, generator=generator, device=tensor.device)
    more = torch.where(free > 1, 1 + (drawn * (free - 1)).long().clamp(max=free - 2), 0)
    place = torch.arange(rows.shape[-1], device=tensor.device).expand(rows.shape).float()
    if bool((rows[:, 1:] <= rows[:, :-1]).all()):
        place = -place
    elif not bool((rows[:, 1:] >= rows[:, :-1]).all()):
        place = torch.rand(rows.shape, generator=generator, device=tensor.device)
    first = place.masked_fill(rows, -math.inf).argsort(-1, descending=True).argsort(-1)
    found = rows | (first < more)
    if len(rows) > 1 and not filled:
        found[torch.randint(len(rows), (), generator=generator, device=tensor.device)] = True
    return torch.where(found.view(tensor.shape), mark, tensor)


def marks_are_told(index: int, marks: Mapping[int, int], args: Sequence[object]) -> bool:
    """Whether another argument may tell where an argument has its mark: a number, lengths, a mask, or marks of its own
    at the same places.
    """
    own = args[index]
    assert isinstance(own, torch.Tensor)
    marked = own == marks[index]
    others = {i: arg for i, arg in enumerate(args) if isinstance(arg, torch.Tensor) and i != index}
    if any(i in marks and torch.equal(other == marks[i], marked) for i, other in others.items()):
        return True
    whole = {i: arg for i, arg in others.items() if _is_whole(arg) or is_mask(arg)}
    counts = marked.sum(-1).unique().tolist()
    numbers = _single(args)
    told = any(count in numbers or own.shape[-1] - count in numbers for count in counts)
    return told or any(index in kin({**whole, index: places}) for places in (marked, ~marked))


def _unequal(tensor: torch.Tensor, value: int, generator: torch.Generator) -> torch.Tensor:
    """Some of the elements, which all have this value, with others: at least one of them, and not all of several. Of
    zeros those behind a place in each row, as segments and types of tokens are.
    """
    if value == 0 and tensor.dim() and tensor.shape[-1] > 1:
        rows = tensor.reshape(-1, tensor.shape[-1])
        count, width = rows.shape
        begins = torch.randint(width + 1, (count, 1), generator=generator, device=tensor.device)
        begins[0] = torch.randint(1, width, (1,), generator=generator, device=tensor.device)
        return (torch.arange(width, device=tensor.device) >= begins).to(tensor.dtype).view(tensor.shape)
    least, most = (value + 1, value + 1) if value < 2 else ((value + 1) // 2, value - 1)
    others = torch.randint(least, most + 1, tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)
    places = torch.randperm(tensor.numel(), generator=generator, device=tensor.device).view(tensor.shape)
    return torch.where(places < (tensor.numel() + 1) // 2, others, tensor)


def says_sizes(tensor: torch.Tensor, beside: Sequence[object]) -> bool:
    """Whether equal integers add up to a size of another argument, or to the product of its first ones, and may say how
    it is divided; or a single one is the largest, the sum or the number of other integers.
    """
    if not tensor.numel() or not _is_whole(tensor) or not bool((tensor == tensor.flatten()[0]).all()):
        return False
    if are_ones(tensor):  # a mask, of as many elements as there are rows
        return False
    total, others = int(tensor.sum()), [one for one in beside if isinstance(one, torch.Tensor) and one is not tensor]
    if tensor.numel() > 1:
        return any(total in (*one.shape, *itertools.accumulate(one.shape, operator.mul)) for one in others)
    whole = [one for one in others if _is_whole(one) and one.numel()]
    return any(total in (int(one.max()), int(one.max()) + 1, int(one.sum()), one.numel()) for one in whole)


def repeated_dims(*draws: object) -> tuple[int, ...]:
    """Dims but the last along which elements of all these tensors are equal, several of them."""
    tensors = [one for one in draws if isinstance(one, torch.Tensor)]
    return tuple(
        dim
        for dim in range(min((one.dim() for one in tensors), default=0) - 1)
        if all(one.shape[dim] > 1 and bool((one == one.narrow(dim, 0, 1)).all()) for one in tensors)
    )


def repeated(tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """The tensor with its first elements along these dims in place of all others."""
    first = tensor
    for dim in dims:
        first = first.narrow(dim, 0, min(1, first.shape[dim]))
    return first.expand_as(tensor).contiguous()


def add_up(tensor: torch.Tensor, beside: Sequence[object]) -> bool:
    """Whether the numbers of a vector, all above 0, add up to a size of another argument: parts of its rows."""
    if tensor.dim() != 1 or tensor.numel() < 2 or not _is_whole(tensor) or int(tensor.min()) < 1:
        return False
    others = [one for one in beside if isinstance(one, torch.Tensor) and one is not tensor]
    return any(int(tensor.sum()) in one.shape for one in others)


def in_other_order(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """A vector in another order; None: its numbers are equal."""
    if bool((tensor == tensor[0]).all()):
        return None
    found = tensor
    while torch.equal(found, tensor):
        found = tensor[_order(len(tensor), generator)]
    return found


def keep_in_order(
    owns: Mapping[int, torch.Tensor], others: Mapping[int, torch.Tensor], generator: torch.Generator
) -> None:
    """Mend others in whose place the file's own integers are in an order throughout, by position: starts and ends, as
    two arguments of one shape or as the two halves of one. Vectors that are out of it are the file's own in one order
    for all; what is sorted, and tensors of more dims at those places, are put back. Offsets stay whose lengths are
    given beside them, and so do these lengths. Equal offsets, of queries and of keys, stay equal.
    """
    whole = [(own, others[index]) for index, own in owns.items() if _is_whole(own)]
    _keep_alike(whole)
    pairs = list(itertools.permutations(whole, 2))
    for own, other in whole:
        for dim in (dim for dim, size in enumerate(own.shape) if size == 2):
            ends = [(own.select(dim, end), other.select(dim, end)) for end in (0, 1)]
            pairs += itertools.permutations(ends, 2)
    ordered = [(low, high) for low, high in pairs if _in_order(low[0], high[0])]
    back: set[int] = set()
    orders: dict[int, torch.Tensor] = {}
    for turn in range(3 * len(ordered)):
        for pair in ordered:
            places = _out_of_order(*pair)
            if not bool(places.any()):
                continue
            last_turns = turn >= 2 * len(ordered)
            if last_turns or any(id(other) in back or _stays(own) for own, other in pair):
                back |= {id(other) for _, other in pair}
            for own, other in pair:
                if id(other) in back:
                    other.copy_(own)
                elif own.dim() != 1:
                    other[places] = own[places]
                else:
                    order = torch.randperm(len(own), generator=generator, device=own.device)
                    other.copy_(own[orders.setdefault(len(own), order)])


def moved_together(owns: Mapping[int, torch.Tensor], generator: torch.Generator) -> dict[int, torch.Tensor]:
    """Kin whose rows change places alike, as the lengths and the mask of a batch may. Empty: one has more rows than
    another or is in order, or they are no kin in another order.
    """
    rows = {own.shape[0] if own.dim() else 1 for own in owns.values()}
    if len(rows) != 1 or rows == {1} or any(_is_sorted(own) for own in owns.values()):
        return {}
    order = _order(rows.pop(), generator)
    moved = {index: own.index_select(0, order) for index, own in owns.items()}
    for index, own in owns.items():
        if own.dim() == 2 and is_symmetric(own):
            moved[index] = moved[index].index_select(1, order)
    too_large = any(own.numel() > MOST for own in owns.values())  # the miniature has told
    return moved if too_large or kin(moved) == owns.keys() else {}


def _is_sorted(tensor: torch.Tensor) -> bool:
    steps = tensor.diff() if tensor.dim() == 1 and tensor.dtype != torch.bool else tensor[:0]
    return bool(steps.numel()) and bool((steps >= 0).all() | (steps <= 0).all())


def _keep_alike(whole: Sequence[_Pair]) -> None:
    """Put offsets back whose lengths are given beside them, and these lengths; make others of equal offsets equal."""
    for (own, other), (partner, drawn) in itertools.permutations(whole, 2):
        if own.dim() == 1 and torch.equal(own.diff().long(), partner.long()):
            other.copy_(own)
            drawn.copy_(partner)
    for (own, other), (partner, drawn) in itertools.combinations(whole, 2):
        if own.dim() == 1 and torch.equal(own.long(), partner.long()) and _are_offsets(own, even=True):
            one, two = (drawn, other) if torch.equal(other, own) else (other, drawn)
            two.copy_(one)


def _out_of_order(low: _Pair, high: _Pair) -> torch.Tensor:
    """Where another number, beside its own in either pair, is larger than its partner, or equal and none of its own
    is.
    """
    out = low[1] > high[1]
    return out if bool((low[0] == high[0]).any()) else out | (low[1] == high[1])


def _stays(own: torch.Tensor) -> bool:
    """Whether it is a vector that is sorted, or marks something by negative numbers."""
    return own.dim() == 1 and (bool((own[1:] >= own[:-1]).all()) or bool((own < 0).any()))


def _is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _in_order(low: torch.Tensor, high: torch.Tensor) -> bool:
    """Whether none of several numbers is larger than its partner, and some is smaller."""
    return low.shape == high.shape and low.numel() > 1 and bool((low <= high).all()) and bool((low < high).any())


def are_ones(tensor: torch.Tensor) -> bool:
    """Whether it holds ones alone, in two or more dims: a mask that hides nothing."""
    return _is_table(tensor) and bool((tensor == 1).all())


def _is_table(tensor: torch.Tensor) -> bool:
    """Whether it has two dims or more with several elements; of integers the first may be a batch of one, beside a row
    of eight or more: floating numbers of one row may be factors.
    """
    single = _is_whole(tensor) and tensor.dim() > 1 and tensor.shape[0] == 1 and tensor.shape[-1] >= _ROW
    return single or sum(size > 1 for size in tensor.shape) > 1


def is_mask(tensor: torch.Tensor) -> bool:
    """Whether it holds flags of both kinds, or floating numbers that hide some of what they are added to."""
    closing = tensor.is_floating_point() and not is_eight_bit(tensor) and _closes(tensor.unique())
    return are_flags(tensor) or closing


def _closes(values: torch.Tensor) -> bool:
    """Whether of the few values of a mask, in order, the last one is 0 and the first hides what it is added to."""
    return 2 <= len(values) <= 16 and float(values[0]) < _CLOSED and float(values[-1]) == 0


def _mask(tensor: torch.Tensor, values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row in another order, and a part of it drawn anew, though not where every row has as many of each value, as
    in one-hot rows. At least one place of each value that a row has stays. Rows in order, as padding leaves them, stay
    so, along several dims too; boxes of rows and columns, as padded images have, stay boxes. What is symmetric, as the
    edges of a graph, stays so, where that makes another: rows and columns change places alike.
    """
    if is_symmetric(tensor) and not torch.equal(tensor, moved := _relabelled(tensor, generator)):
        return moved
    orders = _orders_of_mask(tensor)
    joined, sides = _box(tensor, orders) or (None, [tensor])
    for _ in range(_ORDERS):
        made = [_drawn_anew(side, values, generator, *order) for side, order in zip(sides, orders, strict=False)]
        found = made[0] if joined is None else functools.reduce(joined, made)
        for dim, descending in orders if joined is None else ():
            found = _in_order_along(found, dim, descending)
        if not torch.equal(found, tensor):
            break
    return found.contiguous()


def _box(
    mask: torch.Tensor, orders: Sequence[tuple[int, bool | None]]
) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]] | None:
    """What joins the sides of a box that begins where the dims do to a mask, and the sides, one for each dim; None:
    there are no boxes along them.
    """
    dims, down = [dim for dim, _ in orders], {descending for _, descending in orders}
    if len(dims) < 2 or len(down) > 1:
        return None
    joined, cast = (torch.minimum, torch.amax) if down == {True} else (torch.maximum, torch.amin)
    sides = [cast(mask, [other for other in dims if other != dim], keepdim=True) for dim in dims]
    return (joined, sides) if torch.equal(functools.reduce(joined, sides), mask) else None


def _drawn_anew(
    mask: torch.Tensor, values: torch.Tensor, generator: torch.Generator, dim: int, descending: bool | None
) -> torch.Tensor:
    """A mask of which each row along a dim is another one, in order where it was."""
    lines = mask.movedim(dim, -1)
    table = lines.reshape(-1, lines.shape[-1])
    counts = torch.stack([(table == value).sum(-1) for value in values])
    even = len(table) > 1 and bool((counts == counts[:, :1]).all()) and int(counts.max()) < table.shape[-1]
    even = even and descending is None
    rows = table.split(max(1, _PIECE // table.shape[-1]))
    made = torch.cat([_mixed(one, values, generator, even) for one in rows]).view(lines.shape).movedim(-1, dim)
    return _in_order_along(made, dim, descending)


def _mixed(rows: torch.Tensor, values: torch.Tensor, generator: torch.Generator, even: bool) -> torch.Tensor:
    """Rows of a mask in another order, and a part of them drawn anew where they are not ``even``."""
    mixed = rows.gather(-1, _uniform(rows.shape, generator).argsort(-1))
    free = _uniform(rows.shape, generator) < (0 if even else _MIXED)
    for value in values:
        here = mixed == value
        free &= ~(here & (here.cumsum(-1) == 1))
    drawn = torch.randint(len(values), rows.shape, generator=generator, device=rows.device)
    return torch.where(free, values[drawn], mixed)


def _in_order_along(mask: torch.Tensor, dim: int, descending: bool | None) -> torch.Tensor:
    """A mask sorted along a dim; None: it stays as it is."""
    if descending is None:
        return mask
    flags = mask if mask.is_floating_point() else mask.to(torch.uint8)
    return flags.sort(dim=dim, descending=descending).values.to(mask.dtype)


def _orders_of_mask(mask: torch.Tensor) -> list[tuple[int, bool | None]]:
    """The dims along which the rows of a mask are in order, the longest first, of equal ones the last, and whether they
    descend; else the last one of several places, and None. Sequences may lie along the first dim, and be sorted by
    length. Rows that each have a single place of a value at an end may be one-hot ones.
    """
    several = [dim for dim in reversed(range(mask.dim())) if mask.shape[dim] > 1]
    fits: list[tuple[int, bool | None]] = []
    for dim in (dim for dim in several if mask.shape[dim] >= _FEW):
        before, after = (mask.narrow(dim, start, mask.shape[dim] - 1) for start in (0, 1))
        turns = (before != after).movedim(dim, -1)
        single = (turns[..., 0] | turns[..., -1]).sum()
        if int(turns.sum(-1).max()) == 1 and int(turns.sum()) * mask.shape[dim] >= _CHANCE and single < turns.sum():
            for descending in (False, True):
                if bool((before >= after if descending else before <= after).all()):
                    fits.append((dim, descending))
    return sorted(fits, key=lambda fit: -mask.shape[fit[0]]) or [(several[0], None)]


def _relabelled(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Square matrices with their rows and columns in another order, the same one for both."""
    order = _order(tensor.shape[-1], generator)
    return tensor.index_select(-1, order).index_select(-2, order)


def _segments(sorted_: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """Segments of other lengths. Where they are no numbers of segments, 0 to fewer than there are elements, offsets."""
    numbers = sorted_.unique()
    if len(numbers) == len(sorted_) or not torch.equal(numbers, torch.arange(len(numbers)).to(numbers)):
        return _offsets(sorted_, generator)
    more = torch.randint(len(numbers), (len(sorted_) - len(numbers),), generator=generator, device=sorted_.device)
    return torch.cat([numbers, numbers[more]]).sort().values


def _are_offsets(vector: torch.Tensor, *, even: bool = False) -> bool:
    """Whether integers ascend from 0 in steps that are not all equal, or ``even`` ones above 1."""
    steps = vector.diff()
    if len(steps) < 2 or int(vector[0]):
        return False
    return 0 <= int(steps.min()) < int(steps.max()) or (even and int(steps.min()) > 1)


def _offsets(sorted_: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
    """The same steps in another order; None: they are no offsets."""
    if not _are_offsets(sorted_):
        return None
    drawn = steps = sorted_.diff()
    while torch.equal(drawn, steps):
        drawn = steps[torch.randperm(len(steps), generator=generator, device=steps.device)]
    return torch.cat([sorted_[:1], drawn.cumsum(0).to(sorted_.dtype)])


def equal_segments(tensor: torch.Tensor, beside: Sequence[object]) -> int:
    """The end of the last of two or more equal segments, of which integers are the offsets: a size of another argument,
    named by the last offset or one step after it. 0: they are no such offsets; or they must stay as they are, because
    something else may say how long segments are: a number, two sizes of an argument, or as many other integers.
    """
    if tensor.dim() != 1 or tensor.numel() < 2 or not _is_whole(tensor) or int(tensor[0]):
        return 0
    steps, others = tensor.diff(), [one for one in beside if isinstance(one, torch.Tensor) and one is not tensor]
    step, last, sizes = int(steps[0]), int(tensor[-1]), {size for one in others for size in one.shape}
    if step < 2 or not bool((steps == step).all()) or any(step <= one < last for one in _single(beside)):
        return 0
    closed = last in sizes
    count = len(steps) if closed else len(tensor)
    if any(tuple(one.shape[:2]) == (count, step) for one in others) or count < 2:
        return 0
    alone = not any(_is_whole(one) and one.shape == tensor.shape for one in others)
    return last if closed else last + step if alone and last + step in sizes else 0


def _single(values: Iterable[object]) -> list[int]:
    """The plain integers among values, and those in tensors of one element."""
    tensors = (one for one in values if isinstance(one, torch.Tensor) and one.numel() == 1 and _is_whole(one))
    return [*(one for one in values if type(one) is int), *map(int, tensors)]


def in_unequal_segments(tensor: torch.Tensor, end: int, generator: torch.Generator, filled: bool) -> torch.Tensor:
    """Offsets of other segments up to the same end, none of them empty where they are to be ``filled``, else one."""
    count = len(tensor) - int(int(tensor[-1]) == end)
    device, found = tensor.device, tensor
    while torch.equal(found, tensor):
        cuts = torch.randperm(end - 1, generator=generator, device=device)[: count - 1].sort().values + 1
        if not filled:
            place = int(torch.randint(count - 1, (1,), generator=generator, device=device))
            cuts[place] = cuts[place + 1] if place + 1 < len(cuts) else end
        found = torch.cat([tensor[:1], cuts.to(tensor.dtype), tensor[count:]])
    return found


class _Division(NamedTuple):
    """How arguments divide the rows of another one into segments."""

    lengths: torch.Tensor
    names: Mapping[int, str]
    """Which of the forms of these lengths each argument has, by its position."""
    width: int
    """Of the rows of a batch, in which segments stay; else the sum of all lengths."""


def families(args: Sequence[Any], frozen: Iterable[int], beside: Sequence[object]) -> tuple[Family, ...]:
    """Which of the arguments that never vary change together: those of which one follows from another, and all that
    make as many segments, as offsets of queries and of keys do. ``beside``: arguments of ``Model``.
    """
    owns = {index: args[index] for index in sorted(frozen)}
    parts = relatives(owns)
    ranges = {i for i, own in owns.items() if own.dim() == 1 and _is_whole(own) and _are_offsets(own, even=True)}
    parts += [frozenset((index,)) for index in sorted(ranges - frozenset().union(*parts))]
    known = frozenset().union(*parts)
    rest = [*(value for index, value in enumerate(args) if index not in known), *beside]
    found: dict[int, list[frozenset[int]]] = {}
    for part in parts:
        made = _division({index: owns[index] for index in part}, rest)
        found.setdefault(-min(part) if made is None else len(made.lengths), []).append(part)
    return tuple(tuple(parts) for parts in found.values() if len(parts) > 1 or len(parts[0]) > 1)


def in_other_segments(
    parts: Sequence[Mapping[int, torch.Tensor]], beside: Sequence[object], generator: torch.Generator, filled: bool
) -> dict[int, torch.Tensor]:
    """Kin that all say how the rows of another argument are divided into segments, by their lengths, numbers, offsets,
    starts, ends or the positions in them: of other segments. Equal ones become unequal where :func:`equal_segments`
    allows that, none of them empty where they are to be ``filled``; others change places. Those of a batch stay in its
    rows. Several parts with as many segments change alike, so a segment that was no longer than its partner stays so.
    Empty: they say something else.
    """
    made = [_division(owns, beside) for owns in parts]
    divisions = [one for one in made if one is not None]
    if len(divisions) < len(made) or len({len(one.lengths) for one in divisions}) != 1:
        return {}
    found: dict[int, torch.Tensor] = {}
    for division, owns, others in zip(divisions, parts, _other_lengths(divisions, generator, filled), strict=False):
        forms = _forms(others)
        for index, name in division.names.items():
            own, new = owns[index], forms[name].to(owns[index].dtype)
            found[index] = new.reshape(own.shape) if len(new) == own.numel() else new.repeat(*own.shape[:-1], 1)
    return found


def _division(owns: Mapping[int, torch.Tensor], beside: Sequence[object]) -> _Division | None:
    """How arguments divide the rows of another one; None: they say something else, or segments must stay equal."""
    if not all(own.numel() and _is_whole(own) for own in owns.values()):
        return None
    shapes = [one.shape for one in beside if isinstance(one, torch.Tensor)]
    sizes = {size for shape in shapes for size in (*shape, *itertools.accumulate(shape, operator.mul))}
    told = [vector.long() for own in owns.values() for vector in vectors(own)]
    for lengths in (one for vector in told for one in _lengths(vector)):
        lone = len(owns) == 1 and not torch.equal(lengths, told[0])
        if len(lengths) < 2 or int(lengths.min()) < 0 or not (lone or int(lengths.sum()) in sizes):
            continue
        forms = _forms(lengths)
        names = {index: _name(own, forms) for index, own in owns.items()}
        if not all(names.values()):
            continue
        widths = [own.shape[-1] for i, own in owns.items() if own.dim() > 1 and own.numel() == len(forms[names[i]])]
        division = _Division(lengths, names, min(widths, default=int(lengths.sum())))
        if _are_equal(lengths):
            offsets = told[0] if lone else forms["offsets"]
            end = equal_segments(offsets, [*beside, *(own for own in owns.values() if own.dim() > 1)])
            if not end or division.width < int(lengths.sum()):
                return None
            if end > int(lengths.sum()):  # the last one ends where the rows do
                return _Division(torch.cat([lengths, lengths[:1]]), dict.fromkeys(names, "starts"), end)
        return division
    return None


def _are_equal(lengths: torch.Tensor) -> bool:
    return bool((lengths == lengths[0]).all())


def _other_lengths(divisions: Sequence[_Division], generator: torch.Generator, filled: bool) -> list[torch.Tensor]:
    """Other lengths of as many segments for each division. Empty: they cannot all keep to their rows."""
    owns = [one.lengths for one in divisions]
    totals = [int(own.sum()) for own in owns]
    if all(map(_are_equal, owns)):
        ranks = sorted(range(len(owns)), key=totals.__getitem__)
        made = {ranks[0]: in_unequal_segments(_forms(owns[ranks[0]])["offsets"], totals[ranks[0]], generator, filled)}
        made[ranks[0]] = made[ranks[0]].diff()
        for last, rank in itertools.pairwise(ranks):
            cuts = torch.randint(
                totals[rank] - totals[last] + 1, (len(owns[rank]) - 1,), generator=generator, device=owns[rank].device
            )
            ends = (
                F.pad(cuts.sort().values, (1, 0)),
                F.pad(cuts.sort().values, (0, 1), value=totals[rank] - totals[last]),
            )
            made[rank] = made[last] + ends[1] - ends[0]
        return [made[rank] for rank in range(len(owns))]
    narrow = [one for one, total in zip(divisions, totals, strict=True) if one.width < total]
    if len(narrow) > 1:
        return []
    lead = narrow[0] if narrow else next(one for one in divisions if not _are_equal(one.lengths))
    for _ in range(_ORDERS):
        order = _in_other_rows(lead.lengths, lead.width, generator)
        if not torch.equal(lead.lengths[order], lead.lengths):
            break
    return [own[order] for own in owns]


def _name(tensor: torch.Tensor, forms: Mapping[str, torch.Tensor]) -> str:
    """Which of the forms a tensor has, in its rows or in all of them together; empty: none."""
    return next((name for one in vectors(tensor) for name, form in forms.items() if torch.equal(form, one)), "")


def _in_other_rows(lengths: torch.Tensor, width: int, generator: torch.Generator) -> torch.Tensor:
    """Another order of segments. Where segments fill rows of this width, they stay in one, and rows change places."""
    ends = lengths.cumsum(0)
    count = int(ends[-1]) // max(1, width)
    if count < 2 or not torch.isin(width * torch.arange(1, count + 1, device=ends.device), ends).all():
        return _order(len(lengths), generator)
    rows = (ends - lengths).div(max(1, width), rounding_mode="floor")
    return torch.argsort(_order(count, generator)[rows.clamp_max(count - 1)] + _uniform(rows.shape, generator))


def _lengths(vector: torch.Tensor) -> Iterator[torch.Tensor]:
    """Lengths of segments that a vector may tell of; what ascends from 0 is rather offsets than lengths itself."""
    ascends = len(vector) > 1 and bool((vector.diff() >= 0).all()) and int(vector[0]) >= 0
    if not ascends or int(vector[0]):
        yield vector
    if ascends:
        yield vector.diff() if not int(vector[0]) else torch.cat([vector[:1], vector.diff()])
        if int(vector[-1]) < len(vector):
            yield vector.bincount()
    if (runs := run_lengths(vector)) is not None:
        yield runs
    if ascends and not int(vector[0]):
        yield vector


def _forms(lengths: torch.Tensor) -> dict[str, torch.Tensor]:
    """What may be given of segments of these lengths."""
    ends = lengths.cumsum(0)
    starts = ends - lengths
    numbers = torch.arange(len(lengths), device=lengths.device).repeat_interleave(lengths)
    positions = torch.arange(len(numbers), device=lengths.device) - starts[numbers]
    forms = {"lengths": lengths, "numbers": numbers, "starts": starts, "ends": ends, "positions": positions}
    return {**forms, "offsets": torch.cat([starts[:1], ends])}


def _of_lines(lines: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each line in another order and, where numbers repeat, a part of it drawn anew from it. The extremes of the whole
    stay in use, for something may have their size.
    """
    below = lines[lines < 0].unique()
    closed = lines < 0 if len(below) == 1 else torch.zeros_like(lines, dtype=torch.bool)
    order = (_uniform(lines.shape, generator) + closed).argsort(-1)  # what is not closed first
    values, ordered = lines.gather(-1, order), lines.sort(-1).values
    repeated = (ordered[..., 1:] == ordered[..., :-1]) & ~((ordered[..., 1:] < 0) & (len(below) == 1))
    if bool(repeated.any()):
        count = (~closed).sum(-1, keepdim=True)
        picks = (_uniform(lines.shape, generator) * count).long()
        ends = values.eq(lines[~closed].min()) | values.eq(lines.max())
        free = (_uniform(lines.shape, generator) < _MIXED) & ~ends & (values.ge(0) if len(below) == 1 else True)
        values = torch.where(free, values.gather(-1, picks), values)
    places = closed.to(torch.int8).sort(dim=-1, stable=True).indices
    return torch.empty_like(lines).scatter(-1, places, values)


def different(tensor: torch.Tensor) -> bool:
    """Whether along some dim no two elements are equal."""
    return any(_different(tensor, dim) for dim, size in enumerate(tensor.shape) if size > 1)


def _different(tensor: torch.Tensor, dim: int) -> bool:
    """Whether along the dim no two elements are equal."""
    ordered = tensor.sort(dim).values
    length = tensor.shape[dim]
    return bool((ordered.narrow(dim, 1, length - 1) != ordered.narrow(dim, 0, length - 1)).all())


def _order(count: int, generator: torch.Generator) -> torch.Tensor:
    """A secret order of so many places that is not theirs."""
    order = torch.randperm(count, generator=generator, device=generator.device)
    return order.roll(1) if torch.equal(order, torch.arange(count, device=order.device)) else order


def _uniform(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float32)
