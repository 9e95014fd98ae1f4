"""Which cases a task is judged at: shapes by category, and over them dtypes, directions, layouts and distributions."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, cast

from kerneleval.records import (
    BINNED,
    COUNTED,
    DIRECTIONS,
    DISTRIBUTIONS,
    DTYPES,
    REAL,
    ROW_DISTRIBUTIONS,
    SHAPE_CATEGORIES,
    Arg,
    Case,
    Direction,
    Protocol,
    Task,
    TensorSpec,
    UsageError,
    formula_names,
    near,
)
from kerneleval.tasks.real_shapes import real_shapes
from kerneleval.tasks.sampling import RANGES, draw, exists, thin

_SMALLER = (
    "; --shapes sweep judges smaller sizes where they are whole numbers at the top of the file or in get_inputs()"
)

EDGE = "edge"
"""Shape category of the smallest, the thin and the empty cases."""

PART = 4
"""Thin cases and, if anything fits into it, secret ones take no more than this part of a case's budget."""

_DRAWS = 3
"""Rows of a category for each direction and dtype: 0 carries the standard (timed) case; 1 and 2, in the small and
medium categories, carry the cases of other distributions and layouts, so that these meet further shapes."""

_LONG = tuple((most, 1 << share) for most, shares in ((12, 3), (6, 6), (3, 8), (1, 9)) for share in range(shares))
"""Most of the dims that make up no row, and the part of a large size that a long row has: what is tried in turn until
it fits. Twelve rows have each order of ``ordered`` twice."""

_MOST_IN_HALF = 60_000
"""Counts below float16's largest number, 65504."""

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
    if task.arguments == task.table.arguments:
        given, differentiable = task.table.argument_bytes(dims, dtype)
    else:
        tensors = [arg for arg in task.arguments(dims, dtype) if isinstance(arg, TensorSpec)]
        given = sum(spec.nbytes for spec in tensors)
        differentiable = sum(spec.nbytes for spec in tensors if spec.differentiable)
    total = max(task.bytes(dims, dtype), given)
    return total if direction == "forward" else total + (total - given) + differentiable


def plan(task: Task, protocol: Protocol, budget: Budget) -> tuple[Case, ...]:
    """The cases at which a candidate for the task is judged, the same for every candidate: at least one, all different,
    forward before backward, in the order of the task's dtypes and categories.

    For each direction and dtype, in this order:

    - the standard distribution, contiguous, once in each shape category that exists for the task;
    - other distributions and layouts over further small and medium shapes, each at least twice forward and once
      backward; the distributions in contiguous inputs too, for which kernels have paths of their own. The ``quick``
      tier has every layout once forward and two backward, and of the contiguous ones a single one backward and zeros in
      the first dtype alone;
    - edges: the smallest shape, large ones of which one dim, or all but one, is at its lowest, and, where they are
      defined, empty ones;
    - a few long rows under each of the task's ``ROW_DISTRIBUTIONS``, which come nowhere else: backward in the first
      dtype alone, means far from zero not in half types, which cannot hold them.

    Where the protocol names distributions, there are exactly those, contiguous, in every shape category. Infinities and
    NaN are given forward only: IEEE arithmetic defines outputs, not gradients. Contiguous, they come in a few long
    rows, if the task names its rows.

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
    """A line for each real shape, or size of the task's own, that exceeds the budget, with the reason."""
    if protocol.shapes != "real":
        large = [dims for _, dims in task.case_dims if not within(task, "forward", task.dtypes[0], budget, dims)]
        return tuple(
            f"{dims_text(dims)} is left out: it takes {_mib(case_bytes(task, 'forward', dims, task.dtypes[0]))} of "
            f"tensors; the budget of one case is {_mib(budget.memory_bytes)}"
            for dims in large
        )
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
        rows = list(self._by_rows()) if EDGE in self.categories else []
        if self.protocol.distributions:
            chosen = self._product([*main, *edges[:1]] if EDGE in self.protocol.categories else main)
            return chosen + [case for case in rows if case.distribution in self.protocol.distributions]
        cases = [self._case(category, dims) for category, dims in main if "standard" in self.distributions]
        places = [(c, use) for use in range(1, _DRAWS) for c in ("small", "medium") if c in self.categories]
        for i, (distribution, layout) in enumerate(self._others() if places else ()):
            if (distribution, layout) == ("nonfinite", "contiguous") and (long := self._long_not_finite()):
                cases.append(self._case(EDGE, long, layout, distribution))
                if not self._masked:  # of masked rows also many, for all forms to come
                    continue
            for place in range(len(places)):  # from place to place, until the case is a new one
                category, use = places[(i + place) % len(places)]
                case = self._case(category, self._dims(category, use), layout, distribution)
                if case not in cases:
                    cases.append(case)
                    break
        if main and any(isinstance(arg, Arg) and arg.ids for arg in self.task.table.args):
            most = max(main, key=lambda one: self._need(one[1]))  # all ids the same: counters are fullest
            cases += [self._case(*most, distribution="constant")]
        return cases + [self._case(category, dims) for category, dims in edges] + rows

    def _by_rows(self) -> Iterator[Case]:
        """A few long rows under each of ``ROW_DISTRIBUTIONS``."""
        first = judged_in(self.task, self.direction, self.task.dtypes)[0] == self.dtype
        chosen = [d for d in self.distributions if d in ROW_DISTRIBUTIONS and (first or self.direction == "forward")]
        if DTYPES[self.dtype] < 4:
            chosen = [d for d in chosen if d != "far_mean"]
        dims = self._long() if chosen else None
        if dims is not None:
            for distribution in chosen:
                turns = self._in_turn(dims) if distribution == "binned" else [dims]
                for sizes in [self._counted() or dims] if distribution == "full" else turns:
                    yield self._case(EDGE, sizes, distribution=distribution)

    def _counted(self) -> dict[str, int] | None:
        """Rows in which more is counted than 16 bits hold; in float16, where PyTorch divides by the count, than 15."""
        dims = self._long(COUNTED)
        if dims is None or self.dtype != "float16":
            return dims
        return {name: min(size, _MOST_IN_HALF) for name, size in dims.items()}

    def _long_not_finite(self) -> dict[str, int] | None:
        """A few long rows for what is not finite, if the task names its rows."""
        named = any(isinstance(arg, Arg) and arg.along for arg in self.task.table.args)
        return self._long() if named else None

    @property
    def _masked(self) -> bool:
        """Whether parts of rows are minus infinity under ``nonfinite``."""
        return any(isinstance(arg, Arg) and arg.nonfinite.startswith("masked") for arg in self.task.table.args)

    def _in_turn(self, dims: dict[str, int]) -> Iterator[dict[str, int]]:
        """So many lengths of a row that all structures of ``binned`` data come: where the sizes say which one is the
        first, and each row has the next.
        """
        counted = (a for a in self.task.arguments(dims, self.dtype) if isinstance(a, TensorSpec) and a.edges)
        spec = next(counted)
        rows = spec.numel // math.prod(spec.shape[dim] for dim in spec.along)
        named = next(a for a in self.task.table.args if isinstance(a, Arg) and a.name == spec.name)
        name = named.along.split()[-1]
        for less in range(0, BINNED, rows):
            if self.task.allows(sizes := dims | {name: dims[name] - less}):
                yield sizes

    def _long(self, least: int = 0) -> dict[str, int] | None:
        """A few long rows, of more than ``least`` elements: of the dims that scale, those along the rows large, the
        others low; those that no input has (how many are selected) as high as may be. None: no such shape fits.
        """
        table = self.task.table
        arguments = [arg for arg in table.args if isinstance(arg, Arg)]

        def names(of: Iterable[str]) -> set[str]:
            own = {name for text in of for name in text.split()}
            return own.union(*(formula_names(str(table.derive[name]), name) for name in own if name in table.derive))

        rows, inputs = names(arg.along for arg in arguments), names(arg.shape for arg in arguments)
        category = next(c for c in ("large", "medium", "small", "tiny") if exists(self.task, c))
        drawn = draw(self.task, category, 0, 1, self.protocol.suite_seed, lambda _: True)
        part = Budget(memory_bytes=self.budget.memory_bytes // PART, flops=self.budget.flops // PART)
        counts = "full" in self.task.distributions
        most_along = RANGES["large"][1] if counts and not least else sys.maxsize  # as long where they are to be counted

        def trial(most: int, share: int, *, picked: bool) -> dict[str, int]:
            found = {}
            for dim in self.task.dims:
                along, value = dim.name in rows, drawn[dim.name] if drawn else 0
                high = min(dim.high, most_along)
                value = high - (high - value) // 4 if along else value
                if not dim.scaled:
                    value = dim.high if picked and (along or dim.name not in inputs) else value
                else:
                    value = value // share if along else min(value, most)
                found[dim.name] = max(dim.least, value // dim.multiple_of * dim.multiple_of)
            return found

        for (most, share), picked in itertools.product(_LONG if drawn else (), (True, False)):
            found = trial(most, share, picked=picked)
            if max((found[name] for name in rows & found.keys()), default=0) <= least:
                continue
            if self.task.allows(found) and within(self.task, self.direction, self.dtype, part, found):
                return found
        return None

    def given(self) -> list[Case]:
        """Cases at the task's own shapes; other distributions and layouts once, at the first shape. Layouts of a module
        come alone, at its small shape where it has one: its own inputs may fill the device.
        """
        shapes = [(c, dict(dims)) for c, dims in self.task.case_dims if c in self.categories]
        fitting = [(c, dims) for c, dims in shapes if self._need(dims) <= self.budget.memory_bytes]
        if not fitting:
            dims = shapes[0][1]
            at = f" at {dims_text(dims)}" if dims else ""
            more = ""
            if self.task.module:
                swept = self.protocol.shapes == "sweep"
                more = ", and so do all other sizes found" if swept else _SMALLER
            raise UsageError(
                f"task {self.task.name}{at} in {self.dtype}, {self.direction}, takes {_mib(self._need(dims))} of "
                f"tensors; the budget of one case is {_mib(self.budget.memory_bytes)}{more}"
            )
        shapes = fitting
        if self.protocol.distributions:
            return self._product(shapes)
        cases = [self._case(c, dims) for c, dims in shapes if "standard" in self.distributions]
        if not self.task.module:
            return cases + [self._case(*shapes[0], layout, d) for d, layout in self._others(times=1)]
        cases += [self._case(*shapes[0], distribution=d) for d in self.distributions if d != "standard"]
        small = next((shape for shape in shapes if shape[0] == "small"), shapes[0])
        return cases + [self._case(*small, layout) for layout in self.task.layouts if layout != "contiguous"]

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
            zeros = [pair for pair in every if pair == ("zeros", "contiguous")]
            dense = [pair for pair in every if pair[1] == "contiguous" and pair not in zeros]
            held = any(isinstance(arg, Arg) and arg.epsilon and arg.epsilon_backward for arg in self.task.table.args)
            small = [pair for pair in dense if pair[0] == "small_scale" and held]
            yield from dict.fromkeys((*every[:1], *strided[-1:], *(small or dense[1:2]), *zeros))
            return
        times = times or (2 if self.direction == "forward" and not quick else 1)
        varied = [d for d in self.distributions if d not in ("standard", *DEGENERATE, *ROW_DISTRIBUTIONS)]
        layouts = [layout for layout in self.task.layouts if layout != "contiguous"]
        plain = list(varied) if layouts else []
        if layouts and len(varied) % 2:
            varied.append("standard")  # an even number, so that a layout meets another distribution the second time
        for turn in range(times):
            for i in range(max(len(varied), len(layouts))):
                distribution = varied[(i + turn) % len(varied)] if varied else "standard"
                yield distribution, layouts[i % len(layouts)] if layouts else "contiguous"
            degenerate = DEGENERATE if not quick else ("zeros",) if self.dtype == self.task.dtypes[0] else ()
            yield from ((d, "contiguous") for d in degenerate if d in self.distributions)
        yield from ((d, "contiguous") for d in plain)

    def _need(self, dims: Mapping[str, int]) -> int:
        return case_bytes(self.task, self.direction, dims, self.dtype)

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
            empty = [base | {dim.name: 0} for dim in self.task.dims if dim.least]
            empty = [trial for trial in empty if self.task.allows(trial)]
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
