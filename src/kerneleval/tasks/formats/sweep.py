"""Other sizes at which a problem file still makes sense, found by trying them on tensors without memory.

What is varied are *units*: top-level integers (or several of one value that only change together) that set the shape of
an input or of a weight. Kernel sizes, strides, padding, groups, numbers of layers and the like stay: they say what the
operator is, not how large. So do integers that ``Model`` reads directly, because a candidate would not learn of them.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kerneleval.records import Argument, Scalar, TensorSpec, UsageError, digest
from kerneleval.tasks.formats.agreement import Selections, agrees, limit_changes
from kerneleval.tasks.formats.constructor import other_numbers
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.outcomes import Way
from kerneleval.tasks.formats.problem_file import ITEMS, ProblemFile
from kerneleval.tasks.formats.soundness import depends
from kerneleval.tasks.formats.survey import Survey
from kerneleval.tasks.formats.surveys import MINIATURE_BYTES, MINIATURE_FLOPS, Surveys
from kerneleval.tasks.formats.traits import is_inexact
from kerneleval.tasks.sampling import is_power_of_two

_LITTLE, _STILL = 0.05, 1e-6
"""Part of itself by which a number moves that keeps its sign, and what does not move an output then."""

GROWTH = 1.5
"""No variant takes more than this many times the bytes or operations of the file's own sizes, but for the large one of
a little file."""

_LITTLE_BYTES, _LARGE_BYTES, _LARGE_FLOPS, _LARGE_STEPS = 1 << 20, 4 << 20, 200_000_000, 5_000
"""A file that takes no more bytes is little, and its large variant no more bytes, operations and operators than the
others say: with sizes of 40 x 100 no block of 256 columns, nor of 64 rows, ever has a second one."""

_NOT_A_SIZE = re.compile(
    r"kernel|stride|pad|dilat|group|pool|layer(?!s?_?(size|dim|width|feature|unit|channel))|patch|window|stage|expan|"
    r"growth|axis|factor",
    re.I,
)
_COUNTS = re.compile(
    r"(?<![a-z])(num|n|total|max)_?(patch(es)?|windows?)(?!_?size)|(token|sample|channel|row|element|patch|key)(e?s)?_per_",
    re.I,
)
"""Names that say of how many something else is: of patches, of tokens in a group."""
_HEADS = re.compile(r"head", re.I)
_SIZE_NAME = re.compile(r"(dim|size|len(gth)?|width|hidden|features?|channels?|d_model)$", re.I)
"""Names of constructor arguments that are sizes."""
_LIMIT_NAME = re.compile(r"max|block|chunk", re.I)
"""Names of constructor arguments that are limits, or sizes of blocks in which a kernel computes."""
_ALIGNMENTS = (2, 4, 8, 16, 32, 64, 128)


class Unit(NamedTuple):
    """Integers that are varied together."""

    names: tuple[str, ...]
    value: int
    ends: tuple[str, ...] = ()
    """Upper bounds of random lengths, which are one more than the size: ``randint(1, 65)`` beside 64 steps."""

    total: tuple[str, int] | None = None
    """A size that is so many times as large: the rows of so many equal segments."""

    def at(self, value: int) -> dict[str, int]:
        """The unit with another value."""
        rows = {self.total[0]: self.total[1] * value} if self.total else {}
        return dict.fromkeys(self.names, value) | dict.fromkeys(self.ends, value + 1) | rows


def units(surveys: Surveys) -> list[Unit]:
    """What can be varied, in the order of the file; raises UsageError where the file raises at its own sizes.

    A plain argument that ``Model`` does not use, as the largest of some lengths, stays as it is: candidates may. Where
    it is equal to one size alone, it follows that, if lengths do as well.
    """
    if surveys.units is None:
        found = _without_spare(surveys, _without_ignored(surveys, _units(surveys)))
        surveys.units = _with_constructor_sizes(surveys, found)
    return list(surveys.units)


def _without_ignored(surveys: Surveys, found: Sequence[Unit]) -> list[Unit]:
    """Units, of which none is plain arguments alone that ``Model`` does not use."""
    ignored = [unit for unit in found if _is_ignored(surveys, unit, found)]
    rest = [unit for unit in found if unit not in ignored]
    for unit in ignored:
        alike = [one for one in rest if one.value == unit.value]
        both = alike[0]._replace(names=(*alike[0].names, *unit.names)) if len(alike) == 1 else unit
        if len(alike) == 1 and not any(surveys.is_exceeded(both.at(v)) for v in (1, 2, unit.value // 2)):
            rest[rest.index(alike[0])] = both
    return rest


def _is_ignored(surveys: Surveys, unit: Unit, every: Sequence[Unit]) -> bool:
    """Whether a unit is plain arguments alone, and the outputs of a miniature are the same for another value."""
    own, found = _shapes(surveys.at({})), []
    for value in (v for v in (unit.value // 2, unit.value - 1, unit.value + 1, 2 * unit.value) if v >= 1):
        made = surveys.probe(unit.at(value))
        if made is not None and _shapes(made) != own:
            return False
        found += [value] if made is not None else []
    if not found:
        return False
    dims = shrink(surveys, MINIATURE_BYTES, MINIATURE_FLOPS, [one for one in every if one != unit])
    return all(_gives_the_same(surveys, dims, dims | unit.at(v)) for v in found)


def _without_spare(surveys: Surveys, found: Sequence[Unit]) -> list[Unit]:
    """Units, of which none changes alone how much is given that is not read, as the masks of all items but the first
    one: a candidate may read any. It follows the unit that changes as much of another argument, or stays.
    """
    spare = {unit: beside for unit in found if (beside := _spare_beside(surveys, unit, found))}
    kept = [unit for unit in found if unit not in spare]
    for unit, beside in spare.items():
        twins = [i for i, one in enumerate(kept) if one.value == unit.value and _changes(surveys, one) & beside]
        for first in twins[:1]:
            kept[first] = kept[first]._replace(names=(*kept[first].names, *unit.names))
    return kept


def _spare_beside(surveys: Surveys, unit: Unit, every: Sequence[Unit]) -> set[tuple[int, int]]:
    """The (argument, dim) pairs of the same size beside those of a unit of which the first element alone is read;
    empty: more of them is read, or there are no such pairs.
    """
    changed = _changes(surveys, unit)
    specs = enumerate(surveys.at({}).arguments)
    sizes = {(i, d): n for i, spec in specs if isinstance(spec, TensorSpec) for d, n in enumerate(spec.shape)}
    beside = {(i, d) for (i, d), n in sizes.items() if n == unit.value and d in {dim for _, dim in changed}} - changed
    if not beside or not changed <= sizes.keys():
        return set()
    try:
        dims = shrink(surveys, MINIATURE_BYTES, MINIATURE_FLOPS, [one for one in every if one != unit])
        problem = ModuleProblem(surveys.file, dims, "cpu")
        args, weights = problem.inputs(1), problem.weights(1)
        first = list(args)
        for index, dim in changed:
            first[index] = first[index].narrow(dim, 0, 1)
        pairs = list(zip(problem.oracle(args, weights), problem.oracle(first, weights), strict=True))
        return beside if all(torch.equal(a, b) for a, b in pairs) else set()
    except UsageError:
        return set()


def _changes(surveys: Surveys, unit: Unit) -> set[tuple[int, int]]:
    """The (argument, dim) pairs that a unit changes: dim -1 of plain ones. Empty: weights or none."""
    base, values = surveys.at({}), (unit.value + 1, 2 * unit.value, unit.value - 1, unit.value // 2)
    made = next((one for v in values if v > 1 and (one := surveys.probe(unit.at(v))) is not None), base)
    return {
        (i, dim)
        for i, (own, other) in enumerate(zip(base.arguments, made.arguments, strict=False))
        for dim in _apart(own, other)
        if made.weights == base.weights
    }


def _apart(own: Argument, other: Argument) -> list[int]:
    """Dims of which two arguments have not as much; -1: they are plain and differ."""
    if not isinstance(own, TensorSpec) or not isinstance(other, TensorSpec):
        return [] if own == other else [-1]
    return [dim for dim, (a, b) in enumerate(zip(own.shape, other.shape, strict=False)) if a != b]


def _gives_the_same(surveys: Surveys, dims: Mapping[str, int], others: Mapping[str, int]) -> bool:
    """Whether ``Model`` gives the same outputs on the tensors of some dims with the plain arguments of others."""
    try:
        problem, other = (ModuleProblem(surveys.file, d, "cpu") for d in (dims, others))
        args, weights = problem.inputs(1), problem.weights(1)
        changed = [a if isinstance(a, torch.Tensor) else b for a, b in zip(args, other.inputs(1), strict=True)]
        pairs = zip(problem.oracle(args, weights), problem.oracle(changed, weights), strict=True)
        return all(torch.equal(a, b) for a, b in pairs)
    except UsageError:
        return False


def _units(surveys: Surveys) -> list[Unit]:
    """What changes the arguments or weights, in the order of the file."""
    file, base = surveys.file, surveys.at({})
    hints = {name: name for name in file.sizes if name.partition("[")[0] not in file.read_by_model}
    hints |= {name: literal.hint for name, literal in file.literals.items() if not literal.bound}
    free = {
        name: file.value(name)
        for name, hint in hints.items()
        if file.value(name) >= 2 and (_COUNTS.search(hint) or not _NOT_A_SIZE.search(hint))
    }
    places = ((name, one) for name, one in file.literals.items() if one.bound and not one.narrow)
    bounds = [name for name, literal in places if literal.value > 2]  # 2: flags
    found: list[Unit] = []
    taken: set[str] = set()
    for name, value in free.items():
        if name in taken:
            continue
        twins = [n for n, v in free.items() if v == value and n != name and n not in taken]
        group = [n for n in twins if n in file.literals and name in file.literals and _are_one(file, name, n)]
        rest = [n for n in twins if n not in group]
        together = [(name, *group, *more) for more in ((), *((twin,) for twin in rest))] if group else []
        alone = [Unit(names, value) for names in (*together, (name,), *((name, one) for one in twins), (name, *twins))]
        for unit in (*alone, *(Unit((name,), value, total=rows) for rows in _totals(surveys, value, free))):
            least = 1 if value > 3 or _is_size(surveys, {}, unit) else 2
            runs_at_one = least > 1 and surveys.probe(unit.at(1)) is not None  # a pair's two rows are no size
            more = (value + 1, 2 * value) if runs_at_one or surveys.has_segments else ()
            tries = (surveys.drawn(unit.at(v)) for v in (value // 2, value - 1, value - 8, *more) if v >= least)
            if (other := next((made for made in tries if made is not None), None)) is not None:
                if unit.names == (name,) and _needs_another(surveys, unit, twins):
                    continue
                followers = [one for one in bounds if file.value(one) == value]
                ends = [n for n in bounds if file.value(n) == value + 1]
                ends = ends if all(file.literals[n].lengths for n in ends) else _needed(surveys, unit, ends)
                whole = unit._replace(names=(*unit.names, *followers), ends=tuple(ends))
                wider = other.weights != base.weights and not any(_HEADS.search(hints[one]) for one in unit.names)
                if wider or other.arguments != base.arguments or _numbers_rows(surveys, whole):
                    found.append(whole)
                    taken.update(unit.names)
                break
    return found


def _needs_another(surveys: Surveys, unit: Unit, twins: Iterable[str]) -> bool:
    """Whether a size may be smaller alone, and larger only together with an equal one: the steps that a loop takes from
    one tensor, and reads from two. Code without a loop takes as many from both.
    """
    if surveys.probe(unit.at(unit.value + 1)) is not None:
        return False
    pairs = (unit._replace(names=(*unit.names, one)) for one in twins)
    return any(surveys.probe(pair.at(pair.value + 1)) is not None for pair in pairs)


def _needed(surveys: Surveys, unit: Unit, ends: Sequence[str]) -> list[str]:
    """Bounds of random integers that must follow a size: those of lengths, and all where a small file raises at half of
    the size unless they do.
    """

    def runs(names: Sequence[str]) -> bool:
        try:
            problem = ModuleProblem(surveys.file, unit._replace(ends=tuple(names)).at(unit.value // 2), "cpu")
            problem.reference(problem.inputs(1), problem.weights(1))
        except UsageError:
            return False
        return True

    lengths = [name for name in ends if surveys.file.literals[name].lengths]
    asked = unit.value > 3 and _is_miniature(surveys.at({}))
    return list(ends) if asked and not runs(lengths) and runs(ends) else lengths


def _numbers_rows(surveys: Surveys, unit: Unit) -> bool:
    """Whether a unit that shapes no argument is a number of segments or classes in a small file: as many as rows of an
    output that follows from drawn integers, and more than these, which are larger where there are twice as many.
    """
    base, made = surveys.at({}), surveys.probe(unit.at(2 * unit.value))
    if made is None or not _is_miniature(base) or not _is_miniature(made) or len(base.outputs) != len(made.outputs):
        return False
    pairs = zip(base.outputs, made.outputs, strict=True)
    sizes = [(a, b) for one, other in pairs for a, b in zip(one.shape, other.shape, strict=False)]
    if (unit.value, 2 * unit.value) not in sizes:
        return False
    try:
        problem, twice = (ModuleProblem(surveys.file, dims, "cpu") for dims in ({}, unit.at(2 * unit.value)))
        own, other, weights = problem.inputs(1), twice.inputs(1), problem.weights(0)
        whole = [i for i, one in enumerate(own) if _is_drawn_below(one, unit.value)]
        if not any(int(other[i].max()) >= unit.value for i in whole if isinstance(other[i], torch.Tensor)):
            return False
        zeroed = [torch.zeros_like(one) if i in whole else one for i, one in enumerate(own)]
        outputs = zip(problem.reference(own, weights), problem.reference(zeroed, weights), strict=True)
        return any(unit.value in a.shape and depends(a, b, _STILL) for a, b in outputs)
    except UsageError:
        return False


def _is_drawn_below(value: Any, bound: int) -> bool:
    """Whether it is a tensor of integers that are all below a bound."""
    if not isinstance(value, torch.Tensor) or is_inexact(value) or value.dtype == torch.bool or not value.numel():
        return False
    return int(value.max()) < bound


def _with_constructor_sizes(surveys: Surveys, found: Sequence[Unit]) -> list[Unit]:
    """The units, each with the constructor argument that is the same size by its name and value, as the size of a page.
    ``Model`` may not read it, or read it for a factor alone. Candidates may read the argument or the shape.
    """
    units_, file = list(found), surveys.file
    known = {name for unit in found for name in unit.names}
    for name, literal in file.literals.items():
        hint = literal.hint
        told = name.startswith("get_init_inputs[") and _SIZE_NAME.search(hint) and not _LIMIT_NAME.search(hint)
        alike = [i for i, unit in enumerate(units_) if unit.value == literal.value]
        if not told or _NOT_A_SIZE.search(hint) or name in known or len(alike) != 1:
            continue
        both = units_[alike[0]]._replace(names=(*units_[alike[0]].names, name))
        tries = (both.value // 2, both.value - 1, both.value - 8, both.value + 1, 2 * both.value)
        runs = [v for v in tries if v >= 1 and surveys.drawn(units_[alike[0]].at(v)) is not None]
        if runs and all(surveys.drawn(both.at(v)) is not None for v in runs):
            units_[alike[0]] = both
    return units_


def _totals(surveys: Surveys, value: int, free: Mapping[str, int]) -> list[tuple[str, int]]:
    """Sizes that are some times as large as another, and how many times, beside offsets: N segments of S rows."""
    times = [(name, rows // value) for name, rows in free.items() if rows > value and rows % value == 0]
    return times if surveys.has_segments else []


def _are_one(file: ProblemFile, name: str, other: str) -> bool:
    """Whether two literals are one size of three inputs or more (``literals.py``)."""
    group = file.literals[name].group
    return group is not None and group == file.literals[other].group


def batch_of_one(surveys: Surveys) -> list[Unit]:
    """The batch of one that the file gives, where it takes several items too, and does the same with each."""
    if surveys.batch is None:
        surveys.batch = tuple(itertools.islice((name for name in ITEMS if _takes_items(surveys, name)), 1))
    return [Unit((name,), 1) for name in surveys.batch]


def _takes_items(surveys: Surveys, name: str) -> bool:
    """Whether so many items in place of one give as many in each output, and each what it gives alone."""
    base, place = surveys.at({}), ITEMS[name]
    specs = [a for a in base.arguments if isinstance(a, TensorSpec)]
    if place:  # steps first; numbers of shape (n, 1) are a vector
        specs = [a for a in specs[:1] if len(a.shape) > 2 or a.role == "index"]
    if not any(a.shape[place : place + 1] == (1,) for a in specs):
        return False
    made = surveys.probe({name: _ITEMS})
    if made is None or not all(
        _is_of_items(own, out, place) for own, out in zip(base.outputs, made.outputs, strict=True)
    ):
        return False
    dims = shrink(surveys, MINIATURE_BYTES, MINIATURE_FLOPS)
    own, small = surveys.at(dims), surveys.probe(dims | {name: _ITEMS})
    if small is None or small.bytes > 2 * _ITEMS * MINIATURE_BYTES or small.flops > 2 * _ITEMS * MINIATURE_FLOPS:
        return False
    pairs = enumerate(zip(own.arguments, small.arguments, strict=True))
    grown = {i: dim for i, (a, b) in pairs for dim in _apart(a, b)}
    batches = [dim for a, b in zip(own.outputs, small.outputs, strict=True) for dim in _apart(a, b)]
    try:
        problem = ModuleProblem(surveys.file, dims | {name: _ITEMS}, "cpu")
        named = " ".join(base.operators)
        attends = "attention" in named or ("softmax" in named and bool({"bmm", "baddbmm"} & base.operators))
        apart = bool(grown) and _keeps_items_apart(problem, grown, batches)
        return apart and (not place or _are_steps(problem, attends=attends))
    except UsageError:
        return False


def _is_of_items(own: TensorSpec, made: TensorSpec, place: int) -> bool:
    """Whether an output is of several items where it was of one, and the same else."""
    shapes = [
        (*own.shape[:dim], _ITEMS, *own.shape[dim + 1 :]) for dim in (0, place) if own.shape[dim : dim + 1] == (1,)
    ]
    return made.shape in shapes


def _keeps_items_apart(problem: ModuleProblem, grown: Mapping[int, int], batches: Sequence[int]) -> bool:
    """Whether each item gives alone what it gives beside others. ``grown``: the dim of the items by the position of an
    argument; ``batches``: that of each output.
    """
    args, weights = problem.inputs(1), problem.weights(1)
    for i, dim in grown.items():  # (layers, batch, n), of which a model may read the first layer alone
        if not dim and args[i].dim() == 3 and args[i].shape[1] == 1 and args[i].is_floating_point():
            args[i] = args[i] * torch.linspace(1, 1.5, _ITEMS).view(-1, 1, 1)
    together = problem.oracle(args, weights)
    for item in range(_ITEMS):
        one = [a.narrow(grown[i], item, 1) if i in grown else a for i, a in enumerate(args)]
        alone = zip(problem.oracle(one, weights), together, batches, strict=True)
        if any(depends(a, b.narrow(dim, item, 1), _STILL) for a, b, dim in alone):
            return False
    return True


def _are_steps(problem: ModuleProblem, *, attends: bool) -> bool:
    """Whether the rows of the inputs are the steps of one sequence: other outputs than the first or the last hang on
    the first or the last row, and their order counts, but for attention (``attends``). Else rows may be items of which
    a mean is taken, and the second dim may be steps or channels, of which a kernel may take one alone.
    """
    args, others, weights = problem.inputs(1), problem.inputs(2), problem.weights(1)
    own = problem.oracle(args, weights)
    rows = next(len(value) for value in args if isinstance(value, torch.Tensor))
    ours = {i for i, value in enumerate(args) if isinstance(value, torch.Tensor) and value.shape[:1] == (rows,)}

    def changed(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> tuple[torch.Tensor, ...]:
        given = [change(a, b) if i in ours else a for i, (a, b) in enumerate(zip(args, others, strict=True))]
        return tuple(problem.oracle(given, weights))

    def tells(made: Sequence[torch.Tensor], part: slice, turn: int = 0) -> bool:
        pairs = zip(own, made, strict=True)
        return any(len(a) == rows > 1 and depends(a.roll(turn, 0)[part], b[part]) for a, b in pairs)

    first, last = slice(1, None), slice(None, -1)
    mixed = tells(changed(lambda a, b: torch.cat([b[:1], a[1:]])), first)
    mixed = mixed or tells(changed(lambda a, b: torch.cat([a[:-1], b[-1:]])), last)
    return mixed and (attends or tells(changed(lambda a, _: a.roll(1, 0)), slice(None), 1))


def own_dims(surveys: Surveys) -> dict[str, int]:
    """The file's own sizes: its top-level integers, and what is varied of the numbers inside its functions."""
    varied, file = [*units(surveys), *batch_of_one(surveys)], surveys.file
    numbers = {name: file.value(name) for name in _other_numbers(surveys)}
    return file.sizes | {name: own for unit in varied for name, own in unit.at(unit.value).items()} | numbers


def _other_numbers(surveys: Surveys) -> dict[str, int]:
    """Numbers of the constructor that no size changes, with others in their place."""
    if surveys.numbers is None:
        sizes = (unit.at(v) for unit in units(surveys) for v in (unit.value // 2, unit.value - 1, unit.value + 1) if v)
        runs = [dims for dims in sizes if surveys.probe(dims) is not None]
        surveys.numbers = other_numbers(surveys, shrink(surveys, MINIATURE_BYTES, MINIATURE_FLOPS), runs)
    return surveys.numbers


# -- Variants ---------------------------------------------------------------------------------------------------------

_Propose = Callable[[int, random.Random], Iterator[int]]


def _near(value: int, _rng: random.Random) -> Iterator[int]:
    """Just below: odd, else a multiple of as little as the problem needs, no power of two."""
    yield value - 1 if value % 2 == 0 else value - 2
    yield from (v for m in _ALIGNMENTS if not is_power_of_two(v := (value - 1) // m * m))


def _odd(value: int, rng: random.Random) -> Iterator[int]:
    """Between half and nine tenths, odd or nearly."""
    wanted = int(value * rng.uniform(0.5, 0.9))
    yield wanted | 1
    yield from (v for m in _ALIGNMENTS if not is_power_of_two(v := wanted // m * m))


def _power(value: int, _rng: random.Random) -> Iterator[int]:
    """The next smaller powers of two."""
    below = 1 << ((value - 1).bit_length() - 1)
    yield from (below, below // 2, below // 4)


def _small(value: int, rng: random.Random) -> Iterator[int]:
    """32 to 128, or half of what is small already."""
    wanted = rng.randint(32, 128) if value > 128 else value // 2
    yield wanted
    yield from (max(m, wanted // m * m) for m in _ALIGNMENTS)


def _tiny(value: int, rng: random.Random) -> Iterator[int]:
    """1 to 16, else the least that the problem takes."""
    wanted = rng.randint(1, 16)
    yield wanted
    yield from (max(m, wanted // m * m) for m in _ALIGNMENTS[:4])
    yield from (24, 32, 64)


def _one(value: int, rng: random.Random) -> Iterator[int]:
    """1, as of a single sequence, token or head; else as :func:`_tiny`."""
    yield 1
    yield from _tiny(value, rng)


def _double(value: int, _rng: random.Random) -> Iterator[int]:
    """Twice as large, or as much larger as it goes."""
    yield from (2 * value, value + value // 2, value + value // 4)


def _quarter(value: int, _rng: random.Random) -> Iterator[int]:
    """A quarter, but for few."""
    if value >= 8:
        yield from (value // 4, value // 2)


def _longer(value: int, _rng: random.Random) -> Iterator[int]:
    """Half as large again, or as much larger as it goes: odd, else a multiple of as little as the problem needs."""
    yield from ((value + value // part) | 1 for part in (2, 4, 8))
    yield from (v for m in _ALIGNMENTS if (v := (value + value // 2) // m * m) > value)


def _third(value: int, _rng: random.Random) -> Iterator[int]:
    """A third, but for few: odd, else a multiple of as little as the problem needs."""
    if value >= 8:
        yield value // 3 | 1
        yield from (max(m, value // 3 // m * m) for m in _ALIGNMENTS)


def _several(value: int, rng: random.Random) -> Iterator[int]:
    """Three to five times as large, or as much larger as it goes: odd, else a multiple of as little as the problem
    needs.
    """
    wanted = int(value * rng.uniform(3.0, 5.0))
    yield from (wanted | 1, *(wanted // m * m for m in _ALIGNMENTS), 2 * value)


_KINDS: tuple[tuple[str, _Propose], ...] = (
    ("non_power_of_two", _near),
    ("small", _small),
    ("power_of_two", _power),
)

_STRETCHES: tuple[tuple[_Propose, _Propose], ...] = ((_double, _quarter), (_longer, _third))
"""What the long sizes of a rectangle become, and the others."""


def _items(_value: int, _rng: random.Random) -> Iterator[int]:
    """Of a batch of one."""
    yield from (_ITEMS, 2)


_LONGER = (*(long for long, _ in _STRETCHES), _several, _items)

_ITEMS = 3
"""Items in place of a batch of one."""

_TURNS = 4
"""How often other sizes are chosen to be the long ones."""

_FEW = 5
"""Where fewer variants are found there is another one, of odd sizes."""


def variants(surveys: Surveys, suite_seed: int = 0) -> tuple[tuple[str, dict[str, int]], ...]:
    """Ten or some more (shape category, dims) pairs other than the file's own, the same for equal file and seed.

    For each kind of change every unit is changed in turn, each by the first proposal at which the problem still runs
    together with the changes so far. The category says what was aimed at; a unit that allows none stays. Small variants
    at which the problem degenerates are mended by leaving one unit as it is, or else dropped. In the two tiny ones half
    of the units are 1 each, if they may: paths for single rows and tokens are met there. In the two rectangular ones
    some units are larger than in the file and the others smaller; what the first one leaves as it is, or makes smaller,
    is larger in the second: what a candidate made for the file's own sizes, which it meets first, is too small there.
    No variant is more than :data:`GROWTH` times as large or as costly as the original, but for one more of a little
    file, in which every unit is several times as large. Raises UsageError: the file raises at its own sizes.
    """
    file, varied = surveys.file, units(surveys)
    rng = random.Random(digest(file.text, str(suite_seed)))
    chosen = _Variants(surveys, varied, rng)
    for category, propose in _KINDS:
        chosen.add(category, [(unit, propose) for unit in varied])
    ones = random.Random(digest(file.text, str(suite_seed), "single")).sample(varied, (len(varied) + 1) // 2)
    if not chosen.add("tiny", [(unit, _one if unit in ones else _tiny) for unit in varied]):
        chosen.add("tiny", [(unit, _tiny) for unit in varied])
    second = len(ones) < len(varied) and chosen.add("tiny", [(u, _tiny if u in ones else _one) for u in varied])
    for larger, smaller in _STRETCHES:
        never = [unit for unit in varied if all(dims[unit.names[0]] <= unit.value for _, dims in chosen.found)]
        for long in _choices(never, (len(varied) + 1) // 2, rng):
            changes = [*((u, smaller) for u in varied if u not in long), *((u, larger) for u in long)]
            if chosen.add("rectangular", changes):
                break
    if len(chosen.found) < _FEW + second:
        chosen.add("non_power_of_two", [(unit, _odd) for unit in varied])
    if chosen.is_little:
        chosen.add("large", [(unit, _several) for unit in varied])
    for one in varied:  # the others took all the room, of which the rows of an attention need the most
        if all(dims[one.names[0]] <= one.value for _, dims in chosen.found):
            chosen.add("rectangular", [*((unit, _small) for unit in varied if unit != one), (one, _longer)], one)
    for single in batch_of_one(surveys):
        chosen.add_items(single)
    chosen.add_empty()
    chosen.add_numbers(_other_numbers(surveys))
    return tuple(chosen.found)


class _Variants:
    """The (shape category, dims) pairs of one file that have been found, and the search for more."""

    def __init__(self, surveys: Surveys, varied: Sequence[Unit], rng: random.Random) -> None:
        self.found: list[tuple[str, dict[str, int]]] = []
        self._surveys, self._varied, self._rng = surveys, varied, rng
        self._given, self._forms = own_dims(surveys), [surveys.at({}).form]
        self.is_little = surveys.at({}).bytes <= _LITTLE_BYTES

    def add_items(self, unit: Unit) -> None:
        """Add a variant of several items: a large one of a little file, else one of a third of its sizes if need be."""
        thirds: list[tuple[Unit, _Propose]] = [(one, _third) for one in self._varied]
        if not self.is_little or not self.add("large", [(unit, _items)], unit):
            self.add("rectangular", [*thirds, (unit, _items)], unit)

    def add_empty(self) -> None:
        """Add the file's own sizes without rows of what others are put behind, as of a cache that holds nothing yet."""
        if "enable_gqa" in self._surveys.file.text:  # PyTorch divides by the number of heads, and the process ends
            return
        for dims in (unit.at(0) for unit in self._varied):
            made = self._surveys.probe(dims)
            if made is not None and _is_put_behind(self._surveys.at({}), made) and self._keep("tiny", dims):
                break

    def add_numbers(self, numbers: Mapping[str, int]) -> None:
        """Add the file's own sizes with other numbers of the constructor, all that go together."""
        dims = dict(numbers)
        while dims:
            made = self._surveys.probe(dims)
            if made is not None and not _leaves_out(self._surveys, made) and _sound(self._surveys, made, dims):
                self.found.append(("rectangular", self._given | dims))
                break
            dims.popitem()

    def add(self, category: str, changes: Sequence[tuple[Unit, _Propose]], needed: Unit | None = None) -> bool:
        """Whether there is a variant with units changed so, one of them ``needed``, which is kept then."""
        proposed = [(unit, propose(unit.value, self._rng), propose in _LONGER) for unit, propose in changes]
        values = [(u, [v for v in values if up or v < u.value]) for u, values, up in proposed]
        dims = _changed_in_turn(self._surveys, values, large=category == "large")
        if needed is not None and needed.names[0] not in dims:
            return False
        # Where a size degenerates (groups of one element are normalised to zero), that one stays as it is.
        others = [unit for unit in self._varied if unit != needed]
        without = [{n: v for n, v in dims.items() if n not in unit.at(0)} for unit in others]
        return any(tried and self._keep(category, tried) for tried in (dims, *self._aligned(dims, values), *without))

    def _aligned(
        self, dims: Mapping[str, int], values: Sequence[tuple[Unit, Sequence[int]]]
    ) -> Iterator[dict[str, int]]:
        """The dims with one unit at the last of its values, where real tensors raise: some take whole groups alone."""
        made = self._surveys.probe(dims)
        if made is None or made.form in self._forms or not _is_miniature(made):
            return
        with contextlib.suppress(UsageError):
            problem = ModuleProblem(self._surveys.file, dims, "cpu")
            problem.reference(problem.inputs(1), problem.weights(1))
            return
        for unit, proposed in values:
            if dims.get(unit.names[0], 1) > 1 and proposed[-1] not in (dims[unit.names[0]], 0, 1):
                yield {**dims, **unit.at(proposed[-1])}

    def _keep(self, category: str, dims: dict[str, int]) -> bool:
        made = self._surveys.probe(dims)
        if made is None or made.form in self._forms or self._surveys.drawn(dims) is None:
            return False
        if _has_grown(self._surveys, made, large=category == "large"):
            return False
        if not _is_same(self._surveys, made, dims, category == "tiny" and 1 in dims.values()):
            return False
        self._forms.append(made.form)
        self.found.append((category, self._given | dims))
        return True


def _is_put_behind(base: Survey, made: Survey) -> bool:
    """Whether all arguments of other sizes than before are empty and no output is, where some are joined."""
    pairs = zip(base.arguments, made.arguments, strict=False)
    changed = [b for a, b in pairs if a != b]
    empty = [b for b in changed if isinstance(b, TensorSpec) and not b.numel]
    full = all(out.numel for out in made.outputs) and made.weights == base.weights
    return "cat" in made.operators and full and bool(empty) and len(changed) == len(empty)


def _choices(among: Sequence[Unit], most: int, rng: random.Random) -> Iterator[list[Unit]]:
    """Units to be the long ones, several times: there may have to be no more queries than keys."""
    for _ in range(_TURNS if among else 0):
        yield rng.sample(among, min(len(among), most))


def _changed_in_turn(surveys: Surveys, changes: Sequence[tuple[Unit, Sequence[int]]], *, large: bool) -> dict[str, int]:
    """Units, each with the first of its values at which the problem runs together with those so far. Those of plain
    arguments come first: they are the length of something. Rows of segments may have to be a multiple of another unit.
    """
    dims: dict[str, int] = {}
    for unit, values in sorted(changes, key=lambda change: not _is_plain(surveys, change[0])):
        others = [dims.get(one.names[0], one.value) for one, _ in changes if one != unit and surveys.has_segments]
        multiples = [v // other * other for v in values for other in others if unit.value % other == 0]
        for value in dict.fromkeys((*values, *multiples)):
            made = surveys.probe({**dims, **unit.at(value)}) if value >= 1 and value != unit.value else None
            if made is not None and value == 1 and not _may_be_one(surveys, dims, unit, made):
                continue
            if made is not None and _reaches_beyond(surveys, made):
                continue
            if made is not None and (value < unit.value or not _has_grown(surveys, made, large=large)):
                dims.update(unit.at(value))
                break
    return dims


def _is_plain(surveys: Surveys, unit: Unit) -> bool:
    """Whether a unit changes no size of an argument or weight."""
    base, made = surveys.at({}), surveys.probe(unit.at(max(1, unit.value // 2)))
    pairs = zip((*base.arguments, *base.weights), (*made.arguments, *made.weights), strict=False) if made else ()
    return unit.value > 1 and made is not None and all(own == other or isinstance(own, Scalar) for own, other in pairs)


_LEAST_LENGTH = 4
"""Smaller plain numbers are axes, strides and the like, and no lengths of what is used of something."""


def _reaches_beyond(surveys: Surveys, made: Survey) -> bool:
    """Whether a plain whole number is larger than the size that was the next one above it: 20 of 30 rows were in use,
    and 16 of 5 are. A slice of PyTorch takes that, and who reads row by row does not. The length of the longest segment
    is none of rows in use, nor is a number of segments or classes, of which an output has as many; the latter in small
    variants alone, which are run.
    """
    base = surveys.at({})
    both = list(zip(base.arguments, made.arguments, strict=False))
    sizes = [
        pair
        for own, other in both
        if isinstance(own, TensorSpec) and isinstance(other, TensorSpec)
        for pair in zip(own.shape, other.shape, strict=False)
    ]
    outputs = zip(base.outputs, made.outputs, strict=False) if _is_miniature(made) else ()
    made_sizes = [pair for own, other in outputs for pair in zip(own.shape, other.shape, strict=False)]
    for own, other in both:
        if isinstance(own, Scalar) and isinstance(other, Scalar) and type(own.value) is type(other.value) is int:
            next_above = min((size for size, _ in sizes if size >= own.value >= _LEAST_LENGTH), default=0)
            if surveys.bounds_segments(own.value) or (own.value, other.value) in made_sizes:
                continue
            if next_above and other.value > max(now for size, now in sizes if size == next_above):
                return True
    return False


def _may_be_one(surveys: Surveys, dims: Mapping[str, int], unit: Unit, made: Survey) -> bool:
    """Whether a unit may be 1 beside these dims, and beside the file's own, where ``x[-0:]`` is longest."""
    alone = surveys.probe(unit.at(1))
    return alone is not None and _is_size(surveys, dims, unit, made) and _is_size(surveys, {}, unit, alone)


def _is_size(surveys: Surveys, dims: Mapping[str, int], unit: Unit, single: Survey | None = None) -> bool:
    """Whether a unit may be 1, where the problem is ``single``. It must run at another number too, as what is repeated
    or halved at 1 need not: at 3, or where the file has so few, at the next that goes (2 of 8 heads become 4). No shape
    may be larger at 1 than there: ``x[-(n - 1):]`` is all of ``x`` at 1. And no ``squeeze()`` may drop the dim.
    """
    tries = (3,) if unit.value > 3 else tuple(v for v in (3, 4, 5, 6) if v != unit.value)
    other = next((made for v in tries if (made := surveys.probe({**dims, **unit.at(v)})) is not None), None)
    if other is None or _squeezes(surveys.file.tree):
        return False
    pairs = zip(_shapes(single or other), _shapes(other), strict=False)
    return all(len(a) == len(b) and all(0 < n <= m or n == m for n, m in zip(a, b, strict=True)) for a, b in pairs)


def _squeezes(tree: ast.Module) -> bool:
    """Whether somewhere every dim of 1 is dropped."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr.startswith("squeeze"):
            function = isinstance(call.func.value, ast.Name) and call.func.value.id == "torch"
            if len(call.args) + len(call.keywords) == int(function):
                return True
    return False


def _shapes(made: Survey) -> list[tuple[int, ...]]:
    specs = (*made.arguments, *made.weights, *made.outputs)
    return [tuple(spec.shape) for spec in specs if isinstance(spec, TensorSpec)]


def _has_grown(surveys: Surveys, made: Survey, *, large: bool) -> bool:
    """Whether a variant takes too many bytes or operations; ``large``: for that of a little file."""
    base = surveys.at({})
    if large:
        return made.bytes > _LARGE_BYTES or made.flops > _LARGE_FLOPS or made.steps > _LARGE_STEPS
    return made.bytes > GROWTH * base.bytes or made.flops > GROWTH * max(base.flops, 1)


def _is_same(surveys: Surveys, made: Survey, dims: Mapping[str, int], thin: bool) -> bool:
    """Whether the problem is still the file's own, and means something; ``thin``: at sizes of 1, too."""
    if _is_cut(surveys, made, dims) or _leaves_out(surveys, made) or not _sound(surveys, made, dims):
        return False
    return not thin or not (surveys.is_lower(dims) or _is_coarse(surveys, made, dims))


def _is_cut(surveys: Surveys, made: Survey, dims: Mapping[str, int]) -> bool:
    """Whether an output is shorter along a dim whose size is a number of the file that stays: a slice of the first 8
    where there are 5. No candidate is asked for that.
    """
    file = surveys.file
    stay = {file.value(name) for name in (*file.sizes, *file.literals) if name not in dims}
    stay -= {file.value(name) for name in dims}
    pairs = zip(surveys.at({}).outputs, made.outputs, strict=False)
    sizes = (pair for one, other in pairs for pair in zip(one.shape, other.shape, strict=False))
    return any(own in stay and less < own for own, less in sizes)


def _leaves_out(surveys: Surveys, made: Survey) -> bool:
    """Whether a weight is not read that is read at the file's own sizes: three tables in the module, zipped with two
    rows of indices. No candidate is asked for that. Which weights are read may depend on values: then none is missed.
    """
    own = surveys.at({})
    return not made.real and bool(made.unread & {spec.name for spec in own.weights} - own.unread)


def _sound(surveys: Surveys, made: Survey, dims: Mapping[str, int]) -> bool:
    """Whether the problem means something there: near fp64, finite, with outputs that depend on the inputs, and nothing
    masked among what is selected.

    Only small variants are tried, since it is they that degenerate, and since it costs a run.
    """
    if not _is_miniature(made):
        return True
    problem = ModuleProblem(surveys.file, dims, "cpu")
    weights = problem.weights(1)
    try:
        if not agrees(problem, weights, "standard"):
            limit_changes(problem)
            if problem.vary == "freely" or not agrees(problem, weights, "standard"):
                return False
        one, other = (problem.oracle(problem.inputs(seed), weights) for seed in (1, 2))
    except UsageError:  # the file itself takes no such inputs
        return False
    if "topk" in made.operators and _selects_masked(surveys, problem):
        return False
    return any(depends(a, b) for a, b in zip(one, other, strict=True))


def _is_miniature(made: Survey) -> bool:
    """Whether the problem is so small that it is run to see what it does."""
    return made.bytes <= MINIATURE_BYTES and made.flops <= MINIATURE_FLOPS


_ENDS: tuple[Callable[[int], Way], ...] = (lambda _: "lowest", lambda _: "highest")


def _selects_masked(surveys: Surveys, problem: ModuleProblem) -> bool:
    """Whether an infinity is selected, or would be at one end of what is drawn, as of two beams that are both finished,
    and not so at the file's own sizes. Or whether some of equal numbers are, as of zeros that stand for what is closed.
    """
    weights, base = problem.weights(1), surveys.at({})
    met = _met(problem, problem.inputs(1), weights)
    if met.masked:
        return True
    if not _is_miniature(base):
        return False
    own = ModuleProblem(surveys.file, {}, "cpu")
    if "topk" in met.equal - _met(own, own.inputs(1), own.weights(1)).equal:
        return True
    for way in _ENDS:
        with contextlib.suppress(UsageError):  # the file takes no such outcomes
            here, there = (one.outcome(1, way)[0] for one in (problem, own))
            if _met(problem, here, weights).masked and not _met(own, there, own.weights(1)).masked:
                return True
    return False


def _met(problem: ModuleProblem, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> Selections:
    selections = Selections()
    with selections:
        problem.reference(args, weights)
    return selections


def _is_coarse(surveys: Surveys, made: Survey, dims: Mapping[str, int]) -> bool:
    """Whether an output hangs on the signs of inputs where some sizes are 1, and not where these are 3; or that is not
    known. A vector of one number divided by its norm is 1 or -1, and distances of such are what rounding leaves.
    """
    if not _is_miniature(made):
        return True
    try:
        one, three = (_stays(surveys, {n: max(v, least) for n, v in dims.items()}) for least in (1, 3))
    except UsageError:
        return True
    return any(stays and not other for stays, other in zip(one, three, strict=False))


def _stays(surveys: Surveys, dims: Mapping[str, int]) -> list[bool]:
    """For each output, whether it is another one on other inputs, but not where all numbers move a little."""
    problem = ModuleProblem(surveys.file, dims, "cpu")
    args, weights = problem.inputs(1), problem.weights(1)
    generator = torch.Generator().manual_seed(1)

    def moved(value: Any) -> Any:
        return value * (1 + _LITTLE * torch.rand(value.shape, generator=generator)) if is_inexact(value) else value

    own, other = problem.oracle(args, weights), problem.oracle(problem.inputs(2), weights)
    near = problem.oracle([moved(a) for a in args], {name: moved(w) for name, w in weights.items()})
    return [depends(a, b) and not depends(a, c, _STILL) for a, b, c in zip(own, other, near, strict=True)]


# -- Miniatures -------------------------------------------------------------------------------------------------------


def shrink(surveys: Surveys, max_bytes: int, max_flops: int, varied: Sequence[Unit] | None = None) -> dict[str, int]:
    """Dims at which the problem takes at most so many bytes and operations, by halving its largest units (those that
    are ``varied``; None: all); as near to that as it goes where the file fixes sizes in its functions. Raises
    UsageError: the file raises at its own sizes.
    """
    dims: dict[str, int] = {}
    now = surveys.at({})
    small = now.bytes <= max_bytes and now.flops <= max_flops  # then what could be varied need not be found
    current = {} if small else {unit: unit.value for unit in (units(surveys) if varied is None else varied)}
    while now.bytes > max_bytes or now.flops > max_flops:
        for unit, value in sorted(current.items(), key=lambda item: -item[1]):
            half = value // 2
            tries = [half, *(half // m * m for m in _ALIGNMENTS)]
            for smaller in dict.fromkeys(v for v in tries if v >= 1):
                made = surveys.probe({**dims, **unit.at(smaller)})
                if made is not None and (made.bytes < now.bytes or made.flops < now.flops):
                    dims, now = {**dims, **unit.at(smaller)}, made
                    current[unit] = smaller
                    break
            else:
                del current[unit]
                continue
            break
        else:
            break
    return dims
