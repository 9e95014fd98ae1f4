"""Which cases a task is judged at: shapes by category, and over them dtypes, directions, layouts and distributions; and
secret ones, at sizes that cannot be known beforehand.
"""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, cast

from kerneleval.records import (
    DIRECTIONS,
    DISTRIBUTIONS,
    DTYPES,
    REAL,
    SHAPE_CATEGORIES,
    Case,
    Direction,
    Protocol,
    Scalar,
    Task,
    TensorSpec,
    UsageError,
    near,
)
from kerneleval.tasks.real_shapes import real_shapes
from kerneleval.tasks.sampling import Fits, between, draw, exists, few, smaller, thin, turned, twins

EDGE = "edge"
"""Shape category of the smallest, the thin and the empty cases."""

PART = 4
"""Thin cases and, if anything fits into it, secret ones take no more than this part of a case's budget."""

_DRAWS = 3
"""Rows of a category for each direction and dtype: 0 carries the standard (timed) case; 1 and 2, in the small and
medium categories, carry the cases of other distributions and layouts, so that these meet further shapes."""

DEGENERATE = ("constant", "zeros")
"""Distributions that hide a wrong layout, because any order of equal elements is the same; paired with none."""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of one case on one device."""

    memory_bytes: int
    """Contiguous bytes of the arguments and outputs; in backward cases also of the upstream and resulting gradients."""
    flops: int
    """Floating-point operations of one forward call."""


def case_bytes(task: Task, direction: str, dims: Mapping[str, int], dtype: str) -> int:
    """Bytes of one case's contiguous buffers: arguments, outputs and, backward, upstream and resulting gradients."""
    tensors = [arg for arg in task.arguments(dims, dtype) if isinstance(arg, TensorSpec)]
    given = sum(spec.nbytes for spec in tensors)
    total = max(task.bytes(dims, dtype), given)
    if direction == "forward":
        return total
    return total + (total - given) + sum(spec.nbytes for spec in tensors if spec.differentiable)


def plan(task: Task, protocol: Protocol, budget: Budget) -> tuple[Case, ...]:
    """The cases at which a candidate for the task is judged, the same for every candidate: at least one, all different,
    forward before backward, in the order of the task's dtypes and categories.

    For each direction and dtype: the standard distribution, contiguous, once in each shape category that exists for the
    task; then other distributions and layouts over further small and medium shapes (every one at least twice forward
    and once backward; in the ``quick`` tier every layout once forward and two backward), the distributions also in
    contiguous inputs, for which kernels have paths of their own (in the ``quick`` tier one of them backward); then the
    edges: the smallest shape, large ones of which one dim, or all but one, is at its lowest and, where defined, empty
    ones. Where the protocol names distributions: exactly those, contiguous, in every shape category. Infinities and NaN
    are given forward only: IEEE arithmetic defines outputs, not gradients.

    Where the protocol has real shapes: those of models (``real_shapes.py``) that fit the budget instead of sampled
    ones, in the standard distribution, contiguous; other distributions and layouts once, at the smallest of them.
    Shapes shrink to meet the budget of one case (``sampling.py``); a task's own ``case_dims`` do not.

    Raises UsageError: the protocol names something unknown or that the task does not have; or a case cannot be made to
    fit the budget (the message names the task, the smallest size and the budget); or no shape of a model does.
    """
    if protocol.shapes == "real":
        _ask_for_real(task, protocol)
    directions = _restrict(task, "direction", task.directions, protocol.directions, DIRECTIONS)
    dtypes = _restrict(task, "dtype", task.dtypes, protocol.dtypes, tuple(DTYPES))
    known = tuple(dict.fromkeys(c for c, _ in task.case_dims)) or tuple(
        c for c in (*SHAPE_CATEGORIES, EDGE) if c == EDGE or exists(task, c)
    )
    categories = _restrict(task, "shape category", known, protocol.categories, (*SHAPE_CATEGORIES, EDGE, "given"))
    _restrict(task, "distribution", task.distributions, protocol.distributions, DISTRIBUTIONS)
    cases: list[Case] = []
    for direction in directions:
        for dtype in judged_in(task, direction, dtypes):
            planner = _Planner(task, protocol, budget, cast(Direction, direction), dtype, categories)
            if protocol.shapes == "real":
                cases += planner.real()
            else:
                cases += planner.given() if task.case_dims else planner.sampled()
    if not cases and directions == ("backward",) and not judged_in(task, "backward", dtypes):
        raise UsageError(
            f"task {task.name}: gradients are judged in {', '.join(task.backward_dtypes)}, not in {', '.join(dtypes)}"
        )
    if not cases and protocol.shapes == "real" and (why := left_out(task, protocol, budget)):
        raise UsageError(f"task {task.name}: no shape of a model fits here; {why[0]}")
    if not cases:
        raise UsageError(
            f"task {task.name}: no case is left under distributions={protocol.distributions} and "
            f"directions={directions}; non-finite inputs are judged forward only"
        )
    return tuple(dict.fromkeys(cases))


def _ask_for_real(task: Task, protocol: Protocol) -> None:
    """Raises UsageError where the protocol or the task allows no real shapes."""
    if protocol.categories:
        named = ", ".join(protocol.categories)
        raise UsageError(f"shape categories ({named}) are for sampled shapes; leave out either them or real shapes")
    if not real_shapes(task):
        from kerneleval.tasks import all_tasks

        names = [other.name for other in all_tasks().values() if real_shapes(other)]
        hint = near(task.name, names, see="kerneleval tasks --real")
        raise UsageError(f"task {task.name} has no shapes of real models; {len(names)} tasks have: {hint}")


def left_out(task: Task, protocol: Protocol, budget: Budget) -> tuple[str, ...]:
    """A line for each real shape of the protocol that exceeds the budget, with the reason, in the table's order."""
    if protocol.shapes != "real":
        return ()
    lines = []
    for shape in real_shapes(task):
        where, most_bytes, most_flops = [], 0, 0
        for direction in (d for d in task.directions if not protocol.directions or d in protocol.directions):
            dtypes = [dtype for dtype in task.dtypes if not protocol.dtypes or dtype in protocol.dtypes]
            over = [
                dtype
                for dtype in judged_in(task, direction, dtypes)
                if not within(task, direction, dtype, budget, shape.dims)
            ]
            if over:
                where.append(f"{direction} in {', '.join(over)}")
                most_bytes = max(most_bytes, *(case_bytes(task, direction, shape.dims, dtype) for dtype in over))
                most_flops = task.flops(shape.dims)
        if where:
            why, limits = [], []
            if most_bytes > budget.memory_bytes:
                why.append(f"{_mib(most_bytes)} of tensors")
                limits.append(_mib(budget.memory_bytes))
            if most_flops > budget.flops:
                why.append(f"{most_flops:.3g} operations")
                limits.append(f"{budget.flops:.3g} operations")
            lines.append(
                f"{shape.name} ({dims_text(shape.dims)}) is left out {' and '.join(where)}: it takes "
                f"{' and '.join(why)}; a case may take {' and '.join(limits)} here"
            )
    return tuple(lines)


def judged_in(task: Task, direction: str, dtypes: Sequence[str]) -> tuple[str, ...]:
    """Those of the dtypes in which a direction of the task is judged."""
    some = task.backward_dtypes if direction == "backward" else ()
    return tuple(dtype for dtype in dtypes if not some or dtype in some)


def within(task: Task, direction: str, dtype: str, budget: Budget, dims: Mapping[str, int]) -> bool:
    """Whether a case keeps to a budget."""
    return task.flops(dims) <= budget.flops and case_bytes(task, direction, dims, dtype) <= budget.memory_bytes


def is_timed(case: Case, task: Task, protocol: Protocol) -> bool:
    """Whether a case of the plan is timed: standard, contiguous, one for each shape category but ``edge``, in the
    protocol's timed dtypes or else the first dtype judged; both directions.
    """
    if not protocol.timed or case.shape_category == EDGE:
        return False
    if case.distribution != "standard" or case.layout != "contiguous":
        return False
    if task.case_dims:
        first = next((dims for category, dims in task.case_dims if category == case.shape_category), None)
        if first is not None and first != case.dims_map:
            return False
    judged = [dtype for dtype in task.dtypes if not protocol.dtypes or dtype in protocol.dtypes]
    return case.dtype in (protocol.timed_dtypes or tuple(judged[:1]))


def _restrict(
    task: Task, what: str, own: Sequence[str], asked: Sequence[str], vocabulary: Sequence[str]
) -> tuple[str, ...]:
    """Those of the task's own values that the protocol names (all, when it names none), in the task's order."""
    for name in asked:
        if name not in vocabulary and name not in own:
            raise UsageError(f"{what} {name!r} is unknown; {near(name, vocabulary)}")
    kept = tuple(name for name in own if not asked or name in asked)
    if not kept:
        why = f" ({task.no_backward})" if what == "direction" and task.no_backward else ""
        raise UsageError(f"task {task.name} has no {what} {' or '.join(asked)}{why}; it has {', '.join(own)}")
    return kept


@dataclass(frozen=True)
class _Planner:
    """The cases of one task in one direction and dtype."""

    task: Task
    protocol: Protocol
    budget: Budget
    direction: Direction
    dtype: str
    categories: Sequence[str]
    _drawn: dict[tuple[str, int], dict[str, int]] = field(default_factory=dict)

    @property
    def distributions(self) -> tuple[str, ...]:
        """Those of the task in which this direction is judged."""
        not_backward = ("nonfinite", *self.task.forward_only) if self.direction == "backward" else ()
        return tuple(d for d in self.task.distributions if d not in not_backward)

    def sampled(self) -> list[Case]:
        """Cases at shapes drawn here."""
        main = [(c, self._dims(c, 0)) for c in self.categories if c != EDGE]
        edges = [(EDGE, dims) for dims in self._edges()] if EDGE in self.categories else []
        if self.protocol.distributions:
            return self._product([*main, *edges[:1]] if EDGE in self.protocol.categories else main)
        cases = [self._case(category, dims) for category, dims in main if "standard" in self.distributions]
        places = [(c, use) for use in range(1, _DRAWS) for c in ("small", "medium") if c in self.categories]
        for i, (distribution, layout) in enumerate(self._others() if places else ()):
            for place in range(len(places)):  # from place to place, until the case is a new one
                category, use = places[(i + place) % len(places)]
                case = self._case(category, self._dims(category, use), layout, distribution)
                if case not in cases:
                    cases.append(case)
                    break
        return cases + [self._case(category, dims) for category, dims in edges]

    def given(self) -> list[Case]:
        """Cases at the task's own shapes; other distributions and layouts once, at the first shape."""
        shapes = [(c, dict(dims)) for c, dims in self.task.case_dims if c in self.categories]
        for _, dims in shapes:
            need = case_bytes(self.task, self.direction, dims, self.dtype)
            if need > self.budget.memory_bytes:
                at = f" at {dims_text(dims)}" if dims else ""
                raise UsageError(
                    f"task {self.task.name}{at} in {self.dtype}, {self.direction}, takes {_mib(need)} of "
                    f"tensors; the budget of one case is {_mib(self.budget.memory_bytes)}"
                )
        if self.protocol.distributions:
            return self._product(shapes)
        cases = [self._case(c, dims) for c, dims in shapes if "standard" in self.distributions]
        return cases + [self._case(*shapes[0], layout, d) for d, layout in self._others(times=1)]

    def real(self) -> list[Case]:
        """Cases at those shapes of models that fit; other distributions and layouts once, at the smallest."""
        shapes = [(REAL + shape.name, shape.dims) for shape in real_shapes(self.task) if self._fits(shape.dims)]
        if self.protocol.distributions or not shapes:
            return self._product(shapes)
        cases = [self._case(*shape) for shape in shapes if "standard" in self.distributions]
        least = min(shapes, key=lambda shape: case_bytes(self.task, self.direction, shape[1], self.dtype))
        return cases + [self._case(*least, layout, d) for d, layout in self._others(times=1)]

    def _product(self, shapes: Sequence[tuple[str, dict[str, int]]]) -> list[Case]:
        chosen = [d for d in self.distributions if d in self.protocol.distributions]
        return [self._case(category, dims, distribution=d) for category, dims in shapes for d in chosen]

    def _case(
        self, category: str, dims: Mapping[str, int], layout: str = "contiguous", distribution: str = "standard"
    ) -> Case:
        return Case(
            task=self.task.name,
            direction=self.direction,
            dims=tuple(dims.items()),
            dtype=self.dtype,
            layout=layout,
            distribution=distribution,
            shape_category=category,
        )

    def _others(self, times: int = 0) -> Iterator[tuple[str, str]]:
        """(distribution, layout) pairs beyond standard and contiguous, each ``times`` (0: as the tier says)."""
        quick = self.protocol.tier == "quick"
        if quick and self.direction == "backward" and not times:
            every = list(self._others(times=1))
            strided = [pair for pair in every if pair[1] != "contiguous"]
            dense = [pair for pair in every if pair[1] == "contiguous" and pair[0] not in DEGENERATE]
            yield from dict.fromkeys((*every[:1], *strided[-1:], *dense[1:2]))
            return
        times = times or (2 if self.direction == "forward" and not quick else 1)
        varied = [d for d in self.distributions if d not in ("standard", *DEGENERATE)]
        layouts = [layout for layout in self.task.layouts if layout != "contiguous"]
        plain = list(varied) if layouts else []
        if layouts and len(varied) % 2:
            varied.append("standard")  # an even number, so that a layout meets another distribution the second time
        for turn in range(times):
            for i in range(max(len(varied), len(layouts))):
                distribution = varied[(i + turn) % len(varied)] if varied else "standard"
                yield distribution, layouts[i % len(layouts)] if layouts else "contiguous"
            if not quick:
                yield from ((d, "contiguous") for d in DEGENERATE if d in self.distributions)
        yield from ((d, "contiguous") for d in plain)

    def _fits(self, dims: Mapping[str, int]) -> bool:
        return within(self.task, self.direction, self.dtype, self.budget, dims)

    def _dims(self, category: str, use: int) -> dict[str, int]:
        """The row of this direction, dtype and use, whatever else the protocol leaves out."""
        if (category, use) in self._drawn:
            return self._drawn[category, use]
        directions, dtypes = self.task.directions, self.task.dtypes
        place = directions.index(self.direction) * len(dtypes) + dtypes.index(self.dtype)
        count = len(directions) * len(dtypes) * _DRAWS
        # Use by use, so that the timed rows of one dtype are not neighbours of the others in the rotation of kinds.
        row = use * len(directions) * len(dtypes) + place
        dims = draw(self.task, category, row, count, self.protocol.suite_seed, self._fits)
        if dims is None:
            self._refuse(category)
        self._drawn[category, use] = dims
        return dims

    def _refuse(self, category: str) -> NoReturn:
        smallest = self._smallest()
        need = case_bytes(self.task, self.direction, smallest, self.dtype)
        flops = self.task.flops(smallest)
        if self._fits(smallest):
            raise UsageError(
                f"task {self.task.name}: found no {category} shape that meets both its constraint and the budget of "
                f"{_mib(self.budget.memory_bytes)} and {self.budget.flops:.3g} operations a case"
            )
        raise UsageError(
            f"task {self.task.name} in {self.dtype}, {self.direction}, needs at least {need} bytes and {flops} "
            f"operations ({dims_text(smallest)}); the budget of one case is {self.budget.memory_bytes} bytes and "
            f"{self.budget.flops} operations"
        )

    def _smallest(self) -> dict[str, int]:
        """Every dim at its lowest; where the constraint forbids that, the last dims a little above."""
        dims = self.task.least_dims
        for dim in reversed(self.task.dims):
            for steps in range(8):
                trial = dims | {dim.name: min(dim.least + steps * dim.multiple_of, dim.high)}
                if self.task.allows(trial):
                    return trial
        raise UsageError(
            f"task {self.task.name}: its constraint forbids the smallest dims, {dims_text(dims)}, and their like"
        )

    def _edges(self) -> list[dict[str, int]]:
        """The smallest shape; large ones of which one scaled dim is at its lowest, each in turn, and in the first dtype
        large ones of which all others are (in the ``quick`` tier one at its lowest, each in turn in the first dtype and
        one in the others); and empty ones: the first dim that may be 0, of which backward leaves gradients of weights
        that are sums of nothing (in the ``quick`` tier in the first dtype), and forward also the last. The first dtype
        is the task's, whatever is judged: runs share their cells.
        """
        smallest = self._smallest()
        if not self._fits(smallest):
            self._refuse(EDGE)
        edges = [smallest]
        scaled = tuple(dim.name for dim in self.task.dims if dim.scaled)
        chosen: list[tuple[str, ...]] = [(name,) for name in scaled]
        turn, quick = self.task.dtypes.index(self.dtype), self.protocol.tier == "quick"
        if turn == 0 and not quick and len(scaled) > 2:
            chosen += [tuple(name for name in scaled if name != long) for long in scaled]
        rows = [row for row in self._thin(chosen) if self._fits(row)]
        edges += rows if turn == 0 or not quick else rows[turn % len(rows) :][:1] if rows else []
        if self.task.empty and (self.direction == "forward" or turn == 0 or not quick):
            base = self._dims("small", 0) if exists(self.task, "small") else smallest
            empty = [trial for dim in self.task.dims if self.task.allows(trial := base | {dim.name: 0})]
            edges += empty[:1] + (empty[1:][-1:] if self.direction == "forward" else [])
        return edges

    def _thin(self, chosen: Sequence[tuple[str, ...]]) -> Iterator[dict[str, int]]:
        """For each choice of dims a shape of no powers of two with these at their lowest, as large as a part of the
        budget lets the others be then.
        """
        memory_bytes, flops = (limit // PART for limit in (self.budget.memory_bytes, self.budget.flops))
        part = Budget(memory_bytes=memory_bytes, flops=flops)
        category = "non_power_of_two" if exists(self.task, "non_power_of_two") else "medium"
        for row, names in enumerate(chosen if exists(self.task, category) else ()):

            def fits(dims: Mapping[str, int], names: tuple[str, ...] = names) -> bool:
                return within(self.task, self.direction, self.dtype, part, thin(self.task, dims, names) or dims)

            drawn = draw(self.task, category, row, len(chosen), self.protocol.suite_seed, fits)
            thinner = thin(self.task, drawn, names) if drawn is not None else None
            if thinner is not None:
                yield thinner


def dims_text(dims: Mapping[str, int]) -> str:
    """``M=4,N=7``."""
    return ",".join(f"{name}={value}" for name, value in dims.items())


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / 2**20:.1f} MiB"


# -- Secret sizes: drawn from the system's randomness beside a plan, which is public ----------------------------------

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

_MOST_THIN = 3
"""Secret cases at most, in the first dtype, of which some dims are thin that are in no planned case together."""


def secret_cases(task: Task, planned: Sequence[Case], budget: Budget) -> tuple[Case, ...]:
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
    fit = (c for c in again if within(task, c.direction, c.dtype, budget, c.dims_map))
    return (*cases, *fit)


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
    direction, dtype = alike[0].direction, alike[0].dtype
    usual = [c for c in categories if c in _SECRET_CATEGORIES] or categories
    wanted = [(_CHANCE.choice(usual), "contiguous", "standard")]
    varied = sorted({c.distribution for c in alike} - {"standard", *DEGENERATE})
    odd = sorted({c.layout for c in alike} - {"contiguous"})
    if odd and varied:  # nothing was left out by request, but the quick tier has few of them backward
        left_out = {"standard", "nonfinite", *DEGENERATE, *(task.forward_only if direction == "backward" else ())}
        varied = sorted({*task.distributions} - left_out | {*varied})
        odd = sorted({*task.layouts} - {"contiguous"})
    if first:
        wanted.append((_CHANCE.choice(usual), _CHANCE.choice(odd or ["contiguous"]), "standard"))
        long = [c for c in categories if c == "rectangular"] or usual
        rest = [d for d in varied if d != "large_scale"]
        chosen = [d for d in varied if d == "large_scale"] + ([_CHANCE.choice(rest)] if rest else [])
        wanted += [(_CHANCE.choice(long), "contiguous", distribution) for distribution in chosen]
    elif varied:
        plain = [arg.value for arg in task.arguments(alike[0].dims_map, dtype) if isinstance(arg, Scalar)]
        telling = "small_scale" in varied and any(isinstance(value, float) for value in plain)
        wanted.append((_CHANCE.choice(usual), "contiguous", "small_scale" if telling else _CHANCE.choice(varied)))
    return wanted


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
