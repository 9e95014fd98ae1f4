"""The eight shape categories: what belongs to each, and dims drawn from it under a budget.

One draw of a category is one row of a Latin hypercube (McKay, Beckman and Conover 1979) over all dims of the task,
log-uniform inside each scaled dim's range and uniform inside the others', so that the rows of one category (one for
each direction, dtype and use) together cover every dim's range evenly. The seed is public: all candidates meet the
same cells.

A row that exceeds the budget is moved towards smaller dims along a path of corners, and the largest member of the
category on that path that fits is taken:

* tiny, small, medium, large: first every scaled dim falls, inside the category's range; then all but one of them, the
  *anchor* (drawn with the row), fall below the range to 16; then the unscaled dims (batch, heads, kernel width) fall to
  their lowest; then the other scaled dims; then the anchor, inside the range. So under a small budget a large case
  still has one large dim. Only when even that does not fit does the anchor fall out of the range as well.
* power_of_two, non_power_of_two, rectangular, square: all scaled dims fall together to 16, then the unscaled dims to
  their lowest, then the scaled ones. Every step is a member of the category.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kerneleval.records import SHAPE_CATEGORIES, Dim, Scalar, Task, TensorSpec, digest

RANGES: dict[str, tuple[int, int]] = {
    "tiny": (1, 16),
    "small": (32, 128),
    "medium": (256, 1024),
    "large": (2048, 8192),
    "power_of_two": (128, 8192),
    "non_power_of_two": (129, 8191),
    "rectangular": (32, 1024),
    "square": (256, 8192),
}
"""Range (inclusive) of every scaled dim by category. The first four are definitions. The others say nothing of size;
these ranges span medium and large, so that their times matter. In rectangular cases it holds for every dim but the
longest."""

_GAPS = ((17, 31), (17, 31), (129, 255))
"""What is between the ranges of the sizes; the lower part twice: it is drawn in two of three dims."""

_FEW = 7
"""Steps by which sizes near one another differ at most."""

_MOST_STEPS = 16
"""Values that are tried for a thin dim, from its lowest on: windows that lie within a dim may be wide."""

_MOST_VALUES = 64
"""Values that a dim may have whose others are tried for the same shapes."""

_FEW_VALUES = 5
"""Values of a dim that is met at every one of them."""

RATIO = 8
"""Least ratio between the two leading scaled dims of a rectangular case."""

_MOST_RATIO = 64
_SOFT_LOW = 16
"""Where dims stop falling until the unscaled ones have fallen too."""
_WIDE = 256
"""The smaller of two large sides, at least: medium sizes end there with few of them, rectangular ones have one."""
_CLOSE = 0.85
"""Two large sides fill their budget to within the square of this, or of its square."""
_STEPS = 32
"""Points tried on each leg of a path."""
_ATTEMPTS = 24
"""Rows tried until one meets the task's constraint within the budget."""

Fits = Callable[[Mapping[str, int]], bool]


def is_power_of_two(value: int) -> bool:
    """Whether value is 1, 2, 4, 8 ..."""
    return value > 0 and value & (value - 1) == 0


def _highest(dim: Dim) -> int:
    return dim.high // dim.multiple_of * dim.multiple_of


def _scaled(task: Task) -> tuple[Dim, ...]:
    return tuple(dim for dim in task.dims if dim.scaled)


def _range(dim: Dim, category: str) -> tuple[int, int]:
    """Lowest and highest value in the category's range; where there is none, the nearest quarter of the dim's own."""
    low, high = RANGES[category]
    if inside := _values(dim, low, high):
        return inside[0], inside[-1]
    if low > _highest(dim):
        return max(dim.least, _highest(dim) // 4), _highest(dim)
    return dim.least, min(4 * dim.least, _highest(dim))


def _values(dim: Dim, low: int = 1, high: int = 1 << 62) -> range:
    """The values that the dim may take between two bounds."""
    first = max(dim.least, -(-low // dim.multiple_of) * dim.multiple_of)
    return range(first, min(dim.high, high) + 1, dim.multiple_of)


def _square_step(dims: Sequence[Dim]) -> tuple[int, int, int]:
    """Lowest, highest and step of the values that all dims may take at once."""
    step = math.lcm(*(dim.multiple_of for dim in dims))
    low = -(-max(dim.least for dim in dims) // step) * step
    return low, min(dim.high for dim in dims) // step * step, step


def exists(task: Task, category: str) -> bool:
    """Whether the limits of the task's dims leave any member of the category (a single dim is never rectangular)."""
    dims = _scaled(task)
    if category == "power_of_two":
        return all(any(is_power_of_two(v) for v in _values(dim)) for dim in dims)
    if category == "non_power_of_two":
        return all(not all(is_power_of_two(v) for v in _values(dim)) for dim in dims)
    if category == "rectangular":
        return len(dims) > 1 and max(_highest(dims[0]) / dims[1].least, _highest(dims[1]) / dims[0].least) >= RATIO
    if category == "square":
        low, high, _ = _square_step(dims)
        return low <= high
    return any(_values(dim, *RANGES[category]) for dim in dims)


def belongs(task: Task, category: str, dims: Mapping[str, int]) -> bool:
    """Whether dims are a member of the shape category.

    For the four categories of size: at least one scaled dim is in the range (a budget may have taken the others out)
    and none is above it, unless its own limits begin there.
    """
    scaled = [dims[dim.name] for dim in _scaled(task)]
    if category == "power_of_two":
        return all(is_power_of_two(v) for v in scaled)
    if category == "non_power_of_two":
        return not any(is_power_of_two(v) for v in scaled)
    if category == "rectangular":
        return len(scaled) > 1 and max(scaled[:2]) >= RATIO * min(scaled[:2])
    if category == "square":
        return len(set(scaled)) == 1
    low, high = RANGES[category]
    return any(low <= v <= high for v in scaled) and all(
        dims[dim.name] <= max(high, dim.least) for dim in _scaled(task)
    )


def between(task: Task, seed: int, fits: Fits) -> dict[str, int] | None:
    """Dims of which every scaled one is between the ranges of the sizes, from 17 to 31 or from 129 to 255; None where
    the task allows none within the budget.
    """
    chance = random.Random(seed)
    for _ in range(_ATTEMPTS):
        dims = {}
        for dim in task.dims:
            low, high = chance.choice(_GAPS) if dim.scaled else (1, 1 << 62)
            dims[dim.name] = chance.choice(_values(dim, low, high) or [dim.least])
        if task.allows(dims) and fits(dims):
            return dims
    return None


def smaller(task: Task, dims: Mapping[str, int], seed: int, fits: Fits) -> list[dict[str, int]]:
    """The same dims but for one that is smaller by a few steps; another one each time, in an order of the seed. Whether
    they fit is checked again: a smaller stride or kernel makes an output larger.
    """
    chance = random.Random(seed)
    found = []
    for dim in chance.sample(task.dims, len(task.dims)):
        less = _values(dim, dims[dim.name] - _FEW * dim.multiple_of, dims[dim.name] - 1)
        if less and task.allows(other := {**dims, dim.name: chance.choice(less)}) and fits(other):
            found.append(other)
    return found


def turned(task: Task, dims: Mapping[str, int], seed: int, fits: Fits) -> dict[str, int] | None:
    """The same dims but for two scaled ones that have changed places: often as many elements in another shape; None: no
    two may.
    """
    pairs = list(itertools.combinations([dim for dim in task.dims if dim.scaled], 2))
    for one, other in random.Random(seed).sample(pairs, len(pairs)):
        found = {**dims, one.name: dims[other.name], other.name: dims[one.name]}
        fit = all(found[dim.name] in _values(dim, found[dim.name], found[dim.name]) for dim in (one, other))
        if found != dims and fit and task.allows(found) and fits(found):
            return found
    return None


def thin(task: Task, dims: Mapping[str, int], names: Sequence[str], least: Sequence[int] = ()) -> dict[str, int] | None:
    """The same dims but for those named, each at its lowest or ``least`` steps above; where the constraint forbids
    that, at the next that it allows; None: one of them is no larger.

    A single row, query, column or channel is common (decoding, instance norm), and kernels have paths for it; few rows
    by few columns are, too (split sums of a product).
    """
    found = dict(dims)
    for name, above in zip(names, least or [0] * len(names), strict=True):
        dim = next(dim for dim in task.dims if dim.name == name)
        trials = ({**found, name: value} for value in _values(dim)[above : above + _MOST_STEPS] if value < dims[name])
        less = next(filter(task.allows, trials), None)
        if less is None:
            return None
        found = less
    return found


def wide(task: Task, dims: Mapping[str, int], seed: int, fits: Fits) -> dict[str, int] | None:
    """The same dims but for two scaled ones, both as large as fit together: their ratio is log-uniform up to that of
    rectangular shapes, either way. The others become thin where they do not fit else. None: the task has no two, or
    they do not both reach :data:`_WIDE`.
    """
    chance = random.Random(seed)
    scaled = [dim for dim in task.dims if dim.scaled]
    if len(scaled) < 2:
        return None
    pair = chance.sample(scaled, 2)
    names = [dim.name for dim in scaled if dim not in pair and dims[dim.name] > dim.least]
    thinner = thin(task, dims, names, [chance.randrange(_FEW) for _ in names]) if names else None
    aspect = RATIO ** chance.uniform(-0.5, 0.5)
    for others in filter(None, (dims, thinner)):
        side = float(RANGES["large"][1])
        while side * min(aspect, 1 / aspect) >= _WIDE:
            found = dict(others)
            for dim, most in zip(pair, (side * aspect, side / aspect), strict=True):
                found[dim.name] = chance.choice(_values(dim, int(most * _CLOSE), int(most)) or [_highest(dim)])
            if min(found[dim.name] for dim in pair) >= _WIDE and task.allows(found) and fits(found):
                return found
            side *= _CLOSE
    return None


def twins(task: Task, dims: Mapping[str, int], dtype: str) -> list[dict[str, int]]:
    """Dims at which every tensor has the shape that it has at these, and another plain argument (a stride, a number of
    groups) another value: a plan kept by shapes alone is wrong there.
    """

    def form(at: Mapping[str, int]) -> tuple[list[tuple[int, ...]], list[int]]:
        specs = task.arguments(at, dtype)
        whole = [s.value for s in specs if isinstance(s, Scalar) and isinstance(s.value, int)]
        return [tuple(s.shape) for s in specs if isinstance(s, TensorSpec)], whole

    shapes, plain = form(dims)
    found = []
    for dim in task.dims if plain else ():
        if dim.scaled or dim.high - dim.low >= _MOST_VALUES:
            continue
        for value in _values(dim):
            product = {  # of two dims that a tensor has as one: channels in groups
                other.name: dims[other.name] * dims[dim.name] // value
                for other in _scaled(task)
                if dims[other.name] * dims[dim.name] % value == 0
            }
            for change in ({}, *({name: size} for name, size in product.items())):
                trial = {**dims, dim.name: value, **change}
                inside = all(trial[d.name] in _values(d) for d in task.dims)
                if inside and task.allows(trial) and form(trial)[0] == shapes and form(trial)[1] != plain:
                    found.append(trial)
    return found


def few(task: Task) -> list[dict[str, int]]:
    """Every choice of the dims that have few values (kernel width and stride); empty where none has. Paddings, which
    may be 0, are not among them: what they may be hangs on the kernel's width.
    """
    chosen = [dim for dim in task.dims if not dim.scaled and dim.low and 1 < len(_values(dim)) <= _FEW_VALUES]
    names = [dim.name for dim in chosen]
    return [dict(zip(names, row, strict=True)) for row in itertools.product(*map(_values, chosen)) if names]


# -- Rows of the hypercube --------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _rows(columns: int, count: int, *key: str) -> tuple[tuple[float, ...], ...]:
    """``count`` rows of a Latin hypercube in [0, 1) ** columns, seeded by the key.

    The rows of ``scipy.stats.qmc.LatinHypercube`` (McKay, Beckman and Conover, Technometrics 21, 1979), whose import
    takes a second.
    """
    import numpy as np

    (generator,) = np.random.default_rng(int(digest("shapes", *key)[:16], 16)).spawn(1)
    within = generator.uniform(size=(count, columns))
    strata = np.tile(np.arange(1, count + 1), (columns, 1))
    for column in strata:
        generator.shuffle(column)
    sample = (strata.T - within) / count
    return tuple(tuple(float(v) for v in row) for row in sample)


def draw(task: Task, category: str, row: int, count: int, suite_seed: int, fits: Fits) -> dict[str, int] | None:
    """Dims of one cell, in the task's order: row ``row`` of ``count`` of the hypercube of a category that the task has
    (:func:`exists`), shrunk to fit; None when no row, shrunk as far as it goes, meets both constraint and budget.
    """

    def members() -> Iterator[_Member]:
        for attempt in range(_ATTEMPTS):
            rows = _rows(len(task.dims) + 2, count, str(suite_seed), task.name, category, str(attempt))
            yield _Member(task=task, category=category, units=rows[row], row=row + attempt)

    # First rows that meet the constraint as they are, then whatever meets it on the way down.
    for as_sampled in (True, False):
        for member in members():
            if not as_sampled or task.allows(member.dims(member.corners[0])):
                for dims in member.path(fits):
                    if task.allows(dims):
                        return dims
    return None


@dataclass(frozen=True, kw_only=True)
class _Member:
    """One row read as dims of a category."""

    task: Task
    category: str
    units: tuple[float, ...]
    """One coordinate in [0, 1) for each dim, and two more for the choices that a category makes."""
    row: int

    @functools.cached_property
    def scaled(self) -> tuple[int, ...]:
        """Positions of the scaled dims."""
        return tuple(i for i, dim in enumerate(self.task.dims) if dim.scaled)

    def path(self, fits: Fits) -> Iterator[dict[str, int]]:
        """Members of the category that fit, from the sample down to the smallest, each no larger than the one before.

        In a category of size the last leg leaves the range, where ``belongs`` no longer holds.
        """
        legs = list(itertools.pairwise(self.corners))
        last: dict[str, int] = {}
        for leg, (start, end) in enumerate(legs):
            if not fits(self.dims(end)):
                continue  # costs grow with the dims, so nothing before the end fits either
            falls_out = self.category in SHAPE_CATEGORIES[:4] and leg == len(legs) - 1
            for step in range(_STEPS + 1):
                part = step / _STEPS
                dims = self.dims([a ** (1 - part) * b**part for a, b in zip(start, end, strict=True)])
                if dims != last and fits(dims) and (falls_out or belongs(self.task, self.category, dims)):
                    last = dims
                    yield dims

    @functools.cached_property
    def corners(self) -> list[list[float]]:
        """The path's corners, from the sample to the smallest member."""
        dims = self.task.dims
        sample = [dim.low + self.units[i] * (dim.high + dim.multiple_of - dim.low) for i, dim in enumerate(dims)]
        low = [float(dim.least) for dim in dims]
        if self.category in SHAPE_CATEGORIES[:4]:
            return self._corners_of_size(sample, low)
        for i in self.scaled:
            sample[i] = self._log_uniform(i, *_range(dims[i], self.category))
        smallest, soft = list(low), [float(_SOFT_LOW)] * len(dims)
        if self.category == "square":
            bottom, top, _ = _square_step([dims[i] for i in self.scaled])
            side = self._log_uniform(self.scaled[0], *(min(max(v, bottom), top) for v in RANGES["square"]))
            for i in self.scaled:
                sample[i], smallest[i] = side, float(bottom)
        elif self.category == "rectangular":
            short, long = self._sides()
            ratio = RATIO * (_MOST_RATIO / RATIO) ** self.units[-2]
            sample[long] = min(_highest(dims[long]) + 0.999, max(sample[short] * ratio, low[long]))
            sample[short] = max(low[short], min(sample[short], sample[long] / RATIO))
            smallest[long] = min(sample[long], max(low[long], RATIO * low[short]))
            soft[long] *= RATIO
        middle = [max(smallest[i], min(v, soft[i])) if dims[i].scaled else v for i, v in enumerate(sample)]
        narrow = [v if dims[i].scaled else low[i] for i, v in enumerate(middle)]
        return [sample, middle, narrow, smallest]

    def _corners_of_size(self, sample: list[float], low: list[float]) -> list[list[float]]:
        dims = self.task.dims
        least, most = RANGES[self.category]
        ranges = [_range(dim, self.category) for dim in dims]
        for i in self.scaled:
            sample[i] = self._log_uniform(i, *ranges[i])
        anchors = [i for i in self.scaled if least <= ranges[i][0] and ranges[i][1] <= most]
        anchor = anchors[int(self.units[-1] * len(anchors))]
        others = [i for i in self.scaled if i != anchor]
        # A quarter of the way (in logarithms) above the range's lower end, so that small budgets do not make every
        # large case exactly 2048.
        inside = [ranges[i][0] ** 0.75 * v**0.25 if dims[i].scaled else v for i, v in enumerate(sample)]
        soft = [max(low[i], min(v, _SOFT_LOW)) if i in others else v for i, v in enumerate(inside)]
        narrow = [v if dims[i].scaled else low[i] for i, v in enumerate(soft)]
        thin = [low[i] if i in others else v for i, v in enumerate(narrow)]
        edge = [float(ranges[i][0]) if i == anchor else v for i, v in enumerate(thin)]
        return [sample, inside, soft, narrow, thin, edge, low]

    def _log_uniform(self, position: int, low: float, high: float) -> float:
        low, high = max(low, 1), max(high, low, 1)
        return float(min(high + 0.999, low * ((high + 1) / low) ** self.units[position]))

    def _sides(self) -> tuple[int, int]:
        """Positions of the short and the long side."""
        first, second = self.scaled[:2]
        dims = self.task.dims
        order = [(first, second), (second, first)] if self.units[-1] < 0.5 else [(second, first), (first, second)]
        for short, long in order:
            if _highest(dims[long]) >= RATIO * dims[short].least:
                return short, long
        return order[0]

    def dims(self, values: Sequence[float]) -> dict[str, int]:
        """Real values as allowed integers: rounded down, then to what the category demands."""
        result: dict[str, int] = {}
        for i, (dim, value) in enumerate(zip(self.task.dims, values, strict=True)):
            whole = int(value + 1e-9) // dim.multiple_of * dim.multiple_of
            whole = min(max(whole, dim.least), _highest(dim))
            if dim.scaled and self.category == "power_of_two":
                whole = max((v for v in _powers(dim) if v <= whole), default=min(_powers(dim), default=whole))
            elif dim.scaled and self.category == "non_power_of_two":
                whole = _crooked(dim, whole, ("prime", "odd", "any")[(i + self.row) % 3])
            elif dim.scaled and self.category == "square":
                bottom, _, step = _square_step([self.task.dims[j] for j in self.scaled])
                whole = max(bottom, whole // step * step)
            result[dim.name] = whole
        if self.category == "rectangular":
            short, long = (self.task.dims[i] for i in self._sides())
            most = result[long.name] // RATIO // short.multiple_of * short.multiple_of
            result[short.name] = max(short.least, min(result[short.name], most))
        return result


@functools.cache
def _powers(dim: Dim) -> list[int]:
    """Powers of two that the dim may take, rising."""
    powers = (1 << i for i in range(dim.high.bit_length()))
    return [v for v in powers if dim.least <= v <= dim.high and v % dim.multiple_of == 0]


@functools.lru_cache(maxsize=65536)
def _crooked(dim: Dim, value: int, kind: str) -> int:
    """A value near the given one that is no power of two: a prime, an odd number or any, as far as multiples allow."""
    # 40 steps hold a value of every kind: below 8192 the widest gap between primes is 34.
    steps = (sign * step for step in range(41) for sign in (-dim.multiple_of, dim.multiple_of))
    usable = (v for d in steps if dim.least <= (v := value + d) <= dim.high and not is_power_of_two(v))
    first = None
    for v in usable:
        first = first or v
        if kind == "any" or (v % 2 == 1 if kind == "odd" else _is_prime(v)):
            return v
    return first or value


def _is_prime(value: int) -> bool:
    return value > 1 and all(value % divisor for divisor in range(2, math.isqrt(value) + 1))
