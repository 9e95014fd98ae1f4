"""Other sizes at which a problem file still makes sense, found by trying them on tensors without memory.

What is varied are *units*: top-level integers (or several of one value that only change together) that set the shape of
an input or of a weight. Kernel sizes, strides, padding, groups, numbers of layers and the like stay: they say what the
operator is, not how large. So do integers that ``Model`` reads directly, because a candidate would not learn of them.
"""

from __future__ import annotations

import ast
import functools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kerneleval.records import DTYPES, FAR_MEANS, Argument, TensorSpec, UsageError, digest
from kerneleval.tasks.formats.changes import Vary
from kerneleval.tasks.formats.jumps import Flips, jumps, noisy, too_many
from kerneleval.tasks.formats.kin import kin
from kerneleval.tasks.formats.memory import Slow, gates, makes_decays, slow
from kerneleval.tasks.formats.module_problem import DISTRIBUTIONS, SIGNED, ModuleProblem
from kerneleval.tasks.formats.outcomes import MOST, Way
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.redrawn import different
from kerneleval.tasks.formats.soundness import AGREE, astray, depends, limit_of, opened
from kerneleval.tasks.formats.survey import Survey, survey
from kerneleval.tasks.formats.traits import Doubling, is_inexact, same_bits
from kerneleval.tasks.sampling import is_power_of_two

_NOISY = 19
"""Bits that are left to fp32 where it is asked which elements lie beside a step."""

_LITTLE, _STILL = 0.05, 1e-6
"""Part of itself by which a number moves that keeps its sign, and what does not move an output then."""

GROWTH = 1.5
"""No variant takes more than this many times the bytes or operations of the file's own sizes, but for the large one of
a little file."""

_LITTLE_BYTES, _LARGE_BYTES, _LARGE_FLOPS, _LARGE_STEPS = 1 << 20, 16 << 20, 1_000_000_000, 5_000
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
_ALIGNMENTS = (2, 4, 8, 16, 32, 64, 128)

_MAX_PROBES = 150
_MAX_STEPS = 300_000
"""Operators dispatched over all probes of one file: recurrent models take tens of thousands a run."""

_REAL_BYTES = 64 << 20
"""Size up to which a problem that needs real tensors to be surveyed is tried at other sizes."""

_WRITTEN_BYTES = 16 << 20
"""Size of a file up to which it is drawn at every other size, where it writes integers out."""
_MINIATURE_BYTES = 4 << 20
_MINIATURE_FLOPS = 200_000_000
_TRIED_BYTES = 64 << 20
_TRIED_FLOPS = 1_000_000_000
"""A miniature that takes more is not tried: where the file fixes its widths in the code of its layers."""

_BEYOND = (-1 / 16, 1 / 16)
"""Parts of themselves by which numbers change to see whether a file takes others than it draws."""

_TRIED = ("sorted", "skewed", "redrawn", "far_mean", "long_memory")
"""Distributions that no file has that was not tried."""

_REDRAWN = (1, 2)
"""Draws in which a file must take another argument than its own."""

_PARTLY: Way = "partly"
_SKEWED: tuple[Way, ...] = ("whole", _PARTLY)
"""Ways in which draws of integers and masks are tried, in order."""

_QUICK_FLOPS, _QUICK_STEPS = 20_000_000, 5000
"""Operations, and operators, of a miniature that may be run dozens of times."""

_DRAWS = 4
"""How often inputs with a few large elements are drawn to see whether a problem is sound: the sign of these matters."""


_LOW_DRAWS = 20
"""Draws in which no integer may be 0 that is above it in the file."""


class Unit(NamedTuple):
    """Integers that are varied together."""

    names: tuple[str, ...]
    value: int

    def at(self, value: int) -> dict[str, int]:
        """The unit with another value."""
        return dict.fromkeys(self.names, value)


class Surveys:
    """Surveys of one file by its dims, each made once."""

    def __init__(self, file: ProblemFile) -> None:
        self.file = file
        self._known: dict[tuple[tuple[str, int], ...], Survey | UsageError] = {}

    def at(self, dims: Mapping[str, int]) -> Survey:
        """The survey at these dims; raises UsageError where the file raises."""
        key = tuple(sorted((self.file.sizes | dict(dims)).items()))
        if key not in self._known:
            try:
                self._known[key] = survey(self.file, dims)
            except UsageError as error:
                self._known[key] = error
        found = self._known[key]
        if isinstance(found, UsageError):
            raise found
        return found

    def probe(self, dims: Mapping[str, int]) -> Survey | None:
        """The survey at these dims; None where the file raises, or once this file has had its share of tries."""
        if len(self._known) > self._probes:
            return None
        try:
            return self.at(dims)
        except UsageError:
            return None

    def drawn(self, dims: Mapping[str, int]) -> Survey | None:
        """The same; None too where a small file draws no such inputs, positions that it writes out lie outside of them,
        or one batch is repeated for those of another input. Tensors without values take what real ones do not, as a
        mask of another shape.
        """
        made = self.probe(dims)
        if made is not None and self._is_spread(made):
            return None
        small = made is not None and made.bytes <= _MINIATURE_BYTES and not made.real
        if made is not None and (small or self._written):
            try:
                args = ModuleProblem(self.file, dims, "cpu").inputs(1)
            except UsageError:
                return None
            return None if self._written and self._lie_outside(args) else made
        return made

    def _is_spread(self, made: Survey) -> bool:
        """Whether the first dim of an input became 1, and that of another and of an output is still what all three
        were: numbers that the file writes out for a batch of two. No candidate is asked for that.
        """
        base = self.at({})
        pairs = [
            (own.shape[0], other.shape[0])
            for own, other in zip(base.arguments, made.arguments, strict=False)
            if isinstance(own, TensorSpec) and isinstance(other, TensorSpec) and own.shape and other.shape
        ]
        stayed = {own for own, other in pairs if own == other}
        outputs = zip(base.outputs, made.outputs, strict=False)
        stayed &= {own.shape[0] for own, other in outputs if own.shape and own.shape[:1] == other.shape[:1]}
        return any(other == 1 < own and own in stayed for own, other in pairs)

    def is_lower(self, dims: Mapping[str, int]) -> bool:
        """Whether integers that lie above 0 in a small file are 0 or less at these dims, as from ``T // 2`` on at 1."""
        made, whole = self.at(dims), [i for i, spec in enumerate(self.at({}).arguments) if _is_index(spec)]
        if (
            not whole
            or self.at({}).bytes > _WRITTEN_BYTES
            or made.bytes > _MINIATURE_BYTES
            or len(self._own) <= whole[-1]
        ):
            return False
        try:
            ends = ModuleProblem(self.file, {}, "cpu").outcome(1, lambda number: "whole")[0]
            above = [i for i in whole if self._own[i].numel() and min(int(self._own[i].min()), int(ends[i].min())) > 0]
            problem = ModuleProblem(self.file, dims, "cpu")
            draws = [problem.inputs(seed) for seed in range(_LOW_DRAWS if above else 0)]
        except UsageError:
            return True
        return any(len(args) > i and args[i].numel() and int(args[i].min()) <= 0 for args in draws for i in above)

    @functools.cached_property
    def _own(self) -> list[Any]:
        return ModuleProblem(self.file, {}, "cpu").inputs(1)

    @functools.cached_property
    def _written(self) -> list[int]:
        """Positions of integer tensors that a small file draws alike under every seed."""
        base = self.at({})
        whole = [i for i, spec in enumerate(base.arguments) if _is_index(spec)]
        if not whole or base.bytes > _WRITTEN_BYTES:
            return []
        frozen = ModuleProblem(self.file, {}, "cpu").traits.frozen
        return [i for i in whole if i in frozen and self._own[i].numel() > 1]

    def _lie_outside(self, args: Sequence[Any]) -> bool:
        """Whether integers that are still the same may name places that a tensor has no more, or end where it ended.
        The file does not say what is right for an end behind the last row, or for rows behind the last end. Also where
        there are more inputs or fewer: which of them the integers name is not known.
        """
        if len(args) != len(self._own):
            return True
        both = zip(self._own, args, strict=True)
        pairs = [(a, b) for a, b in both if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)]
        sizes = {pair for a, b in pairs for pair in zip(a.shape, b.shape, strict=False) if pair[0] != pair[1]}
        ends = []
        for own, other in ((self._own[i], args[i]) for i in self._written):
            same = own[own == other] if own.shape == other.shape else own[:0]
            ends += [int(same.max())] if same.numel() else []
        return any(own >= end >= other for own, other in sizes for end in ends if end > 1)

    @property
    def _probes(self) -> int:
        base = self.at({})
        if base.real and base.bytes > _REAL_BYTES:
            return 1
        return max(8, min(_MAX_PROBES, _MAX_STEPS // max(base.steps, 1)))


def _is_index(spec: Argument) -> bool:
    return isinstance(spec, TensorSpec) and spec.role == "index"


def units(surveys: Surveys) -> list[Unit]:
    """What can be varied, in the order of the file; raises UsageError where the file raises at its own sizes."""
    file, base = surveys.file, surveys.at({})
    hints = {name: name for name in file.sizes if name.partition("[")[0] not in file.read_by_model}
    hints |= {name: literal.hint for name, literal in file.literals.items() if not literal.bound}
    free = {
        name: file.value(name)
        for name, hint in hints.items()
        if file.value(name) >= 2 and (_COUNTS.search(hint) or not _NOT_A_SIZE.search(hint))
    }
    bounds = [name for name, literal in file.literals.items() if literal.bound and literal.value > 2]  # 2: flags
    found: list[Unit] = []
    taken: set[str] = set()
    for name, value in free.items():
        if name in taken:
            continue
        twins = [n for n, v in free.items() if v == value and n != name and n not in taken]
        group = [n for n in twins if n in file.literals and name in file.literals and _are_one(file, name, n)]
        rest = [n for n in twins if n not in group]
        together = [(name, *group, *more) for more in ((), *((twin,) for twin in rest))] if group else []
        for names in (*together, (name,), *((name, twin) for twin in twins), (name, *twins)):
            unit = Unit(names, value)
            least = 1 if value > 3 or _is_size(surveys, {}, unit) else 2
            more = (value + 1, 2 * value) if value <= 3 else ()
            tries = (surveys.drawn(unit.at(v)) for v in (value // 2, value - 1, value - 8, *more) if v >= least)
            if (other := next((made for made in tries if made is not None), None)) is not None:
                wider = other.weights != base.weights and not any(_HEADS.search(hints[one]) for one in names)
                if wider or other.arguments != base.arguments:
                    followers = [one for one in bounds if file.value(one) == value]
                    found.append(Unit((*names, *followers), value))
                    taken.update(names)
                break
    return found


def _are_one(file: ProblemFile, name: str, other: str) -> bool:
    """Whether two literals are one size of three inputs or more (``literals.py``)."""
    group = file.literals[name].group
    return group is not None and group == file.literals[other].group


def own_dims(file: ProblemFile, varied: Sequence[Unit]) -> dict[str, int]:
    """The file's own sizes: its top-level integers, and what is varied of the numbers inside its functions."""
    return file.sizes | {name: unit.value for unit in varied for name in unit.names}


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

_TURNS = 4
"""How often other sizes are chosen to be the long ones."""

_FEW = 5
"""Where fewer variants are found there is another one, of odd sizes."""


def variants(surveys: Surveys, suite_seed: int = 0) -> tuple[tuple[str, dict[str, int]], ...]:
    """Up to eight (shape category, dims) pairs other than the file's own, the same for equal file and seed.

    For each kind of change every unit is changed in turn, each by the first proposal at which the problem still runs
    together with the changes so far. The category says what was aimed at; a unit that allows none stays. Small variants
    at which the problem degenerates are mended by leaving one unit as it is, or else dropped. In the two tiny ones half
    of the units are 1 each, if they may: paths for single rows and tokens are met there. In the two rectangular ones
    some units are larger than in the file and the others smaller; what the first one leaves as it is, or makes smaller,
    is larger in the second: what a candidate made for the file's own sizes, which it meets first, is too small there.
    No variant is more than :data:`GROWTH` times as large or as costly as the original, but for one more of a little
    file, in which every unit is several times as large. Raises UsageError: the file raises at its own sizes.
    """
    file, base, varied = surveys.file, surveys.at({}), units(surveys)
    rng = random.Random(digest(file.text, str(suite_seed)))
    given = own_dims(file, varied)
    found: list[tuple[str, dict[str, int]]] = []
    forms, longer = [base.form], [*(long for long, _ in _STRETCHES), _several]

    def keep(category: str, dims: dict[str, int]) -> bool:
        made = surveys.probe(dims)
        if made is None or made.form in forms or surveys.drawn(dims) is None:
            return False
        if _has_grown(surveys, made, large=category == "large"):
            return False
        if not _is_same(surveys, made, dims, category == "tiny" and 1 in dims.values()):
            return False
        forms.append(made.form)
        found.append((category, given | dims))
        return True

    def add(category: str, changes: Sequence[tuple[Unit, _Propose]]) -> bool:
        proposed = [(unit, propose(unit.value, rng), propose in longer) for unit, propose in changes]
        chosen = [(u, [v for v in values if up or v < u.value]) for u, values, up in proposed]
        dims = _changed_in_turn(surveys, chosen, large=category == "large")
        # Where a size degenerates (groups of one element are normalised to zero), that one stays as it is.
        without = [{n: v for n, v in dims.items() if n not in unit.names} for unit in varied]
        return any(tried and keep(category, tried) for tried in (dims, *without))

    for category, propose in _KINDS:
        add(category, [(unit, propose) for unit in varied])
    single = random.Random(digest(file.text, str(suite_seed), "single")).sample(varied, (len(varied) + 1) // 2)
    if not add("tiny", [(unit, _one if unit in single else _tiny) for unit in varied]):
        add("tiny", [(unit, _tiny) for unit in varied])
    for larger, smaller in _STRETCHES:
        never = [unit for unit in varied if all(dims[unit.names[0]] <= unit.value for _, dims in found)]
        for _ in range(_TURNS if never else 0):  # there may have to be no more queries than keys
            long = rng.sample(never, min(len(never), (len(varied) + 1) // 2))
            if add("rectangular", [*((u, smaller) for u in varied if u not in long), *((u, larger) for u in long)]):
                break
    if len(found) < _FEW:
        add("non_power_of_two", [(unit, _odd) for unit in varied])
    if base.bytes <= _LITTLE_BYTES:
        add("large", [(unit, _several) for unit in varied])
    if len(single) < len(varied):
        add("tiny", [(unit, _tiny if unit in single else _one) for unit in varied])
    return tuple(found)


def _changed_in_turn(surveys: Surveys, changes: Sequence[tuple[Unit, Sequence[int]]], *, large: bool) -> dict[str, int]:
    """Units, each with the first of its values at which the problem runs together with those so far."""
    dims: dict[str, int] = {}
    for unit, values in changes:
        for value in dict.fromkeys(values):
            made = surveys.probe({**dims, **unit.at(value)}) if value >= 1 and value != unit.value else None
            if made is not None and value == 1 and not _is_size(surveys, dims, unit, made):
                continue
            if made is not None and (value < unit.value or not _has_grown(surveys, made, large=large)):
                dims.update(unit.at(value))
                break
    return dims


def _is_size(surveys: Surveys, dims: Mapping[str, int], unit: Unit, single: Survey | None = None) -> bool:
    """Whether a unit may be 1, where the problem is ``single``: it runs at another number, with no fewer dims and none
    smaller; at an odd one, if the file has more than 3. What runs at 1 alone may be repeated, or halved to
    nothing; and ``x[-0:]`` is all of it, where one less than the unit is asked for. A dim of 1 that is dropped
    (``squeeze``) may be multiplied with another.
    """
    tries = (3,) if unit.value > 3 else tuple(v for v in (3, 4, 5, 6) if v != unit.value)  # not 3 of 8 heads
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
    if made.bytes > _MINIATURE_BYTES or made.flops > _MINIATURE_FLOPS:
        return True
    problem = ModuleProblem(surveys.file, dims, "cpu")
    weights = problem.weights(1)
    try:
        if not _agrees(problem, weights, "standard"):
            _limit_changes(problem)
            if problem.vary == "freely" or not _agrees(problem, weights, "standard"):
                return False
        one, other = (problem.oracle(problem.inputs(seed), weights) for seed in (1, 2))
    except UsageError:  # the file itself takes no such inputs
        return False
    if "topk" in made.operators:
        with _Selections() as selections:
            problem.reference(problem.inputs(1), weights)
        if selections.masked:
            return False
    return any(depends(a, b) for a, b in zip(one, other, strict=True))


def _is_coarse(surveys: Surveys, made: Survey, dims: Mapping[str, int]) -> bool:
    """Whether an output hangs on the signs of inputs where some sizes are 1, and not where these are 3; or that is not
    known. A vector of one number divided by its norm is 1 or -1, and distances of such are what rounding leaves.
    """
    if made.bytes > _MINIATURE_BYTES or made.flops > _MINIATURE_FLOPS:
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


def _selects_among_equals(problem: ModuleProblem) -> bool:
    """Whether a ``topk`` has equal numbers to choose among under ``large_scale``, as where sigmoids are all 1: any
    order of these is right.
    """
    with _Selections() as selections:
        problem.reference(problem.inputs(1, "large_scale"), problem.weights(1, "large_scale"))
    return bool(selections.equal)


class _Selections(TorchDispatchMode):
    """Notes whether an infinity is selected, as where more are taken than a mask leaves: any may come last there. And
    whether equal numbers are, or one of several.
    """

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.masked = self.equal = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        out = func(*args, **options)
        if func._overloadpacket is torch.ops.aten.topk:
            self.masked |= bool(out[0].isinf().any())
            given = dict(zip(("input", "k", "dim", "largest"), args, strict=False)) | options
            self.equal |= _among_equals(given["input"], out[0], given.get("dim", -1), given.get("largest", True))
        return out


def _among_equals(given: torch.Tensor, taken: torch.Tensor, dim: int, largest: bool) -> bool:
    """Whether of the numbers taken along a dim two are equal, or one is equal to another that was not."""
    if not taken.dim() or not taken.numel():
        return False
    last = taken.amin(dim, keepdim=True) if largest else taken.amax(dim, keepdim=True)
    several = (given >= last if largest else given <= last).sum(dim) > taken.shape[dim]
    return bool(several.any()) or bool((taken.sort(dim).values.diff(dim=dim) == 0).any())


# -- Miniatures -------------------------------------------------------------------------------------------------------


def shrink(surveys: Surveys, max_bytes: int, max_flops: int) -> dict[str, int]:
    """Dims at which the problem takes at most so many bytes and operations, by halving its largest units; as near to
    that as it goes where the file fixes sizes in its functions. Raises UsageError: the file raises at its own sizes.
    """
    dims: dict[str, int] = {}
    now, current = surveys.at({}), {unit: unit.value for unit in units(surveys)}
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


_OPTIONS = ("unsigned", "kept", "vary", "vary_weights", "bounded")
_KNOWN = ("skewed", "far", "slow", "gates", "kin", "twice")
"""What of a :class:`Safe` are parameters of :class:`ModuleProblem`, and attributes."""


@dataclass(frozen=True, kw_only=True)
class Safe:
    """How a problem's inputs and weights may be changed, so that it is still defined."""

    distributions: tuple[str, ...] = ()
    """Those beyond the file's own."""
    fell_out: tuple[str, ...] = ()
    """Others that the file might have had."""
    unsigned: frozenset[str] = frozenset()
    kept: frozenset[int] | None = None
    vary: Vary = "freely"
    vary_weights: Vary = "freely"
    bounded: bool = True
    """All five in :attr:`options`."""
    same: tuple[str, ...] = ()
    """Tensor arguments that come out the same in every draw, by name: nothing else is known to be valid, or the file
    takes nothing else, or gives the same outputs then."""
    skewed: Mapping[int, Way] = field(default_factory=dict)
    far: float = FAR_MEANS[0]
    slow: Slow | None = None
    gates: frozenset[int] = frozenset()
    kin: frozenset[int] = frozenset()
    twice: Mapping[int | str, Doubling] = field(default_factory=dict)
    """All six for :class:`ModuleProblem` as well."""
    decays: bool = False
    """Whether there are gates, or a recurrence makes decays of its own input."""
    tame: tuple[str, ...] = ()
    """Integers and masks, by name, that come as the file draws them alone."""

    @property
    def options(self) -> dict[str, Any]:
        """For :class:`ModuleProblem`."""
        return {name: getattr(self, name) for name in _OPTIONS}


def safe_distributions(surveys: Surveys) -> Safe:
    """Distributions beyond the file's own at which the problem is still defined.

    A miniature of the problem runs on the CPU with inputs and weights of each of :data:`DISTRIBUTIONS`: outputs must be
    finite and near fp64. Where no miniature is small, all are given: the judge finds out on its device
    (``BoundCase.expect``). Raises UsageError: its own inputs cannot be judged.
    """
    dims = shrink(surveys, _MINIATURE_BYTES, _MINIATURE_FLOPS)
    made = surveys.at(dims)
    offered = [name for name in DISTRIBUTIONS if _may_have(made, name)]
    if made.bytes > _TRIED_BYTES or made.flops > _TRIED_FLOPS:
        if made.operators & _ASSERTING:  # not tried on a GPU, where this would end the judge
            return Safe(fell_out=tuple(offered), vary="inwards", vary_weights="inwards")
        return Safe(distributions=tuple(name for name in offered if name not in _TRIED))
    problem = ModuleProblem(surveys.file, dims, "cpu")
    problem.kept, problem.twice = problem.traits.frozen, problem.find_twice()
    _limit_changes(problem)
    problem.reference(problem.inputs(1, "standard"), problem.weights(0))
    same = _redraw(problem)
    if problem.kept == problem.traits.frozen:
        offered.remove("redrawn")
    if "sorted" in offered and not _reorders(problem):
        offered.remove("sorted")
    tame = _skew(problem, made)
    if not problem.skewed:
        offered.remove("skewed")
    if problem.inside is not None and "far_mean" in offered:
        offered.remove("far_mean")  # half types have too few digits for it
    decays = False
    if _is_quick(made):
        drawn = problem.inputs(1), problem.weights(0)
        problem.gates = gates(problem.oracle, *drawn)
        decays = not problem.gates and makes_decays(problem.oracle, *drawn, made.operators)
        offered = [name for name in offered if name != "large_scale" or not decays]
    if "long_memory" in offered:
        problem.slow = _slow(problem) if _is_quick(made) else None
        offered = [name for name in offered if name != "long_memory" or problem.slow is not None]
    found = [name for name in offered if _defined(problem, name)]
    if "large_scale" in found and "topk" in made.operators and _selects_among_equals(problem):
        found.remove("large_scale")
    if problem.traits.frozen and "redrawn" not in found:  # each argument alone was taken, and not all of them
        problem.kept = problem.traits.frozen
        same = _unchanging(problem)
    return Safe(
        distributions=tuple(found),
        fell_out=tuple(name for name in offered if name not in found),
        **{name: getattr(problem, name) for name in (*_OPTIONS, *_KNOWN)},
        decays=decays or bool(problem.gates),
        same=tuple(made.arguments[index].name for index in same),
        tame=tuple(made.arguments[index].name for index in tame),
    )


_ASSERTING = frozenset(("binary_cross_entropy", "bernoulli", "multinomial", "_assert_async"))
"""Operators that assert in their kernels what their numbers are."""

_CHOICES = frozenset(
    ("topk", "sort", "argsort", "kthvalue", "argmax", "argmin", "nonzero", "bincount", "_unique2", "unique_dim",
     "unique_consecutive", "index_add", "index_put", "scatter", "scatter_add", "scatter_reduce")
)  # fmt: skip
"""Operators that send rows to places by what they are: nearly all may go to one."""

_STEPS = frozenset(("round", "floor", "ceil", "trunc", "sign", "bucketize", "searchsorted", "histc"))
"""Others whose outputs jump. Tiny inputs, beside which rounding is large, decide nothing there."""

_ORDERS = frozenset(("median", "nanmedian", "mode", "cummax", "cummin", "searchsorted"))
"""Beside :data:`_CHOICES`, operators whose kernels may do otherwise where large numbers lie side by side."""

_EXTREMES = frozenset(("max", "min", "cummax", "cummin"))
_SORTS = frozenset(("sort", "argsort"))
_POSITIONS = _EXTREMES | frozenset(
    ("topk", "sort", "argsort", "kthvalue", "argmax", "argmin", "median", "nanmedian", "mode", "multinomial")
)
"""Operators that give positions, of which any is right where numbers are equal, as in rows that are masked whole."""

_WRITERS = frozenset(("scatter", "index_put", "_unsafe_index_put", "index_copy", "put"))
"""Operators that may write each place once, and say nothing of which of two writes counts."""

_PICKS = frozenset(("index", "gather", "index_select", "take", "embedding"))
"""Operators that pick elements by places."""

_EPSILONS = frozenset(("div", "reciprocal", "sqrt", "rsqrt", "log", "log2", "log10"))
"""Operators that an epsilon may stand before, beside norms. Elsewhere tiny inputs would tell no more than that
``exp(x) - 1`` is no ``expm1(x)``."""


_COMPARISONS = frozenset(
    ("gt", "ge", "lt", "le", "eq", "ne", "sgn", "heaviside", "max", "amax", "log1p", "xlogy", "special_entr",
     "special_xlog1py")
)  # fmt: skip
"""Beside steps and what has an epsilon, operators for which 0, or the end of the range, is a number of its own."""

_CENTRED = re.compile(r"(batch|layer|group|instance)_norm|^(var|std)(_mean)?$|^(_batch_norm|cov|cdist|_cdist)|pairwise")
_DIFFERENCES = frozenset(("sub", "rsub", "addcdiv", "lerp"))
_SUMS = frozenset(("sum", "mean", "linalg_vector_norm", "norm"))
"""Operators that take a mean off, and those that together may: a mean far from 0 cancels there."""


def _may_have(made: Survey, distribution: str) -> bool:
    """Whether a distribution may tell anything about a problem, by its inputs and the operators that it runs."""
    operators = {name if name.startswith("_") else name.rstrip("_") for name in made.operators}
    ranks = [len(a.shape) for a in made.arguments if isinstance(a, TensorSpec) and a.role == "data"]
    if distribution == "tiny_scale":
        epsilon = bool(operators & _EPSILONS) or any("norm" in name for name in operators)
        return bool(ranks) and epsilon and not operators & (_CHOICES | _STEPS)
    if distribution == "padded":
        told = operators & (_EPSILONS | _STEPS | _COMPARISONS) or any("norm" in name for name in operators)
        return bool(ranks) and bool(told) and not _tells_equals_apart(made, operators)
    if distribution == "sorted":
        return bool(ranks) and bool(operators & (_CHOICES | _ORDERS))
    if distribution == "far_mean":
        wide = [a for a in made.arguments if isinstance(a, TensorSpec) and "float" in a.dtype and DTYPES[a.dtype] >= 4]
        centred = any(_CENTRED.search(name) for name in operators)
        return bool(wide) and (centred or bool(operators & _SUMS and operators & _DIFFERENCES))
    if distribution == "alike":
        return max(ranks, default=0) > 1 and bool(operators & _CHOICES)
    return distribution != "trained" or made.trainable


def _tells_equals_apart(made: Survey, operators: set[str]) -> bool:
    """Whether outputs may hang on the place of one of several equal numbers: any of them is right."""
    used = any(_whole(out) for out in made.outputs) or bool(_PICKS & operators)
    pools = ("max_pool", "adaptive_max_pool", "fractional_max_pool")
    extremes = bool(_EXTREMES & operators) or any(name.startswith(pools) for name in operators)
    return bool((_CHOICES | _POSITIONS - _EXTREMES) & operators) or (used and extremes)


def _limit_changes(problem: ModuleProblem) -> None:
    """Have ``problem.vary`` and ``problem.vary_weights`` say how far the file takes other numbers in what is alike
    under every seed, and ``problem.bounded`` whether its other numbers may leave their range.
    """
    frozen = ((1, 0), (2, 0), (3, 0)) if problem.traits.frozen else ((1, 0),)
    for name, seeds in ("vary", frozen), ("vary_weights", ((1, 1), (1, 2))):
        for way in get_args(Vary):
            setattr(problem, name, way)
            if all(_agrees_on(problem, problem.inputs(one), problem.weights(other)) for one, other in seeds):
                break
        else:
            setattr(problem, name, "freely")  # the file is not near fp64 as it stands either
    args, weights = problem.inputs(1), problem.weights(1)

    def takes(factor: float) -> bool:
        scaled = [a * factor if is_inexact(a) else a for a in args]
        return _agrees_on(problem, scaled, {n: w * factor if is_inexact(w) else w for n, w in weights.items()})

    problem.bounded = not all(takes(1 + part) for part in _BEYOND)


def _redraw(problem: ModuleProblem) -> list[int]:
    """Have ``problem.kept`` hold every argument that ``redrawn`` is to leave alone, and ``problem.kin`` those of which
    one follows from another; the positions of those that come out the same in every draw then.
    """
    frozen, weights = problem.traits.frozen, problem.weights(0)
    drawn = problem.outcome(1, lambda number: None)[0]
    problem.kin = kin({index: drawn[index] for index in sorted(frozen)})
    plain = {seed: problem.inputs(seed) for seed in _REDRAWN}

    @functools.cache
    def own(seed: int) -> tuple[torch.Tensor, ...]:
        return problem.oracle(plain[seed], weights)

    def takes(index: int, seed: int) -> bool:
        """Whether the file takes another such argument, and gives other outputs of the same form for it."""
        args = problem.inputs(seed, "redrawn")
        if same_bits(args[index], plain[seed][index]) or not _agrees_on(problem, args, weights):
            return False
        native, exact = problem.reference(args, weights), problem.oracle(args, weights)
        if [out.shape for out in exact] != [out.shape for out in own(seed)]:
            return False
        whole = [(a, b) for a, b in zip(native, exact, strict=True) if not a.is_floating_point() and not a.is_complex()]
        changed = any(depends(a, b) for a, b in zip(own(seed), exact, strict=True))
        return changed and all(torch.equal(a, b) for a, b in whole)

    found = set[int]()
    alone = [frozenset((index,)) for index in sorted(frozen - problem.kin)]
    for group in (*alone, problem.kin):
        problem.kept = frozen - group
        if group and all(takes(min(group), seed) for seed in _REDRAWN):
            found |= group
    problem.kept = frozen - found
    return _unchanging(problem)


def _unchanging(problem: ModuleProblem) -> list[int]:
    """Positions of the arguments that ``redrawn`` leaves alone and that come out the same in every draw."""
    first, last = (problem.inputs(seed) for seed in _REDRAWN)
    return sorted(index for index in problem.kept or () if same_bits(first[index], last[index]))


def _reorders(problem: ModuleProblem) -> bool:
    """Whether other orders of what the file draws change an argument."""
    try:
        return bool(_changed(problem.inputs(1), problem.inputs(1, "sorted")))
    except UsageError:  # the file takes no such numbers
        return True


def _changed(ones: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """Positions of the tensors that differ."""
    pairs = enumerate(zip(ones, others, strict=True))
    return [i for i, (a, b) in pairs if isinstance(a, torch.Tensor) and not same_bits(a, b)]


def _skew(problem: ModuleProblem, made: Survey) -> list[int]:
    """Have ``problem.skewed`` say which draws make integers and masks alone, and how far the file takes them at the
    ends of their range. The positions of the arguments of which it takes none.
    """
    if not problem.traits.labels and not any(isinstance(a, TensorSpec) and _whole(a) for a in made.arguments):
        return []
    operators = {name.rstrip("_") for name in made.operators}
    returned = any(_whole(out) for out in made.outputs)
    positions = _POSITIONS - _SORTS if made.stable else _POSITIONS
    equal = bool(operators & (positions if returned else positions - _EXTREMES))
    plain, count = problem.outcome(1, lambda number: None)
    found, tame = dict[int, Way](), set[int]()
    for number in range(min(count, MOST)):
        try:
            changed = _changed(plain, problem.outcome(1, {number: _PARTLY}.get)[0])
        except UsageError:  # its sizes depend on them
            continue
        once = operators & _WRITERS and any(different(plain[i]) for i in changed)
        if not changed or once or not all(_discrete(plain[i]) for i in changed):
            continue
        way = next((way for way in _SKEWED if not equal and _takes(problem, number, way)), None)
        if way is None:
            tame.update(changed)
        else:
            found[number] = way
    problem.skewed = found
    return sorted(tame)


def _takes(problem: ModuleProblem, number: int, way: Way) -> bool:
    """Whether the file takes one of its draws so, and gives the same whole numbers in fp64. Sets ``problem.skewed``."""
    problem.skewed, weights = {number: way}, problem.weights(0)
    for seed in _REDRAWN:
        try:
            args = problem.inputs(seed, "skewed")
        except UsageError:
            return False
        if not _agrees_on(problem, args, weights):
            return False
        pairs = zip(problem.reference(args, weights), problem.oracle(args, weights), strict=True)
        if not all(is_inexact(a) or torch.equal(a, b) for a, b in pairs):
            return False
    return True


def _whole(spec: TensorSpec) -> bool:
    return "float" not in spec.dtype and "complex" not in spec.dtype


def _discrete(tensor: torch.Tensor) -> bool:
    """Whether it holds integers or flags, or is a floating mask of two values at most."""
    return not is_inexact(tensor) or (tensor.is_floating_point() and len(tensor.unique()) <= 2)


def _is_quick(made: Survey) -> bool:
    return made.flops <= _QUICK_FLOPS and made.steps <= _QUICK_STEPS


def _slow(problem: ModuleProblem) -> Slow | None:
    """What makes the file remember, if it forgets."""
    return slow(
        problem.oracle,
        problem.inputs(1),
        problem.weights(0),
        problem.parameters,
        lambda args, weights: _agrees_on(problem, args, weights),
    )


def _defined(problem: ModuleProblem, distribution: str) -> bool:
    """Whether the problem is defined there, if need be with a positive factor (``problem.unsigned``), or at the smaller
    of the far means (``problem.far``).
    """
    weights = problem.weights(1 if distribution == "trained" else 0, distribution)
    if _agrees(problem, weights, distribution):
        return True
    if distribution == "far_mean":
        problem.far = FAR_MEANS[-1]
        return _agrees(problem, weights, distribution)
    if distribution not in SIGNED:
        return False
    problem.unsigned |= {distribution}
    if not _agrees(problem, weights, distribution):
        problem.unsigned -= {distribution}
    return distribution in problem.unsigned


def _agrees(problem: ModuleProblem, weights: Mapping[str, torch.Tensor], distribution: str) -> bool:
    draws = _DRAWS if distribution in ("outlier", "padded") else 1
    try:
        drawn = [problem.inputs(seed, distribution) for seed in range(1, 1 + draws)]
    except UsageError:  # get_inputs() takes no such outcomes
        return False
    return all(_agrees_on(problem, args, weights, distribution) for args in drawn)


def _agrees_on(
    problem: ModuleProblem, args: Sequence[Any], weights: Mapping[str, torch.Tensor], distribution: str = "standard"
) -> bool:
    try:
        native, exact = problem.reference(args, weights), problem.oracle(args, weights)
    except UsageError:  # the file itself takes no such values
        return False
    floating = [opened(t) for t in (*native, *exact) if t.is_floating_point()]
    if not all(bool(t.isfinite().all()) for t in floating):
        return False
    limit = limit_of((*args, *weights.values(), *native), problem.inside)
    if astray(native, exact, limit) is None:
        return True
    bits = _NOISY if limit <= AGREE else 3 - round(math.log2(limit))  # the limit is eight steps of a half type
    key = ("tried", problem.file.hash, distribution, str([tuple(out.shape) for out in exact]))
    flips = Flips(
        lambda turn: noisy(problem, args, weights, bits, turn),
        lambda: jumps(problem, distribution, key),
        exact,
        lambda: [
            limit / 16 * opened(out).abs().max() if out.is_floating_point() and out.numel() else None for out in exact
        ],
    )
    right = [flips.nearest(index, own) for index, own in enumerate(native)]
    return astray(right, exact, limit) is None and not too_many(native, right)
