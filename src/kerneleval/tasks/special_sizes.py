"""Special sizes: those at which kernels change their path, such as many rows, long rows, a single query, and sizes
beside blocks. Drawn from the system's randomness; ``secret_sizes.py`` has the others.
"""

from __future__ import annotations

import functools
import itertools
import math
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kerneleval.records import Arg, Case, Dim, Direction, Task, formula_names
from kerneleval.tasks.sampling import Fits, draw, exists
from kerneleval.tasks.shapes import EDGE, PART, Budget, within

_CHANCE = secrets.SystemRandom()

TRIALS = 16
"""How often secret sizes are drawn until some fit and are new."""

BLOCK = 64
"""Elements of a block, or a multiple of them: a size one less or more is often handled apart."""

THIN = 6
"""Steps above its lowest value of a secret thin dim, at most."""

_WIDE_BYTES = 64 << 20
"""Bytes of a secret case of two large sides, at most, where a case's budget is smaller."""

_WIDER = 4
"""Such a case takes at most so many times the budget: it is called once, and not timed."""

_BLOCKS = (64, 32, 16)
"""Blocks beside multiples of which several dims lie at once: the first at which such a case fits."""

_SEVERAL = 3
"""So many dims do at most."""

_FLAT = 4096
"""Elements of a block beside multiples of which the number of all elements lies."""

_MOST_FLAT = 1 << 17

_MOST_FACTOR = 512

_TALL = 4096
"""A tall case has more rows, where the dim may have more."""

_BATCH = 256
"""And more items than this, where it may not."""

_TALLER = 65_535
"""And more rows than this where the budget is large and rows stand for any number of dims: what a grid's second and
third dim may have.
"""

_TALLER_BYTES = 64 << 20

_LONG = _TALLER + _TALLER // 16
"""Least size of a long dim: what a kernel leaves out beyond 16 bits is a part that shows."""

_SINGLE_ROWS = 12
"""Cases of a single long row: one of two of its elements is beyond 16 bits, so one in 1,000 times that of none."""

TALLEST = _TALLER + _TALLER // 16
"""Rows that any of these cases has at most."""

_FEW_COLUMNS = 16
"""Columns at most of such a case in a further dtype."""

_LESS = 0.85
"""Factor by which a dim is made smaller until the case fits."""

_ALONE = (2048, 1024)
"""Where a single dim of a task scales, as rows of square matrices or keys of self-attention, it is larger in one case
than the first of these that fits, unless it is in a planned case. Of two sequences packed in more than 2048 places one
is beyond 1024.
"""

_MORE_FLOPS = 16
"""Such a case may take so many times the operations, since it is called once."""

_KEYS = (300, 4000)
"""Keys of a single query."""

_MANY_KEYS = (4097, 8191)
"""And of a few: beyond what splits of a fixed number hold."""

_FEW_QUERIES = 16
"""So many are few, at most."""

_SIDES = (256, 4096)
"""Both sides of a matrix that few rows are multiplied by."""


def beyond_16_bits(task: Task, case: Case) -> bool:
    """Whether rows are longer than an unsigned number of 16 bits holds (``Dim.long``): a dim that comes first in every
    argument counts items, unless there is no other.
    """
    shapes = [arg.shape.split() for arg in task.table.args if isinstance(arg, Arg)]
    within = {name for shape in shapes for name in (shape[1:] or shape)}
    return any(case.dims_map[dim.name] > _TALLER for dim in task.dims if dim.long and dim.name in within)


def special_cases(task: Task, alike: Sequence[Case], categories: Sequence[str], budget: Budget) -> Iterator[Case]:
    """One case at each of the sizes at which kernels change their path, where the largest shapes were asked for."""
    if not _largest_asked(task, categories):
        return
    case = replace(alike[0], layout="contiguous", distribution="standard", shape_category=EDGE)
    less = Budget(memory_bytes=budget.memory_bytes // PART, flops=budget.flops // PART)
    fits, part = (functools.partial(within, task, case.direction, case.dtype, most) for most in (budget, less))
    found = [
        *_beside_blocks(task, case.direction, fits),
        *_tall(task, budget.memory_bytes, fits, part),
        *filter(None, (_decode(task, part) or _decode(task, fits), _decode(task, fits, few=True), _skinny(task, fits))),
    ]
    if case.direction == "forward":
        found += _alone(task, alike, budget)
    planned = {c.dims for c in alike}
    yield from (replace(case, dims=dims) for sizes in found if (dims := tuple(sizes.items())) not in planned)
    yield from _longer_rows(task, case, fits)


def _alone(task: Task, planned: Sequence[Case], budget: Budget) -> Iterator[dict[str, int]]:
    """Sizes of which the only dim that scales is larger than any planned one (``_ALONE``); the others are lowest."""
    scaled = [dim for dim in task.dims if dim.scaled]
    if len(scaled) != 1:
        return
    (only,) = scaled
    longest = max(case.dims_map[only.name] for case in planned)
    more = Budget(memory_bytes=wider_bytes(budget), flops=_MORE_FLOPS * budget.flops)
    fits = functools.partial(within, task, "forward", planned[0].dtype, more)
    for least in itertools.takewhile(lambda least: least >= longest, _ALONE):
        size = -((-least - _CHANCE.randrange(1, least // 8)) // only.multiple_of) * only.multiple_of
        dims = {dim.name: dim.least for dim in task.dims} | {only.name: size}
        if size <= only.high and task.allows(dims) and fits(dims):
            yield dims
            return


def _longer_rows(task: Task, case: Case, fits: Fits) -> Iterator[Case]:
    """Those of :func:`_long`. Rows are in six orders where the task has them, so the largest element of one comes last;
    of a single row, of which chance says where it lies, there are many cases.
    """
    names = {name for arg in task.table.args if isinstance(arg, Arg) for name in arg.shape.split()}
    if case.direction == "backward" or "ordered" not in task.distributions:
        yield from (replace(case, dims=tuple(dims.items())) for dims in _long(task, fits, 1))
    elif len(names) > 1:
        for dims in _long(task, fits, THIN):
            yield replace(case, dims=tuple(dims.items()), distribution="ordered")
    else:
        whole = {dim.name: dim.long for dim in task.dims if dim.long}
        for _ in range(_SINGLE_ROWS if whole and fits(whole) else 0):
            yield replace(case, dims=tuple((n, size - _CHANCE.randint(1, _LONG // 16)) for n, size in whole.items()))


def _largest_asked(task: Task, categories: Sequence[str]) -> bool:
    return next((c for c in ("large", "medium") if exists(task, c)), "small") in categories


def lean_case(task: Task, alike: Sequence[Case], categories: Sequence[str], budget: Budget) -> Iterator[Case]:
    """One tall case of few columns, in a type in which there is no other."""
    fits = functools.partial(within, task, alike[0].direction, alike[0].dtype, budget)
    if _largest_asked(task, categories):
        for dims in _tall(task, budget.memory_bytes, fits, fits, columns=_FEW_COLUMNS):
            case = replace(alike[0], dims=tuple(dims.items()), layout="contiguous", distribution="standard")
            yield replace(case, shape_category=EDGE)


def wider_bytes(budget: Budget) -> int:
    """Bytes of a case that is called once."""
    return min(_WIDER * budget.memory_bytes, _WIDE_BYTES)


def _beside_blocks(task: Task, direction: Direction, fits: Fits) -> Iterator[dict[str, int]]:
    """Sizes of which several dims, up to three, lie one below or above a multiple of 64 at once: forward all below and
    all above, backward one of the two. Of tasks of one or two dims there are instead one whose number of elements is
    one more than a multiple of 4096, one beside multiples of 64 of which each dim has the one or the other side (where
    they differ, the number of elements is one less than a multiple of 4096), and forward one of which all are above.
    """
    every = [dim for dim in task.dims if dim.scaled and dim.multiple_of == 1]
    if flat := len(every) == len(task.dims) <= 2:
        sides = [_CHANCE.choices((-1, 1), k=len(every))]
        if direction == "forward" and -1 in sides[0]:
            sides.append([1] * len(every))
    else:
        sides = [[side] * len(every) for side in _CHANCE.sample((-1, 1), 2 if direction == "forward" else 1)]
    kinds = [*([_flat(task, every, fits)] if flat else []), *(_beside(task, every, side, fits) for side in sides)]
    yield from filter(None, kinds)


def _tall(task: Task, memory_bytes: int, fits: Fits, part: Fits, *, columns: int = 0) -> Iterator[dict[str, int]]:
    """Sizes of which the rows, or else the first dim, are more than 4096; or more than 256 where they cannot be more.
    Another dim is of any size that fits, the rest are thin: a secret one beside more than 4096, within a part of the
    budget; each in turn beside fewer.

    Args:
        columns: the other dim has so many at most, and there are more than 4096 rows, an odd number; 0: as said.
    """
    scaled = [dim for dim in task.dims if dim.scaled]
    name = task.table.folded
    long = next((dim for dim in scaled if dim.name == name), scaled[0] if scaled else None)
    if long is None:
        return
    least = _TALL if long.high > _TALL else _BATCH
    if name and memory_bytes >= _TALLER_BYTES:
        least = _TALLER
    others = [dim for dim in scaled if dim is not long]
    if long.multiple_of > 1 or (long.high <= least and not name) or (columns and least == _BATCH):
        return
    for filled in others if least == _BATCH else _CHANCE.sample(others, min(len(others), 1)):
        for trial in range(TRIALS):
            thin = {dim.name: dim.least + _CHANCE.randint(1, THIN) * dim.multiple_of for dim in others}
            rows = least + _CHANCE.randrange(1, least // 16, 2 if columns else 1)
            base = _base(task, trial) | thin | {long.name: rows}
            # of rows the others may be few; items are to be as large as they may
            lowest = max(2, filled.least)
            size = lowest * (max(lowest, filled.high) / lowest) ** (_CHANCE.random() if name else 1)
            size = _CHANCE.randint(lowest, max(lowest, columns)) if columns else size
            limit = fits if least == _BATCH else part
            if trial >= TRIALS // 2:  # the lowest of all dims may take more than a part
                size, limit = lowest, fits
            if (dims := _shrunk(task, base, filled, size, limit)) is not None:
                yield dims
                break


def _long(task: Task, fits: Fits, rows: int) -> Iterator[dict[str, int]]:
    """Sizes of which a dim is more than an unsigned number of 16 bits holds, or more than any planned one where it may
    not be so long (``Dim.long``). The others are small, and thin where they are in a tensor with it: ``rows`` at least,
    where so many fit, or else one of them is.
    """
    tensors = [arg for arg in (*task.table.args, *task.table.outputs) if isinstance(arg, Arg)]
    shapes = [arg.shape.split() for arg in tensors]
    for dim in (dim for dim in task.dims if dim.long):
        beside = [d for d in task.dims if d != dim and any({d.name, dim.name} <= {*shape} for shape in shapes)]
        shortest = _LONG if dim.long > _LONG else dim.high + 1
        row = {name for arg in tensors for name in arg.along.split()}
        chosen = _CHANCE.choice([d for d in beside if d.high >= rows and d.name not in row] or beside or [dim])
        for trial in range(TRIALS):
            room = (dim.long - shortest) * _CHANCE.random() / 2**trial  # less and less, until it fits
            most = {d: max(0, THIN - (max(0, trial - THIN + 1) if d is chosen else trial)) for d in beside}
            steps = {d: _CHANCE.randint(min(rows - 1, most[d]), most[d]) for d in beside}
            thin = {d.name: min(d.high, d.least + more * d.multiple_of) for d, more in steps.items()}
            dims = _base(task, trial) | thin | {dim.name: shortest + int(room)}
            if task.allows(dims) and fits(dims):
                yield dims
                break


def _decode(task: Task, fits: Fits, *, few: bool = False) -> dict[str, int] | None:
    """Sizes of a single query over a few hundred or thousand keys, no multiple of 64: of the first dim, which the
    output has, the lowest, and of one that is summed over many; None: the task has no such dims.

    Args:
        few: up to 16 queries over more than 4096 keys instead.
    """
    low, high = _MANY_KEYS if few else _KEYS
    many = [dim for dim in _summed(task) if dim.high > high and dim.multiple_of == 1]
    if task.table.folded or not many or not _made_of_rows(task):
        return None
    one = next(dim for dim in task.dims if dim.scaled)
    for trial in range(TRIALS):
        dim = _CHANCE.choice(many)
        rows = _CHANCE.randint(one.least, max(one.least, _FEW_QUERIES)) if few else one.least
        size = _no_block(int(low * (high / low) ** _CHANCE.random()))
        dims = _base(task, trial) | {one.name: rows // one.multiple_of * one.multiple_of, dim.name: size}
        if task.allows(dims) and fits(dims):
            return dims
    return None


def _skinny(task: Task, fits: Fits) -> dict[str, int] | None:
    """Sizes of a product of up to 16 rows by a matrix of two sides of 256 or more, as large as fit, of which the one
    that is summed over is no multiple of 64, where it need not be one; None: the task has no such dims.
    """
    scaled = [dim for dim in task.dims if dim.scaled]
    made = {name for arg in task.table.outputs for name in _dims_in(task, arg)}
    low, high = _SIDES
    many = [dim for dim in _summed(task) if dim.high > low]
    columns = [dim for dim in scaled[1:] if dim.name in made and dim not in many and dim.high > low]
    if task.table.folded or not many or not columns or not _made_of_rows(task) or scaled[0].least > _FEW_QUERIES:
        return None
    for trial in range(TRIALS):
        pair = (_CHANCE.choice(columns), _CHANCE.choice(many))
        few = {dim.name: _CHANCE.randint(1, _FEW_QUERIES if dim is scaled[0] else THIN) for dim in scaled}
        thin = {dim.name: max(dim.least, few[dim.name] // dim.multiple_of * dim.multiple_of) for dim in scaled}
        sizes = [low * (min(high, dim.high) / low) ** _CHANCE.random() for dim in pair]
        while max(sizes) > low:
            steps = [int(max(low, size)) // dim.multiple_of for dim, size in zip(pair, sizes, strict=True)]
            dims = _base(task, trial) | thin | {d.name: n * d.multiple_of for d, n in zip(pair, steps, strict=True)}
            dims[pair[1].name] = _no_block(dims[pair[1].name], pair[1].multiple_of)
            if min(dims[dim.name] for dim in pair) >= low and task.allows(dims) and fits(dims):
                return dims
            sizes = [size * _LESS for size in sizes]
    return None


def _no_block(size: int, multiple_of: int = 1) -> int:
    """The size, or the next one that is no multiple of 64 where there are such."""
    return size + multiple_of * (size % BLOCK == 0 and multiple_of % BLOCK > 0)


def _dims_in(task: Task, arg: Arg) -> set[str]:
    """The dims in a shape, those that a derived size of it is made of among them."""
    derive = task.table.derive
    names = arg.shape.split()
    return {*names}.union(*(formula_names(str(derive[name]), name) for name in names if name in derive))


def _summed(task: Task) -> list[Dim]:
    """Scaled dims of the arguments that are summed over and that no output has."""
    out = {name for arg in task.table.outputs for name in arg.shape.split()}
    given = {name for arg in task.table.args if isinstance(arg, Arg) for name in _dims_in(task, arg)}
    summed = formula_names(task.table.reduction or "1", task.name)
    return [dim for dim in task.dims if dim.scaled and dim.name in given & summed - out]


def _made_of_rows(task: Task) -> bool:
    """Whether the outputs have the first of the scaled dims."""
    first = next((dim.name for dim in task.dims if dim.scaled), "")
    return any(first in arg.shape.split() for arg in task.table.outputs)


def _base(task: Task, trial: int) -> dict[str, int]:
    """Small sizes; at every second trial what does not scale is at its lowest, for the others to fit."""
    drawn = draw(task, "small" if exists(task, "small") else "tiny", 0, 1, secrets.randbits(63), lambda _: True)
    fixed = {dim.name: dim.least for dim in task.dims if not dim.scaled} if trial % 2 else {}
    return (drawn or {dim.name: dim.least for dim in task.dims}) | fixed


def _beside(task: Task, free: list[Dim], sides: list[int], fits: Fits) -> dict[str, int] | None:
    for block in _BLOCKS:
        for trial in range(TRIALS):
            chosen = _CHANCE.sample(free, min(len(free), _SEVERAL if trial < TRIALS // 2 else 2))
            same = _CHANCE.choice((1, 1, 2, 3))
            mixed = len(set(sides)) > 1
            sizes = {
                dim.name: (same if mixed else _CHANCE.choice((1, 1, 2, 3))) * block + side
                for dim, side in zip(chosen, sides, strict=False)
            }
            dims = _base(task, trial) | sizes
            inside = all(dim.least <= dims[dim.name] <= dim.high for dim in chosen)
            if chosen and inside and task.allows(dims) and fits(dims):
                return dims
    return None


def _flat(task: Task, dims: list[Dim], fits: Fits) -> dict[str, int] | None:
    """Sizes whose product is one more than a multiple of 4096: an odd number and its inverse modulo that, or a multiple
    of it.
    """
    for _ in range(8 * TRIALS):
        one = _CHANCE.randrange(3, _MOST_FACTOR, 2)
        other = pow(one, -1, _FLAT)
        sizes = [one, other] if len(dims) == 2 else [_FLAT + 1]
        found = dict(zip([dim.name for dim in dims], _CHANCE.sample(sizes, len(sizes)), strict=True))
        inside = all(dim.least <= found[dim.name] <= dim.high for dim in dims)
        if inside and math.prod(sizes) <= _MOST_FLAT and task.allows(found) and fits(found):
            return found
    return None


def _shrunk(task: Task, base: dict[str, int], dim: Dim, size: float, fits: Fits) -> dict[str, int] | None:
    """The base with the dim at this size, or at the first smaller one that is allowed and fits."""
    while size >= max(1, dim.least):
        dims = base | {dim.name: int(size) // dim.multiple_of * dim.multiple_of}
        if task.allows(dims) and fits(dims):
            return dims
        size *= _LESS
    return None
