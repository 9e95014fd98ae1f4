"""Secret sizes: cases drawn from the system's randomness beside a plan (``shapes.py``), which is public."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kerneleval.records import MOST_DIMS, SHAPE_CATEGORIES, Arg, Case, Direction, Folded, Scalar, Task
from kerneleval.tasks.sampling import Fits, between, draw, exists, few, smaller, thin, turned, twins, wide
from kerneleval.tasks.shapes import DEGENERATE, EDGE, PART, Budget, within
from kerneleval.tasks.special_sizes import BLOCK, THIN, TRIALS, lean_case, special_cases, wider_bytes

_CHANCE = secrets.SystemRandom()

_Sizes = tuple[tuple[str, int], ...]
"""The dims of a case."""

_SECRET_CATEGORIES = ("small", "medium", "non_power_of_two", "rectangular")
"""Categories from which secret shapes are drawn, where the plan has them: those with many members."""

_MOST_FEW = 10
"""Secret cases at most for choices of kernel width, stride and the like that are not planned."""

_PARTS = range(2, 8)
"""Sizes of the dims that one dim stands for; different ones, so that none can stand for another."""

_MOST_THIN = 3
"""Secret cases at most, in the first dtype, of which some dims are thin that are in no planned case together."""


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
    - those of :func:`_never_beside_many`, :func:`_unlike` and :func:`special_cases`.

    In every other dtype:

    - one at the sizes of the first of these;
    - a standard one, with smaller ones before it, and at its sizes later one in the first dtype, for what is kept by
      sizes alone;
    - one under a secret distribution (small inputs where there is an epsilon that they could show);
    - one in which some dims are thin;
    - in a secret one of these dtypes, that of :func:`lean_case`.

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
            cases += special_cases(task, alike, categories, budget)
        elif dtype == further.get(direction):
            cases += lean_case(task, alike, categories, budget)
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
    for _ in range(TRIALS):
        drawn = draw(task, category, 0, 1, secrets.randbits(63), fits)
        dims = {**(drawn or {}), task.table.folded: Folded(_CHANCE.sample(_PARTS, count))}
        if drawn is not None and task.allows(dims) and fits(dims):
            return dims
    return None


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
        steps = range(1, THIN + 1) if layout == "contiguous" else (0,)  # no planned one is strided and of one element
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
    larger = Budget(memory_bytes=wider_bytes(budget), flops=budget.flops)
    fits = functools.partial(within, task, case.direction, case.dtype, larger)
    small = "small" if "small" in categories else categories[0]
    varied, odd = _others(task, alike)
    chosen, laid_out = _telling(varied, count) or ["standard"], _CHANCE.sample(odd, len(odd)) or ["contiguous"]
    for number in range(count):
        begun = (draw(task, small, 0, 1, secrets.randbits(63), fits) for _ in range(TRIALS // 4))
        tried = (wide(task, dims, secrets.randbits(63), fits) for dims in begun if dims is not None)
        if (dims := next(filter(None, tried), None)) is not None:
            yield replace(
                case,
                dims=tuple(dims.items()),
                layout=laid_out[number % len(laid_out)],
                distribution=chosen[number % len(chosen)],
                shape_category=EDGE,
            )


def _between(task: Task, fits: Fits) -> dict[str, int] | None:
    """Sizes between the ranges of the categories, no two of them alike if that can be had in a few draws."""
    names = [dim.name for dim in task.dims if dim.scaled]
    drawn = [dims for _ in range(TRIALS // 2) if (dims := between(task, secrets.randbits(63), fits)) is not None]
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
        for _ in range(TRIALS // 4):
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
    beside = _CHANCE.choice((1, BLOCK - 1))
    size = (dims[name] - 1 - beside) // BLOCK * BLOCK + beside
    if beside == 1 and size > BLOCK and _CHANCE.random() < 0.5:
        size = (1 << (size - 1).bit_length() - 1) + 1
    whole = dim.scaled and dim.multiple_of == 1 and size > BLOCK // 2 and size >= dim.least
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
        drawn = (sizes(category=small) for _ in range(TRIALS))
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
    for number in range(4 * TRIALS if dims else 0):
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
        for _ in range(TRIALS):
            drawn = draw(task, category, 0, 1, secrets.randbits(63), fits)
            if drawn is None:
                break
            if tuple(drawn.items()) not in taken:
                return drawn
    return None
