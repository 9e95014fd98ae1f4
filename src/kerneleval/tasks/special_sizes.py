"""Secret sizes of kinds at which kernels change their path: beside multiples of a block in several dims at once, rows
beyond what one launch takes, a single query over many keys.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator

from kerneleval.records import Arg, Dim, Direction, Task, formula_names
from kerneleval.tasks.sampling import Fits, draw, exists

_CHANCE = secrets.SystemRandom()

_TRIALS = 16
"""How often sizes of one kind are drawn until some fit."""

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
TALLEST = _TALLER + _TALLER // 16
"""Rows that any of these cases has at most."""
_LESS = 0.85
"""Factor by which a dim is made smaller until the case fits."""

_KEYS = (300, 4000)
"""Keys of a single query."""
_THIN = 6


def beside_blocks(task: Task, direction: Direction, fits: Fits) -> Iterator[dict[str, int]]:
    """Sizes of which several dims, up to three, lie one below or above a multiple of 64 at once: forward all below and
    all above, backward one of the two. Of tasks of one or two dims there is instead one whose number of elements is
    one more than a multiple of 4096, and one beside multiples of 64 of which each dim has the one or the other side:
    where they differ, the number of elements is one less than a multiple of 4096.
    """
    every = [dim for dim in task.dims if dim.scaled and dim.multiple_of == 1]
    if len(every) == len(task.dims) <= 2:
        kinds = [_flat(task, every, fits), _beside(task, every, _CHANCE.choices((-1, 1), k=len(every)), fits)]
    else:
        sides = _CHANCE.sample((-1, 1), 2 if direction == "forward" else 1)
        kinds = [_beside(task, every, [side] * len(every), fits) for side in sides]
    yield from filter(None, kinds)


def tall(task: Task, memory_bytes: int, fits: Fits, part: Fits) -> Iterator[dict[str, int]]:
    """Sizes of which the rows, or else the first dim, are more than 4096; or more than 256 where they cannot be more.
    Another dim is of any size that fits, the rest are thin: a secret one beside more than 4096, within a part of the
    budget; each in turn beside fewer.
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
    if long.multiple_of > 1 or (long.high <= least and not name):
        return
    for filled in others if least == _BATCH else _CHANCE.sample(others, min(len(others), 1)):
        for trial in range(_TRIALS):
            thin = {dim.name: dim.least + _CHANCE.randint(1, _THIN) * dim.multiple_of for dim in others}
            base = _base(task, trial) | thin | {long.name: least + _CHANCE.randint(1, least // 16)}
            # of rows the others may be few; items are to be as large as they may
            lowest = max(2, filled.least)
            size = lowest * (max(lowest, filled.high) / lowest) ** (_CHANCE.random() if name else 1)
            limit = fits if least == _BATCH else part
            if trial >= _TRIALS // 2:  # the lowest of all dims may take more than a part
                size, limit = lowest, fits
            if (dims := _shrunk(task, base, filled, size, limit)) is not None:
                yield dims
                break


def decode(task: Task, fits: Fits) -> dict[str, int] | None:
    """Sizes of a single query over a few hundred or thousand keys, no multiple of 64: of the first dim, which the
    output has, the lowest, and of one that is summed over many; None: the task has no such dims.
    """
    table = task.table
    scaled = [dim for dim in task.dims if dim.scaled]
    out = {name for arg in table.outputs for name in arg.shape.split()}
    given = {name for arg in table.args if isinstance(arg, Arg) for name in arg.shape.split()}
    summed = formula_names(table.reduction or "1", task.name)
    many = [d for d in scaled if d.name in given & summed - out and d.high > _KEYS[1] and d.multiple_of == 1]
    if table.folded or not many or (one := scaled[0]).name not in out:
        return None
    low, high = _KEYS
    for trial in range(_TRIALS):
        dim = _CHANCE.choice(many)
        size = int(low * (high / low) ** _CHANCE.random())
        size += size % 64 == 0
        dims = _base(task, trial) | {one.name: one.least, dim.name: size}
        if task.allows(dims) and fits(dims):
            return dims
    return None


def _base(task: Task, trial: int) -> dict[str, int]:
    """Small sizes; at every second trial what does not scale is at its lowest, for the others to fit."""
    drawn = draw(task, "small" if exists(task, "small") else "tiny", 0, 1, secrets.randbits(63), lambda _: True)
    fixed = {dim.name: dim.least for dim in task.dims if not dim.scaled} if trial % 2 else {}
    return (drawn or {dim.name: dim.least for dim in task.dims}) | fixed


def _beside(task: Task, free: list[Dim], sides: list[int], fits: Fits) -> dict[str, int] | None:
    for block in _BLOCKS:
        for trial in range(_TRIALS):
            chosen = _CHANCE.sample(free, min(len(free), _SEVERAL if trial < _TRIALS // 2 else 2))
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
    for _ in range(8 * _TRIALS):
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
