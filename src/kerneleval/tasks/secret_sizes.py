"""Secret sizes: cases drawn from the system's randomness beside a plan (``shapes.py``), which is public."""

from __future__ import annotations

import functools
import itertools
import math
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kerneleval.records import (
    DTYPES,
    FAR,
    MOST_DIMS,
    SHAPE_CATEGORIES,
    Arg,
    Case,
    Dim,
    Direction,
    Folded,
    Scalar,
    Task,
    TensorSpec,
    formula_names,
)
from kerneleval.tasks.sampling import Fits, between, draw, exists, few, smaller, thin, turned, twins, wide
from kerneleval.tasks.shapes import DEGENERATE, EDGE, PART, Budget, within

_CHANCE = secrets.SystemRandom()

_Sizes = tuple[tuple[str, int], ...]
"""The dims of a case."""

_SECRET_CATEGORIES = ("small", "medium", "non_power_of_two", "rectangular")
"""Categories from which secret shapes are drawn, where the plan has them: those with many members."""
_TRIALS = 16
"""How often secret sizes are drawn until some fit and are new."""

_MOST_FEW = 10
"""Secret cases at most for choices of kernel width, stride and the like that are not planned."""

_BLOCK = 64
"""Elements of a block, or a multiple of them: a size one less or more is often handled apart."""

_THIN = 6
"""Steps above its lowest value of a secret thin dim, at most."""

_WIDE_BYTES = 64 << 20
"""Bytes of a secret case of two large sides, at most, where a case's budget is smaller."""
_WIDER = 4
"""Such a case takes at most so many times the budget: it is called once, and not timed."""

_PARTS = range(2, 8)
"""Sizes of the dims that one dim stands for; different ones, so that none can stand for another."""

FAR_ELEMENTS = 1 << 31
"""The first offset that a signed 32-bit number does not hold."""

FAR_PARTS = 6
"""How many times what the largest ordinary case may take, such a case may: no wider copies of it are made."""

_FAR_ROWS = 48
"""Rows at most that are drawn for a case of many."""

_MOST_THIN = 3
"""Secret cases at most, in the first dtype, of which some dims are thin that are in no planned case together."""

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


def secret_cases(task: Task, planned: Sequence[Case], budget: Budget, *, large: int = 2) -> tuple[Case, ...]:
    """Cases at sizes drawn from the system's randomness, of which none is planned.

    For each direction, in the first dtype judged:

    - a standard one at sizes between those of the categories. Before it, one for every dim in which that dim is a
      little smaller; behind it, two for what is kept by rounded sizes; and, of it and of one of these before it, one in
      which two dims have changed places;
    - one in a layout that is not contiguous, with smaller ones before and behind it;
    - long ones under two distributions that are not standard: large inputs and a secret one;
    - up to three in which some dims are thin that are so in no planned case together, or else one;
    - for tensors of three dims or more, one whose last dim is 1, transposed;
    - those of :func:`_never_beside_many`, :func:`_unlike` and :func:`_special`.

    In every other dtype:

    - one at the sizes of the first of these;
    - a standard one, with smaller ones before it, and at its sizes later one in the first dtype, for what is kept by
      sizes alone;
    - one under a secret distribution (small inputs where there is an epsilon that they could show);
    - one in which some dims are thin;
    - in a secret one of these dtypes, that of :func:`_lean`.

    None for tasks with sizes of their own or at the shapes of models, and none where a single case is judged.
    """
    if task.case_dims or len(planned) < 2:
        return ()
    ordinary = [c for c in planned if (c.layout, c.distribution) == ("contiguous", "standard")]
    groups: dict[tuple[Direction, str], list[str]] = {}
    for case in ordinary:
        if case.shape_category in SHAPE_CATEGORIES and exists(task, case.shape_category):
            groups.setdefault((case.direction, case.dtype), []).append(case.shape_category)
    taken = {case.dims for case in planned}
    further = _further(groups)
    main: dict[Direction, str] = {}
    begun: dict[Direction, Case] = {}
    cases: list[Case] = []
    again: list[Case] = []
    for (direction, dtype), categories in groups.items():
        alike = [c for c in planned if (c.direction, c.dtype) == (direction, dtype)]
        first = main.setdefault(direction, dtype) == dtype
        found = _group(task, alike, categories, budget, taken, first=first)
        if found and first:
            begun[direction] = found[0]
        elif found and direction in begun:
            cases.append(replace(begun[direction], dtype=dtype, shape_category=EDGE))
            again.append(replace(found[0], dtype=main[direction], shape_category=EDGE))
        fits = functools.partial(within, task, direction, dtype, budget)
        cases += _with_smaller(task, found, fits, {case.dims for case in planned})
        if first:
            cases += _special(task, alike, categories, budget)
        elif dtype == further.get(direction):
            cases += _lean(task, alike, categories, budget)
        if first and "large" in categories:
            cases += _with_two_large(task, alike, categories, budget, large)
    fit = (c for c in again if within(task, c.direction, c.dtype, budget, c.dims_map))
    return (*cases, *fit)


def other_ranks(task: Task, planned: Sequence[Case], budget: Budget) -> Iterator[Case]:
    """Cases at other numbers of dims than the plan's, where the task takes any (``Table.folded``): for each direction
    and dtype a small one with more dims that is not contiguous; in the first dtype also a contiguous one, with longer
    rows where they fit, and, forward, one with fewer dims. None where :func:`secret_cases` has none.
    """
    name = task.table.folded
    ordinary = [c for c in planned if c.shape_category in SHAPE_CATEGORIES]
    if not name or task.case_dims or len(planned) < 2:
        return
    usual = next(arg for arg in task.table.args if isinstance(arg, Arg)).shape.split()
    more = range(2, MOST_DIMS - len(usual) + 2)
    begun: set[Direction] = set()
    for direction, dtype in dict.fromkeys((c.direction, c.dtype) for c in ordinary):
        alike = [c for c in ordinary if (c.direction, c.dtype) == (direction, dtype)]
        odd = sorted({c.layout for c in alike} - {"contiguous", "offset"})  # offset has the strides of contiguous
        wanted = [(_CHANCE.choice(more), _CHANCE.choice(odd or ["contiguous"]))]
        if direction not in begun:
            wanted += [(_CHANCE.choice(more), "contiguous"), *([(0, "contiguous")] if direction == "forward" else [])]
        begun.add(direction)
        for count, layout in wanted:
            fits = functools.partial(within, task, direction, dtype, budget)
            longer = _of_rank(task, count, fits, "medium") if count and layout == "contiguous" else None
            if (sizes := longer or _of_rank(task, count, fits)) is not None:
                dims, folds = tuple((n, int(size)) for n, size in sizes.items()), ((name, sizes[name].sizes),)
                case = replace(alike[0], dims=dims, folds=folds, layout=layout)
                yield replace(case, distribution="standard", shape_category=EDGE)


def _of_rank(task: Task, count: int, fits: Fits, category: str = "small") -> dict[str, Any] | None:
    """Secret sizes of a category of which the folded dim stands for so many dims; None: found none."""
    category = category if exists(task, category) else "tiny"
    for _ in range(_TRIALS):
        drawn = draw(task, category, 0, 1, secrets.randbits(63), fits)
        dims = {**(drawn or {}), task.table.folded: Folded(_CHANCE.sample(_PARTS, count))}
        if drawn is not None and task.allows(dims) and fits(dims):
            return dims
    return None


def far_apart(shape: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    """(elements of storage, strides) of a tensor that is contiguous but for its first dim with several elements, whose
    last one begins at element ``FAR_ELEMENTS`` or a little behind it.
    """
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    dim = next(place for place, size in enumerate(shape) if size > 1)
    strides[dim] = -(-FAR_ELEMENTS // (shape[dim] - 1))
    return 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)), tuple(strides)


def is_far(task: Task, case: Case) -> bool:
    """Whether some offset in the case exceeds 31 bits."""
    return case.layout == FAR or (not task.module and beyond(task, case.dims_map))


def beyond(task: Task, dims: Mapping[str, int]) -> bool:
    """Whether a tensor argument has more elements than a signed 32-bit number can count."""
    specs = task.arguments(dims, task.dtypes[0])
    return any(isinstance(spec, TensorSpec) and spec.numel > FAR_ELEMENTS for spec in specs)


def far_bytes(task: Task, case: Case) -> int:
    """Memory that such a case takes: of what is given a copy of the judge's and a shared range of up to twice its size,
    of what comes out besides the candidate's own and the judge's.
    """
    specs = [s for s in task.arguments(case.dims_map, case.dtype) if isinstance(s, TensorSpec)]
    given = sum(s.nbytes for s in specs)
    out = task.bytes(case.dims_map, case.dtype) - given
    if case.layout == FAR:
        given += far_apart(specs[0].shape)[0] * DTYPES[specs[0].dtype]
    return 3 * given + 4 * out


def far_cases(task: Task, right: Sequence[Case]) -> Iterator[Case]:
    """Two secret cases in which offsets exceed 31 bits, in the smallest of the types in which a forward case was right:
    few items of the first argument, far apart (:data:`FAR`); and, where rows are independent (``folded``), many rows,
    which are those of a small case again and again.
    """
    dtypes = sorted({c.dtype for c in right if c.direction == "forward"}, key=lambda dtype: (DTYPES[dtype], dtype))
    if not dtypes or task.case_dims or task.module or len(right) < 2:
        return
    begun = next(c for c in right if (c.direction, c.dtype) == ("forward", dtypes[0]))
    begun = replace(begun, layout="contiguous", distribution="standard", shape_category=EDGE)
    small = "small" if exists(task, "small") else "tiny"
    drawn = [dims for _ in range(_TRIALS) if (dims := draw(task, small, 0, 1, secrets.randbits(63), lambda _: True))]
    for dims in drawn:
        first = next((s for s in task.arguments(dims, dtypes[0]) if isinstance(s, TensorSpec)), None)
        if first is not None and first.role == "data" and sum(size > 1 for size in first.shape) > 1:
            yield replace(begun, dims=tuple(dims.items()), layout=FAR)
            break
    name = task.table.folded
    if drawn and name and rows_alone(task):
        some = secrets.choice(range(_FAR_ROWS // 2, _FAR_ROWS))
        wide = [dim.name for dim in task.dims if dim.scaled and dim.name != name]
        sizes = drawn[0] | {dim: max(drawn[0][dim], secrets.choice(range(2048, 4096))) for dim in wide}
        each = next(s for s in task.arguments(sizes | {name: some}, dtypes[0]) if isinstance(s, TensorSpec)).numel
        sizes[name] = some * (FAR_ELEMENTS // each + 2)
        if task.allows(sizes) and each * sizes[name] // some > FAR_ELEMENTS:
            yield replace(begun, dims=tuple((dim.name, sizes[dim.name]) for dim in task.dims))


def beyond_16_bits(task: Task, case: Case) -> bool:
    """Whether rows are longer than an unsigned number of 16 bits holds (``Dim.long``): a dim that comes first in every
    argument counts items, unless there is no other.
    """
    shapes = [arg.shape.split() for arg in task.table.args if isinstance(arg, Arg)]
    within = {name for shape in shapes for name in (shape[1:] or shape)}
    return any(case.dims_map[dim.name] > _TALLER for dim in task.dims if dim.long and dim.name in within)


def rows_alone(task: Task) -> bool:
    """Whether every row of the outputs follows from the same row of the arguments."""
    name, outputs = task.table.folded, task.table.outputs
    tensors = [arg for arg in task.table.args if isinstance(arg, Arg)]
    if name in formula_names(task.table.reduction or "1", task.name):
        return False
    return name == "M" and all(name in out.shape.split() for out in outputs) and name in tensors[0].shape.split()


def repeated_rows(case: Case, name: str) -> int:
    """How many rows of a case with many are drawn: all others are these again."""
    rows = case.dims_map[name]
    return next(count for count in range(_FAR_ROWS, 0, -1) if rows % count == 0)


def _group(
    task: Task,
    alike: Sequence[Case],
    categories: Sequence[str],
    budget: Budget,
    taken: set[_Sizes],
    *,
    first: bool,
) -> list[Case]:
    """The secret cases beside planned ones of one direction and dtype; their sizes are taken from now on."""
    direction, dtype = alike[0].direction, alike[0].dtype
    found: list[Case] = []

    def add(dims: Mapping[str, int] | None, category: str, layout: str, distribution: str) -> bool:
        """Whether the case is a new one."""
        if dims is None or (key := tuple(dims.items())) in taken:
            return False
        taken.add(key)
        found.append(replace(alike[0], dims=key, layout=layout, distribution=distribution, shape_category=category))
        return True

    fits = functools.partial(within, task, direction, dtype, budget)
    for how in _wanted(task, alike, categories, first=first):
        between_ranges = first and how[1:] == ("contiguous", "standard")
        if not (between_ranges and add(_between(task, fits), *how)):
            add(_unplanned(task, how[0], direction, dtype, budget, taken), *how)
    if not found:
        return []
    sizes = functools.partial(_unplanned, task, direction=direction, dtype=dtype, budget=budget, taken=frozenset(taken))
    parts = _thin_parts(task, alike, _MOST_THIN if first else 1)
    medium = "medium" if "medium" in categories else categories[0]
    small = functools.partial(sizes, category="small" if "small" in categories else categories[0])
    unlike: list[dict[str, int] | None] = []
    if first:
        before, near, behind = _near(task, found[0].dims_map, fits)
        for dims in (before, *near):
            add(dims, EDGE, "contiguous", "standard")
        unlike.append(behind)
        planned = [c for c in alike if (c.layout, c.distribution) == ("contiguous", "standard")]
        unlike += _unlike(task, planned, categories, sizes, fits)
        if direction == "forward":
            unlike += _multiplied(task, small(), fits)
    odd = _others(task, alike)[1] or ["contiguous"]
    for part in parts:
        layout = _CHANCE.choice(("contiguous", _CHANCE.choice(odd)))
        steps = range(1, _THIN + 1) if layout == "contiguous" else (0,)  # no planned one is strided and of one element
        add(_thinned(task, sizes(category=medium), part, steps, fits), EDGE, layout, "standard")
    for dims, layout in _with_ones(task, alike, odd, small, fits) if first else ():
        add(dims, EDGE, layout, "standard")
    for trial in unlike:
        add(trial, EDGE, "contiguous", "standard")  # one call each: what they look for, one call shows
    return found


def _further(groups: Collection[tuple[Direction, str]]) -> dict[Direction, str]:
    """A secret one of the dtypes behind the first, for each direction that has more than one."""
    every: dict[Direction, list[str]] = {}
    for direction, dtype in groups:
        every.setdefault(direction, []).append(dtype)
    return {direction: _CHANCE.choice(dtypes[1:]) for direction, dtypes in every.items() if dtypes[1:]}


def _special(task: Task, alike: Sequence[Case], categories: Sequence[str], budget: Budget) -> Iterator[Case]:
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
    more = Budget(memory_bytes=_wider(budget), flops=_MORE_FLOPS * budget.flops)
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
        for dims in _long(task, fits, _THIN):
            yield replace(case, dims=tuple(dims.items()), distribution="ordered")
    else:
        whole = {dim.name: dim.long for dim in task.dims if dim.long}
        for _ in range(_SINGLE_ROWS if whole and fits(whole) else 0):
            yield replace(case, dims=tuple((n, size - _CHANCE.randint(1, _LONG // 16)) for n, size in whole.items()))


def _largest_asked(task: Task, categories: Sequence[str]) -> bool:
    return next((c for c in ("large", "medium") if exists(task, c)), "small") in categories


def _lean(task: Task, alike: Sequence[Case], categories: Sequence[str], budget: Budget) -> Iterator[Case]:
    """One tall case of few columns, in a type in which there is no other."""
    fits = functools.partial(within, task, alike[0].direction, alike[0].dtype, budget)
    if _largest_asked(task, categories):
        for dims in _tall(task, budget.memory_bytes, fits, fits, columns=_FEW_COLUMNS):
            case = replace(alike[0], dims=tuple(dims.items()), layout="contiguous", distribution="standard")
            yield replace(case, shape_category=EDGE)


def _wanted(task: Task, alike: Sequence[Case], categories: Sequence[str], *, first: bool) -> list[tuple[str, str, str]]:
    """Shape category, layout and distribution of the secret cases of usual sizes, beside the planned ones ``alike``."""
    dtype = alike[0].dtype
    usual = [c for c in categories if c in _SECRET_CATEGORIES] or categories
    wanted = [(_CHANCE.choice(usual), "contiguous", "standard")]
    varied, odd = _others(task, alike)
    if first:
        wanted.append((_CHANCE.choice(usual), _CHANCE.choice(odd or ["contiguous"]), "standard"))
        long = [c for c in categories if c == "rectangular"] or usual
        wanted += [(_CHANCE.choice(long), "contiguous", distribution) for distribution in _telling(varied, 2)]
    elif varied:
        plain = [arg.value for arg in task.arguments(alike[0].dims_map, dtype) if isinstance(arg, Scalar)]
        telling = "small_scale" in varied and any(isinstance(value, float) for value in plain)
        wanted.append((_CHANCE.choice(usual), "contiguous", "small_scale" if telling else _CHANCE.choice(varied)))
    return wanted


def _others(task: Task, alike: Sequence[Case]) -> tuple[list[str], list[str]]:
    """Distributions that are not standard, and layouts that are not contiguous, of the secret cases beside planned ones
    of one direction and dtype.
    """
    varied = sorted({c.distribution for c in alike} - {"standard", *DEGENERATE})
    odd = sorted({c.layout for c in alike} - {"contiguous"})
    if odd and varied:  # nothing was left out by request, but the quick tier has few of them backward
        left_out = {"standard", "nonfinite", *DEGENERATE}
        left_out |= {*(task.forward_only if alike[0].direction == "backward" else ())}
        varied = sorted({*task.distributions} - left_out | {*varied})
        odd = sorted({*task.layouts} - {"contiguous"})
    return varied, odd


def _telling(varied: Sequence[str], count: int) -> list[str]:
    """So many of the distributions at most: large inputs, which most that is left out shows under, and secret ones."""
    rest = [d for d in varied if d != "large_scale"]
    chosen = [d for d in varied if d == "large_scale"]
    return chosen + _CHANCE.sample(rest, max(0, min(len(rest), count - 1)))


def _with_two_large(
    task: Task, alike: Sequence[Case], categories: Sequence[str], budget: Budget, count: int
) -> Iterator[Case]:
    """Cases of which two dims are large, each in a secret layout and distribution: what kernels do at large sizes alone
    is otherwise met with standard, contiguous data.
    """
    case = alike[0]
    larger = Budget(memory_bytes=_wider(budget), flops=budget.flops)
    fits = functools.partial(within, task, case.direction, case.dtype, larger)
    small = "small" if "small" in categories else categories[0]
    varied, odd = _others(task, alike)
    chosen, laid_out = _telling(varied, count) or ["standard"], _CHANCE.sample(odd, len(odd)) or ["contiguous"]
    for number in range(count):
        begun = (draw(task, small, 0, 1, secrets.randbits(63), fits) for _ in range(_TRIALS // 4))
        tried = (wide(task, dims, secrets.randbits(63), fits) for dims in begun if dims is not None)
        if (dims := next(filter(None, tried), None)) is not None:
            yield replace(
                case,
                dims=tuple(dims.items()),
                layout=laid_out[number % len(laid_out)],
                distribution=chosen[number % len(chosen)],
                shape_category=EDGE,
            )


def _wider(budget: Budget) -> int:
    """Bytes of a case that is called once."""
    return min(_WIDER * budget.memory_bytes, _WIDE_BYTES)


def _between(task: Task, fits: Fits) -> dict[str, int] | None:
    """Sizes between the ranges of the categories, no two of them alike if that can be had in a few draws."""
    names = [dim.name for dim in task.dims if dim.scaled]
    drawn = [dims for _ in range(_TRIALS // 2) if (dims := between(task, secrets.randbits(63), fits)) is not None]
    return max(drawn, key=lambda dims: len({dims[name] for name in names}), default=None)


def _near(
    task: Task, dims: Mapping[str, int], fits: Fits
) -> tuple[dict[str, int] | None, list[dict[str, int]], dict[str, int] | None]:
    """Two sizes of which one dim is a little smaller; what the first of these is with two dims exchanged, which comes
    before it; and what the given ones are so, which comes behind them: of what is kept by the number of elements, the
    rows are too few in one of the two.
    """
    pair = secrets.randbits(63)
    less = smaller(task, dims, secrets.randbits(63), fits)
    less.sort(key=lambda other: _ranks(other) != _ranks(dims))
    return turned(task, less[0], pair, fits) if less else None, less[:2], turned(task, dims, pair, fits)


def _ranks(dims: Mapping[str, int]) -> list[tuple[bool, bool]]:
    return [(one < other, one > other) for one, other in itertools.combinations(dims.values(), 2)]


def _with_smaller(
    task: Task,
    cases: Sequence[Case],
    fits: Fits,
    planned: Collection[_Sizes],
) -> list[Case]:
    """The cases, and before the first one for each of its dims one of which that dim is smaller, if it can be by one
    less or more than a multiple of 64; such ones also behind
    a strided one, and one before it. One call each: what is made for smaller sizes is too small for those that follow,
    and what is made for larger ones holds something else behind these.
    """
    taken = {*planned, *(case.dims for case in cases)}

    def less(case: Case) -> list[Case]:
        """One for each dim, that none of the cases is."""
        drawn: dict[str, Case] = {}
        for _ in range(_TRIALS // 4):
            for dims in smaller(task, case.dims_map, secrets.randbits(63), fits):
                name = next(name for name, size in case.dims if dims[name] != size)
                if name not in drawn and (key := tuple(dims.items())) not in taken:
                    drawn[name] = replace(case, dims=key, shape_category=EDGE)
        for name in drawn:
            key = tuple((_beside_block(task, case.dims_map, name) or case.dims_map).items())
            if key not in {*taken, case.dims} and task.allows(dict(key)) and fits(dict(key)):
                drawn[name] = replace(case, dims=key, shape_category=EDGE)
        return list(drawn.values())

    found: list[Case] = []
    for place, case in enumerate(cases):
        strided = case.layout != "contiguous" and case.shape_category != EDGE
        before = less(case)[: 1 if strided else None] if place == 0 or strided else []
        found += [*before, case, *(less(case) if strided else [])]
    return found


def _beside_block(task: Task, dims: Mapping[str, int], name: str) -> dict[str, int] | None:
    """The same dims but for one, which is the next smaller size one below or above a multiple of a block of 64, or one
    above a power of two, to which many kernels round up; None: there is none, or its sizes are multiples of something.
    """
    dim = next(dim for dim in task.dims if dim.name == name)
    beside = _CHANCE.choice((1, _BLOCK - 1))
    size = (dims[name] - 1 - beside) // _BLOCK * _BLOCK + beside
    if beside == 1 and size > _BLOCK and _CHANCE.random() < 0.5:
        size = (1 << (size - 1).bit_length() - 1) + 1
    whole = dim.scaled and dim.multiple_of == 1 and size > _BLOCK // 2 and size >= dim.least
    return {**dims, name: size} if whole else None


_MULTIPLIED = 14
"""Sizes of dims that are multiplied, at most, above the least."""
_FACTORS = (2, 3, 4)
"""What they are multiplied by: usual factors of upsampling, for which kernels have paths of their own."""


def _unlike(
    task: Task,
    planned: Sequence[Case],
    categories: Sequence[str],
    sizes: Callable[..., dict[str, int] | None],
    fits: Fits,
) -> Iterator[dict[str, int]]:
    """Secret sizes of kinds that the plan leaves out: choices of the dims of few values that no standard case makes;
    outputs larger than the input, by no whole factor, where both sizes are free, as in pools and interpolations;
    and tensors shaped as those of a planned case, for each plain argument with another value.
    """
    left = [c for c in few(task) if not any(c.items() <= case.dims_map.items() for case in planned)]
    small = "small" if "small" in categories else categories[0]
    for choice in _CHANCE.sample(left, min(len(left), _MOST_FEW)):
        drawn = (sizes(category=small) for _ in range(_TRIALS))
        none = dict.fromkeys((dim.name for dim in task.dims if not dim.low), 0)  # where the width forbids the padding
        trials = (dims | choice | padding for dims in drawn if dims is not None for padding in ({}, none))
        yield from itertools.islice((dims for dims in trials if task.allows(dims) and fits(dims)), 1)
    begun = sizes(category=small) if (pairs := _resized(task)) else None
    if begun is not None:
        longer = begun | {name: size for own, out in pairs for name, size in _longer(task, own, out).items()}
        if task.allows(longer) and fits(longer):
            yield longer
    kinds: dict[frozenset[str], list[dict[str, int]]] = {}
    for case in planned:
        own = case.dims_map
        for dims in twins(task, own, case.dtype) if case.shape_category != EDGE else ():
            kinds.setdefault(frozenset(name for name in own if dims[name] != own[name]), []).append(dims)
    for alike in kinds.values():
        yield from itertools.islice(filter(fits, _CHANCE.sample(alike, len(alike))), 1)


def _resized(task: Task) -> list[tuple[str, str]]:
    """Positions of the first argument, behind batch and channels, and what they become in the output, where both are
    free.
    """
    inputs = [arg.shape.split() for arg in task.table.args if isinstance(arg, Arg)]
    out = task.table.outputs[0].shape.split() if task.table.outputs else []
    if not inputs or len(out) != len(inputs[0]) or out[:2] != inputs[0][:2]:
        return []
    free = {dim.name for dim in task.dims if dim.multiple_of == 1}
    new = free - {name for names in inputs for name in names}
    return [(own, other) for own, other in zip(inputs[0], out, strict=True) if own in free and other in new]


def _longer(task: Task, own: str, out: str) -> dict[str, int]:
    """Secret sizes of two dims of which the second is larger, by no whole factor; none where they cannot be."""
    dims = {dim.name: dim for dim in task.dims}
    least = max(2, dims[own].least)
    pairs = itertools.product(range(least, 2 * least + 2), range(dims[out].least, min(dims[out].high, 6 * least) + 1))
    fit = [{own: one, out: other} for one, other in pairs if one < other and other % one]
    return _CHANCE.choice(fit or [{}])


def _multiplied(task: Task, begun: Mapping[str, int] | None, fits: Fits) -> Iterator[dict[str, int]]:
    """Secret sizes of which each resized dim is two, three and four times as large in the output, and as many times
    smaller.
    """
    pairs = _resized(task)
    dims = {dim.name: dim for dim in task.dims}
    for factor, up in itertools.product(_FACTORS, (True, False)) if pairs and begun else ():
        for more_than_least in (_MULTIPLIED, 0):  # volumes may fit at the least sizes alone
            found = dict(begun or {})
            for own, out in pairs:
                less, more = (own, out) if up else (out, own)
                least = max(2, dims[less].least, -(-dims[more].least // factor))
                most = min(least + more_than_least, dims[less].high, dims[more].high // factor)
                found[less] = _CHANCE.randint(least, max(least, most))
                found[more] = factor * found[less]
            if task.allows(found) and fits(found):
                yield found
                break


def _thin_parts(task: Task, planned: Sequence[Case], most: int) -> list[tuple[str, ...]]:
    """Secret choices of dims that are to be thin together: some that no planned case of one direction and dtype has, or
    where all come there, one of any.
    """
    names = [dim.name for dim in task.dims if dim.scaled]
    lowest = {name: min(case.dims_map[name] for case in planned) for name in names}
    met = {tuple(name for name in names if case.dims_map[name] == lowest[name]) for case in planned}
    every = [part for count in range(1, len(names)) for part in itertools.combinations(names, count)]
    new = [part for part in every if part not in met]
    return _CHANCE.sample(new, min(len(new), most)) or _CHANCE.sample(every, min(len(every), 1))


def _with_ones(
    task: Task, planned: Sequence[Case], odd: Sequence[str], sizes: Callable[[], dict[str, int] | None], fits: Fits
) -> Iterator[tuple[dict[str, int] | None, str]]:
    """Sizes, with layouts, of which one dim is 1."""
    if "transposed" in odd and (last := _last_dim(task)):
        yield _set_to_one(task, sizes(), last, fits), "transposed"
    if name := _never_beside_many(task, planned):
        yield _set_to_one(task, sizes(), name, fits, 2), "contiguous"


def _last_dim(task: Task) -> str:
    """The last dim of the first argument, if that is a tensor of three dims or more and it may be 1: transposed, its
    stride is another dim's.
    """
    names = next((arg.shape.split() for arg in task.table.args if isinstance(arg, Arg) and arg.role == "data"), [])
    own = {dim.name for dim in task.dims if dim.scaled and dim.least == 1}
    return names[-1] if len(names) > 2 and names[-1] in own else ""


def _never_beside_many(task: Task, planned: Sequence[Case]) -> str:
    """A secret dim that is 1 in no planned case where batch, heads, groups and the like are all above 1, as they are in
    a step of decoding; empty: there is none.
    """
    many = [dim.name for dim in task.dims if not dim.scaled and dim.least == 1 < dim.high]
    ones = [dim.name for dim in task.dims if dim.scaled and dim.least == 1]
    beside = [case.dims_map for case in planned if min(map(case.dims_map.__getitem__, many), default=0) > 1]
    return _CHANCE.choice([name for name in ones if many and all(dims[name] > 1 for dims in beside)] or [""])


def _set_to_one(
    task: Task, dims: Mapping[str, int] | None, name: str, fits: Fits, least: int = 0
) -> dict[str, int] | None:
    """The same dims but for one, which is 1. Those that are not scaled (batches, heads, widths, paddings) are drawn
    until the task allows that; of these, what is 1 or more anyway is ``least`` or more, if it can be.
    """
    fixed = [dim for dim in task.dims if not dim.scaled]
    for number in range(4 * _TRIALS if dims else 0):
        others = {
            dim.name: _CHANCE.randrange(
                min(least, dim.high) if dim.least == 1 < least else dim.least, dim.high + 1, dim.multiple_of
            )
            for dim in fixed
            if number or least
        }
        trial = {**(dims or {}), **others, name: 1}
        if task.allows(trial) and fits(trial):
            return trial
    return None


def _thinned(
    task: Task, dims: Mapping[str, int] | None, names: Sequence[str], steps: Sequence[int], fits: Fits
) -> dict[str, int] | None:
    """The same dims but for these, each of which is a secret one of these steps above its lowest."""
    above = [_CHANCE.choice(steps) for _ in names]
    thinner = thin(task, dims, names, above) if dims else None
    return thinner if thinner is not None and fits(thinner) else None


def _unplanned(
    task: Task,
    category: str,
    direction: str,
    dtype: str,
    budget: Budget,
    taken: Collection[_Sizes],
) -> dict[str, int] | None:
    """Secret sizes of a category other than those taken; None: found none."""
    for part in (PART, 1):
        less = Budget(memory_bytes=budget.memory_bytes // part, flops=budget.flops // part)
        fits = functools.partial(within, task, direction, dtype, less)
        for _ in range(_TRIALS):
            drawn = draw(task, category, 0, 1, secrets.randbits(63), fits)
            if drawn is None:
                break
            if tuple(drawn.items()) not in taken:
                return drawn
    return None


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
        for trial in range(_TRIALS):
            thin = {dim.name: dim.least + _CHANCE.randint(1, _THIN) * dim.multiple_of for dim in others}
            rows = least + _CHANCE.randrange(1, least // 16, 2 if columns else 1)
            base = _base(task, trial) | thin | {long.name: rows}
            # of rows the others may be few; items are to be as large as they may
            lowest = max(2, filled.least)
            size = lowest * (max(lowest, filled.high) / lowest) ** (_CHANCE.random() if name else 1)
            size = _CHANCE.randint(lowest, max(lowest, columns)) if columns else size
            limit = fits if least == _BATCH else part
            if trial >= _TRIALS // 2:  # the lowest of all dims may take more than a part
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
        for trial in range(_TRIALS):
            room = (dim.long - shortest) * _CHANCE.random() / 2**trial  # less and less, until it fits
            most = {d: max(0, _THIN - (max(0, trial - _THIN + 1) if d is chosen else trial)) for d in beside}
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
    for trial in range(_TRIALS):
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
    for trial in range(_TRIALS):
        pair = (_CHANCE.choice(columns), _CHANCE.choice(many))
        few = {dim.name: _CHANCE.randint(1, _FEW_QUERIES if dim is scaled[0] else _THIN) for dim in scaled}
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
    return size + multiple_of * (size % _BLOCK == 0 and multiple_of % _BLOCK > 0)


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
