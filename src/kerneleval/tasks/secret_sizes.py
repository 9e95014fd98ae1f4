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

_CHANCE = secrets.SystemRandom()

_Sizes = tuple[tuple[str, int], ...]
"""The dims of a case."""

_SECRET_CATEGORIES = ("small", "medium", "non_power_of_two", "rectangular")
"""Categories from which secret shapes are drawn, where the plan has them: those with many members."""
_TRIALS = 16
"""How often secret sizes are drawn until some fit and are new."""

_MOST_FEW = 10
"""Secret cases at most for choices of kernel width, stride and the like that are not planned."""

_THIN = 6
"""Steps above its lowest value of a secret thin dim, at most."""

_WIDE_BYTES = 64 << 20
"""Bytes of a secret case of two large sides, at most, where a case's budget is smaller."""
_WIDER = 4
"""Such a case takes at most so many times the budget: it is called once, and not timed."""

_PARTS = range(2, 8)
"""Sizes of the dims that one dim stands for; different ones, so that none can stand for another."""

_MOST_THIN = 3
"""Secret cases at most, in the first dtype, of which some dims are thin that are in no planned case together."""


def secret_cases(task: Task, planned: Sequence[Case], budget: Budget, *, large: int = 2) -> tuple[Case, ...]:
    """Cases at sizes drawn from the system's randomness, of which none is planned.

    For each direction in the first dtype judged: one standard, at sizes between those of the categories; before it,
    for every dim, one of which that dim is a little smaller; behind it two such, for what is kept by rounded sizes;
    of it and, before, of one of these, one of which two dims have changed places; one in a layout that is not
    contiguous, with smaller ones before and behind it; long ones under two distributions that are not standard, large
    inputs and a secret one; up to three of which some dims are thin that are in no planned case together, or else
    one; and those of :func:`_unlike`. In every other dtype one at the sizes of the first of these; a standard one,
    with smaller ones before it, and at its sizes later one in the first dtype, for what is kept by sizes alone; one
    under a secret distribution (small inputs where there is an epsilon that they could show) and one of which some
    dims are thin. None for tasks with sizes of their own or at the shapes of models, and none where a single case is
    judged.
    """
    if task.case_dims or len(planned) < 2:
        return ()
    ordinary = [c for c in planned if (c.layout, c.distribution) == ("contiguous", "standard")]
    groups: dict[tuple[Direction, str], list[str]] = {}
    for case in ordinary:
        if case.shape_category in SHAPE_CATEGORIES and exists(task, case.shape_category):
            groups.setdefault((case.direction, case.dtype), []).append(case.shape_category)
    taken = {case.dims for case in planned}
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
        if first and "large" in categories:
            cases += _with_two_large(task, alike, categories, budget, large)
    fit = (c for c in again if within(task, c.direction, c.dtype, budget, c.dims_map))
    return (*cases, *fit)


def other_ranks(task: Task, planned: Sequence[Case], budget: Budget) -> Iterator[Case]:
    """Small cases at other numbers of dims than the plan's, where the task takes any (``Table.folded``): for each
    direction and dtype one with more dims that is not contiguous; in the first dtype also a contiguous one and,
    forward, one with fewer. None where :func:`secret_cases` has none.
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
            if (sizes := _of_rank(task, count, functools.partial(within, task, direction, dtype, budget))) is not None:
                dims, folds = tuple((n, int(size)) for n, size in sizes.items()), ((name, sizes[name].sizes),)
                case = replace(alike[0], dims=dims, folds=folds, layout=layout)
                yield replace(case, distribution="standard", shape_category=EDGE)


def _of_rank(task: Task, count: int, fits: Fits) -> dict[str, Any] | None:
    """Small secret sizes of which the folded dim stands for so many dims; None: found none."""
    small = "small" if exists(task, "small") else "tiny"
    for _ in range(_TRIALS):
        drawn = draw(task, small, 0, 1, secrets.randbits(63), fits)
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
    unlike: list[dict[str, int] | None] = [_thinned(task, sizes(category=medium), part, fits) for part in parts]
    if first:
        before, near, behind = _near(task, found[0].dims_map, fits)
        for dims in (before, *near):
            add(dims, EDGE, "contiguous", "standard")
        unlike.append(behind)
        planned = [c for c in alike if (c.layout, c.distribution) == ("contiguous", "standard")]
        unlike += _unlike(task, planned, categories, sizes, fits)
    for trial in unlike:
        add(trial, EDGE, "contiguous", "standard")  # one call each: what they look for, one call shows
    return found


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
    most = max(budget.memory_bytes, min(_WIDER * budget.memory_bytes, _WIDE_BYTES))
    larger = Budget(memory_bytes=min(most, _WIDE_BYTES), flops=budget.flops)
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
    """The cases, and before the first one for each of its dims one of which that dim is smaller; such ones also behind
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
        return list(drawn.values())

    found: list[Case] = []
    for place, case in enumerate(cases):
        strided = case.layout != "contiguous"
        before = less(case)[: 1 if strided else None] if place == 0 or strided else []
        found += [*before, case, *(less(case) if strided else [])]
    return found


def _unlike(
    task: Task,
    planned: Sequence[Case],
    categories: Sequence[str],
    sizes: Callable[..., dict[str, int] | None],
    fits: Fits,
) -> Iterator[dict[str, int]]:
    """Secret sizes of kinds that the plan leaves out: choices of the dims of few values that no standard case makes;
    and tensors shaped as those of a planned case under other plain arguments.
    """
    left = [c for c in few(task) if not any(c.items() <= case.dims_map.items() for case in planned)]
    small = "small" if "small" in categories else categories[0]
    for choice in _CHANCE.sample(left, min(len(left), _MOST_FEW)):
        drawn = (sizes(category=small) for _ in range(_TRIALS))
        trials = (dims | choice for dims in drawn if dims is not None)
        yield from itertools.islice((dims for dims in trials if task.allows(dims) and fits(dims)), 1)
    for case in _CHANCE.sample(planned, len(planned)):
        alike = [dims for dims in twins(task, case.dims_map, case.dtype) if fits(dims)]
        if case.shape_category != EDGE and alike:
            yield _CHANCE.choice(alike)
            return


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


def _thinned(task: Task, dims: Mapping[str, int] | None, names: Sequence[str], fits: Fits) -> dict[str, int] | None:
    """The same dims but for these, each of which is a few secret steps above its lowest."""
    above = [_CHANCE.randint(1, _THIN) for _ in names]
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
