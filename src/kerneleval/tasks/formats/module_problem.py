"""The judge's side of one problem at given sizes: secret inputs and weights, the native reference, the fp64 oracle.

Everything the file's code could remember between calls is thrown away: each call runs a fresh copy of the module as it
was built, so running statistics, counters and kept hidden states never leak from one call into the next.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MethodType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kerneleval.records import FAR_MEANS, Form, NotJudgedError, OutputForm, UsageError, digest, nested
from kerneleval.tasks.formats.changes import (
    BELOW,
    LAST,
    Vary,
    are_tied,
    as_trained,
    at_edges,
    change_weight,
    far_from_zero,
    has_both_signs,
    has_items,
    make_uneven,
    make_vary,
    mirrored_inwards,
    moved_biases,
    near_one_row,
    nearer_one_row,
    one_hot_rows,
    one_sided,
    turned,
    with_edges,
    with_norms,
    with_number,
    with_padding,
    with_ties,
)
from kerneleval.tasks.formats.edges import Edges, EdgeTracer
from kerneleval.tasks.formats.memory import SATURATED, Slow
from kerneleval.tasks.formats.origins import Origins
from kerneleval.tasks.formats.outcomes import Outcomes, Way
from kerneleval.tasks.formats.problem_file import ProblemFile, seeded
from kerneleval.tasks.formats.redrawn import (
    Family,
    add_up,
    are_ones,
    equal_segments,
    in_other_order,
    in_other_segments,
    in_unequal_segments,
    is_mask,
    keep_in_order,
    moved_together,
    redrawn,
    repeated,
    repeated_dims,
    says_sizes,
    with_more_marks,
)
from kerneleval.tasks.formats.soundness import is_eight_bit, opened
from kerneleval.tasks.formats.survey import build_model, call_inputs, flatten, init_arguments, outputs_of
from kerneleval.tasks.formats.traits import (
    Doubling,
    InputTraits,
    are_flags,
    doubled,
    doubling,
    is_float,
    is_inexact,
    padding_rows,
    same_bits,
    sample,
)
from kerneleval.tasks.formats.widening import WIDER, coarser, has_fast_path, in_double, widened, without_modes

_SCALES = {"large_scale": 128.0, "small_scale": -1.0 / 16.0, "negative": -8.0, "tiny_scale": -(2.0**-20)}
"""Factors of the distributions beyond the file's own. Exponentials of the large ones overflow where no maximum was
taken off; beside the squares of the tiny ones an epsilon is all that counts. Signs are turned because most problems
draw from [0, 1), where a ReLU is the identity and no activation meets its lower end; these are above -8. One factor for
a whole tensor keeps it symmetric, triangular or sparse."""

_NEGATIVE = re.compile(r"-\s*(\d[\d_]*(?:\.\d*)?(?:[eE]\+?\d+)?)(?![\w.])")
_HALF_END = re.compile(r"finfo\(\s*torch\.(?:half|float16)\s*\)\s*\.\s*min\b")
_HIDING, _BELOW_HIDING = (9_000.0, 1_000_000.0), 8.0
"""Magnitudes of negative numbers that hide what they are added to, unless scores are larger than them, and the factor
of ``large_scale`` then: a kernel with a mask of flags is right beside scores of hundreds, and another function beside
scores of 100,000."""

_LARGE = ("large_scale", "negative", "outlier")
"""Those that leave decays as they are: differences of running sums of logarithms lose the digits of the sums, which is
how chunked scans have them."""

_WAYS = 3
"""So many arguments have signs of their own where it is tried what a file takes; those beyond, of one of them."""

_TINY_HALF = 2.0**-10
"""The tiny factor in float16, whose numbers end at 6e-8."""

SIGNED = ("small_scale", "tiny_scale")
"""Those that have a positive factor where the file takes no negative numbers (roots, logarithms)."""

DISTRIBUTIONS = (
    *_SCALES,
    "outlier",
    "alike",
    "padded",
    "edges",
    "far_mean",
    "sorted",
    "skewed",
    "redrawn",
    "long_memory",
    "trained",
)
"""Distributions beyond the file's own."""

_PIECE = 1 << 24
_RANDOM = 1e-5
"""Difference of two runs, relative to the largest value, beyond which it is no rounding in another order (fp32; of half
types at least four steps)."""


_DRAWN = (
    "its outputs depend on random numbers that forward draws (dropout in train mode, noise; under a seed set there, "
    "too). A candidate would have to draw the same numbers in the same order; make the random part an input, or put "
    "the module in eval mode in Model.__init__"
)
_OUTSIDE = (
    "its outputs depend on random tensors that Model keeps outside its state_dict, so a candidate cannot be given "
    "them. Keep them with register_buffer (not persistent=False), or make them an input"
)
_KEPT = (
    "its outputs depend on the calls before: forward changes {changed}, and gives other outputs on the same inputs "
    "afterwards. A candidate is called many times, in an order that the judge chooses. Take the state as an input and "
    "return it as an output; or put the module in eval mode in Model.__init__, where that keeps its state as it is"
)
_SIZED = (
    "the sizes of its outputs depend on the values of its inputs (output {index} is {one} on one draw and {other} on "
    "another), and calls are timed on values that change while sizes stay. Return a fixed size: a mask, or padded "
    "values with their number"
)
"""Why a file is refused."""


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What two names of one tensor, such as tied weights, have in common."""
    return (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


class ModuleProblem:
    """A problem at given sizes on one device (``cpu``, ``cuda`` ...); integers of the file that ``dims`` leaves out
    stay as written. Raises UsageError: the file, its Model or its get_init_inputs() raises at these sizes; names the
    line. What ``unsigned`` and ``kept`` are, ``distributions.py`` finds out.
    """

    alike: Mapping[int, tuple[int, ...]] = {}
    """By the position of an argument, the dims along which its elements are equal, and only the first ones are read."""
    ordered: frozenset[int] = frozenset()
    """Positions of arguments whose rows are in order, where they are long enough to tell."""
    counters: frozenset[int] = frozenset()
    """Positions of plain integers that never vary and that ``redrawn`` gives others."""
    marked: frozenset[int] = frozenset()
    """Positions of integers with a mark (``traits.marks``) that ``redrawn`` puts at more places."""
    filled: frozenset[int] = frozenset()
    """Positions of offsets between which there is always something, and of integers of which no row is all marks."""
    flags: frozenset[int | str] = frozenset()
    """Positions of arguments and names of buffers that are masks: at a size of 1 they may be ones or zeros alone, and
    stay so."""
    shifted: Mapping[str | int, str | int] = {}
    """Biases that ``far_mean`` moves as a whole, because what comes behind takes that off again, and the matrix beside
    each: names of weights, or positions of arguments."""
    behind_layers: frozenset[int] = frozenset()
    """Positions of such biases, and of arguments that ``far_mean`` leaves alone: products beside such biases take
    them."""
    saturated: Mapping[int, int | None] = {}
    """Those of :attr:`gates` that are saturated at numbers whose exponential overflows (``memory.saturated``)."""
    decays = False
    """Whether a layer makes decays of its input."""
    louder: Mapping[str, tuple[float, float]] = {}
    """Factors and shifts, by name, of parameters that make small scores of large inputs, beside those inputs
    (``scores.py``)."""
    spared: Mapping[str, frozenset[int]] = {}
    """By a distribution, the positions of arguments that it leaves alone, as the file takes no others there."""
    keys: frozenset[int] = frozenset()
    """Positions of arguments that it sorts as they are given, and stably."""
    edges = Edges()
    """Where it compares or rounds its arguments as they are."""

    def __init__(
        self,
        file: ProblemFile,
        dims: Mapping[str, int],
        device: str,
        *,
        unsigned: Iterable[str] = (),
        kept: Iterable[int] | None = None,
        vary: Vary = "freely",
        vary_weights: Vary = "freely",
        bounded: bool = True,
    ) -> None:
        self.file, self.device = file, device
        self._namespace = file.execute(dims)
        self.init_args, self.init_keywords = init_arguments(file, self._namespace, 0)
        """Plain arguments of ``Model`` and ``ModelNew``, and those by name; tuples stay tuples."""
        self._model = self._build(0)
        self._traits: InputTraits | None = None
        self._form: Form | None = None
        self.inside: torch.dtype | None = None
        """The coarsest half type to which ``forward`` itself casts (``x.half()``, autocast), known once an
        :meth:`oracle` was made; None: to none. Its rounding is right, wherever the oracle has none."""
        self._examined = False
        self.written: frozenset[int] = frozenset()
        """Positions of the arguments that ``forward`` writes into. Known after the first call, as all below."""
        self.shared: frozenset[int] = frozenset()
        """Positions of the outputs that it returns in the memory of an argument."""
        self._sizes: dict[str, list[list[int]]] = {}
        """Sizes of the outputs, by those of the arguments."""
        self.output_form: OutputForm = None
        """Of what it returns (``records/nested.py``)."""
        self.changes: tuple[str, ...] = ()
        """What it changes in ``Model``, by name: nothing that outputs depend on."""
        self.unsigned = frozenset(unsigned)
        """Those of :data:`SIGNED` whose factor is positive."""
        self.kept = None if kept is None else frozenset(kept)
        """Positions of arguments that ``redrawn`` leaves alone, because the file takes no others; None: not known."""
        self.outcomes: Mapping[str, Mapping[int, Way]] = {}
        """By a distribution, how draws of ``get_inputs()``, by number, come out."""
        self.vary, self.vary_weights = vary, vary_weights
        """What the file takes of arguments, and of weights."""
        self.bounded = bounded
        """Whether the file may not take numbers that are a little larger or smaller than its own."""
        self.far = FAR_MEANS[0]
        """Mean of ``far_mean`` inputs in standard deviations."""
        self.slow: Slow | None = None
        """What ``long_memory`` changes."""
        self.gates: frozenset[int] = frozenset()
        """Positions of arguments that hold decays (``memory.py``)."""
        self.twice: Mapping[int | str, Doubling] = {}
        """How rows of arguments, by position, and of buffers, by name, hold each number twice."""
        self.sided = True
        """Whether ``negative`` gives one tensor a single sign."""
        self.related: frozenset[int] = frozenset()
        """Positions of floating arguments of which ``get_inputs()`` computes one from another (``origins.py``)."""
        self.padded: frozenset[int] = frozenset()
        """Positions of equal lengths of which each is of one item of the batch alone."""
        self.families: tuple[Family, ...] = ()
        """Arguments that never vary and say one thing in two ways, by their values (``kin.py``), or make as many
        segments as others: they stay as they are, or change together."""

    # -- inputs -------------------------------------------------------------------------------------------------------

    def inputs(self, seed: int, distribution: str = "standard") -> list[Any]:
        """Arguments of ``forward``: what ``get_inputs()`` gives under the seed (of 63 bits at most), drawn on the
        device; contiguous (how it lays them out is a trait). Tensors in tuples, lists and dicts come one by one, in the
        :attr:`form`.

        A floating or complex tensor that comes out the same under every seed is varied: each finite element by up to
        10 %, zeros staying zero so that masks stay masks, and numbers that are in order all by the same. Flags stay,
        and so do ones where the file takes flags in their place; a tensor of nothing but zeros becomes normal noise of
        scale 0.1. That is as far as the file takes it (:attr:`vary`). Integers and booleans are always left as they
        are.

        The distribution is ``standard``, or one of :data:`DISTRIBUTIONS`. ``redrawn`` is standard but for integers,
        flags and masks that are the same under every seed: there are others in their place (``redrawn.py``).
        ``sorted`` and ``skewed`` are standard but for the outcomes of what ``get_inputs()`` draws (``outcomes.py``).
        ``long_memory`` is standard but for one argument or parameter (``memory.py``). ``trained`` is about weights.
        Under all others, floating tensors with more than a few distinct values (no labels, no masks) are multiplied by
        a factor, plain floats by one between 0.8 and 0.95. ``large_scale`` may also have other outcomes
        (:attr:`outcomes`). ``negative`` also gives the numbers of each tensor one sign. ``outlier`` gives rows sizes of
        their own and elements secret signs, and makes a few large, ``alike`` brings all rows near one of them,
        ``padded`` makes some elements and rows 0, ``edges`` puts some where the file has a step, and ``far_mean`` takes
        a tensor far from 0; what elements depend on one another stays as it is there.
        Raises UsageError: get_inputs() raises, or an unknown distribution.
        """
        if distribution != "standard" and distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"problem files offer no distribution {distribution!r}; known are standard, {', '.join(DISTRIBUTIONS)}"
            )
        traits = self.traits
        args = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in self._drawn(seed, distribution)]
        if distribution == "redrawn":
            args = self._redrawn(args, seed)
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "inputs"))
        for index in sorted(traits.frozen - self.kin):
            if index in traits.rigid and not are_flags(args[index]):
                args[index] = args[index] if self.vary == "never" else turned(args[index], generator)
                continue
            if index in self.flags and not is_mask(args[index]):
                continue
            if self.kept is not None and (are_flags(args[index]) or self.becomes_flags(index, args[index])):
                continue
            if (is_inexact(args[index]) or is_eight_bit(args[index])) and self.vary != "never":
                whole = index in traits.records
                varied = make_vary(args[index], generator, inwards=self.vary == "inwards", rows=whole)
                args[index] = with_norms(args[index], varied) if index in traits.normed else varied
        if distribution == "long_memory" and self.slow is not None and isinstance(self.slow.what, int):
            args[self.slow.what] = self.slow.applied(args[self.slow.what])
        if distribution not in ("standard", "trained", "redrawn", "sorted", "skewed", "long_memory"):
            self._distort(args, distribution, generator)
            if distribution == "negative" and self.sided:
                self._give_one_sign(args, generator)
        if distribution == "far_mean":
            args = list(moved_biases(dict(enumerate(args)), self.shifted, FAR_MEANS[-1]).values())
        args = [repeated(arg, self.alike[i]) if i in self.alike else arg for i, arg in enumerate(args)]
        return [doubled(arg, self.twice[i]) if i in self.twice else arg for i, arg in enumerate(args)]

    def _redrawn(self, args: Sequence[Any], seed: int) -> list[Any]:
        """Arguments with others in place of integers, flags and masks that never vary, if the file takes them."""
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "redrawn"))
        owns = {index: args[index] for index in sorted(self.traits.frozen)}
        others = {index: own.clone() for index, own in owns.items()}
        free = self.redrawable - (self.kept or frozenset())
        for index in sorted(free - owns.keys()):
            mark, filled = self.traits.marks[index], index in self.filled
            others[index] = with_more_marks(args[index], mark, generator, filled)
        for index in sorted(free & owns.keys() - self.kin):
            if index not in self.padded and says_sizes(owns[index], args):
                continue
            other = self._other(index, args, generator)
            if other is not None:
                others[index] = other
        alone = owns.keys() - self.kin
        keep_in_order({i: owns[i] for i in sorted(alone)}, {i: others[i] for i in alone}, generator)
        rest = [a for i, a in enumerate(args) if i not in self.kin]
        beside = [*rest, *tree_leaves((self.init_args, self.init_keywords))]
        for family in self.families:
            parts, members = [{i: owns[i] for i in sorted(part)} for part in family], frozenset().union(*family)
            if members <= free:
                others |= in_other_segments(parts, beside, generator, members <= self.filled) or (
                    moved_together(parts[0], generator) if len(parts) == 1 else {}
                )
        moved = {index: args[index] + (-1 if args[index] > 1 else 1) for index in self.counters}
        return [(others | moved).get(index, arg) for index, arg in enumerate(args)]

    @property
    def redrawable(self) -> frozenset[int]:
        """Positions of the arguments that ``redrawn`` may change: those that never vary, and those with marks."""
        return self.traits.frozen | (self.marked & self.traits.marks.keys())

    @property
    def kin(self) -> frozenset[int]:
        """Positions of the arguments of all :attr:`families`."""
        return frozenset(index for family in self.families for part in family for index in part)

    def _other(self, index: int, args: Sequence[Any], generator: torch.Generator) -> torch.Tensor | None:
        """Another argument in place of one that never varies."""
        own: torch.Tensor = args[index]
        if end := self.segments_end(index, args):
            return in_unequal_segments(own, end, generator, index in self.filled)
        return in_other_order(own, generator) if add_up(own, args) else redrawn(own, generator)

    def segments_end(self, index: int, args: Sequence[Any]) -> int:
        """Where an argument holds offsets of equal segments that may become others: their end. Else 0."""
        return equal_segments(args[index], [*args, *tree_leaves((self.init_args, self.init_keywords))])

    def becomes_flags(self, index: int, tensor: torch.Tensor) -> bool:
        """Whether it holds ones alone, in the place of which ``redrawn`` gives flags."""
        assert self.kept is not None
        return index not in self.kept and are_ones(tensor)

    def _distort(self, args: list[Any], distribution: str, generator: torch.Generator) -> None:
        """Give floating arguments the distribution, in their list."""
        traits = self.traits
        ends = itertools.cycle(torch.randperm(LAST, generator=generator, device=self.device).tolist())
        fixed = traits.labels | traits.normed | traits.rigid | self._spared(distribution)
        for index, value in enumerate(args):
            plain = not isinstance(value, torch.Tensor)
            if index in self.kin | self.related or (plain and distribution == "edges"):  # it may be a threshold
                continue
            if plain:
                # by a factor in [0.8, 0.95): the same in all calls, and a probability stays one
                factor = 0.8 + 0.15 * int(digest(self.file.hash, f"argument {index}")[:8], 16) / 2**32
                args[index] = tree_map_only(float, factor.__mul__, value)
            elif is_float(value) and index in traits.normed and distribution == "padded":
                args[index] = one_hot_rows(value, generator)
            elif is_float(value) and index not in fixed:
                if distribution in _LARGE and index in self.gates:
                    large = distribution == "large_scale" and index in self.saturated
                    args[index] = with_number(value, SATURATED, self.saturated[index], generator) if large else value
                    continue
                if distribution in _SCALES:
                    factor = self._factor(distribution, value.dtype)
                    args[index] = value * (abs(factor) if index in traits.signed else factor)
                elif index in traits.structured | traits.records | traits.ordered:
                    near = index in traits.records and distribution in ("alike", "padded")
                    args[index] = nearer_one_row(value, generator) if near else value
                elif distribution == "padded":
                    args[index] = value if index in traits.positive else with_padding(value, generator)
                elif distribution == "edges":
                    args[index] = self._on_edges(index, args, generator)
                elif distribution == "alike":
                    args[index] = near_one_row(value, generator)
                else:
                    far = distribution == "far_mean"
                    made = far_from_zero(value, self.far) if far else make_uneven(value, next(ends), generator)
                    args[index] = made.abs() * value.sign() if index in traits.positive else made

    def _give_one_sign(self, args: list[Any], generator: torch.Generator) -> None:
        """Give one argument with numbers of both signs a single one, as a whole or by items, and vectors beside it, as
        biases are, the lower one. Scores of two such arguments would be so far from 0 that log-sums lose their digits.
        """
        free = [index for index in self._signless(args) if has_both_signs(args[index])]
        wide = [index for index in free if has_items(args[index])] or free
        place = torch.randint(max(1, len(wide)), (), generator=generator, device=self.device)
        for index in free:
            if index == wide[int(place)] or args[index].dim() < 2:
                below = BELOW if index in wide else 1.0
                args[index] = one_sided(args[index], generator, items=has_items(args[index]), below=below)

    def _spared(self, distribution: str) -> frozenset[int]:
        spared = self.spared.get(distribution, frozenset())
        return spared | self.behind_layers if distribution == "far_mean" else spared

    def _on_edges(self, index: int, args: Sequence[Any], generator: torch.Generator) -> torch.Tensor:
        """An argument with numbers at which it meets a step."""
        value: torch.Tensor = args[index]
        if index in self.edges.numbers:
            value = with_edges(value, *self.edges.numbers[index], generator)
        if index in self.edges.ties:
            other = self.edges.ties[index]
            own = args[other] if isinstance(other, int) else self._model.state_dict()[other].detach()
            value = with_ties(value, own, generator)
        return value

    def held(self, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> dict[int, torch.Tensor]:
        """Where elements lie at a step, or are equal to what they are compared with, by the ``id`` of the tensor: every
        kernel sees the same numbers there, so none may fall to the other side.
        """
        found: dict[int, torch.Tensor] = {}
        for index, (numbers, beside) in self.edges.numbers.items():
            if is_float(args[index]):
                found[id(args[index])] = at_edges(args[index], numbers, beside)
        for index, other in self.edges.ties.items():
            own, theirs = args[index], args[other] if isinstance(other, int) else weights[other]
            if is_float(own) and is_float(theirs) and bool((tied := are_tied(own, theirs)).any()):
                found[id(own)] = tied | found.get(id(own), torch.zeros_like(tied))
                found[id(theirs)] = tied if tied.shape == theirs.shape else torch.ones_like(theirs, dtype=torch.bool)
        return found

    def of_one_sign(self, seed: int) -> Iterator[list[Any]]:
        """Arguments of ``negative``, while none has one sign there (:attr:`sided`): all have one, in every way."""
        args = self.inputs(seed, "negative")
        free = [index for index in self._signless(args) if has_both_signs(args[index])]
        for signs in itertools.product((-1, 1), repeat=min(len(free), _WAYS)):
            turns = dict(zip(free, itertools.cycle(signs), strict=False))
            yield [turns[i] * arg.abs() if i in turns else arg for i, arg in enumerate(args)]

    def _signless(self, args: Sequence[Any]) -> list[int]:
        """Positions of the tensors of which all numbers may have one sign, as under ``negative``."""
        traits = self.traits
        fixed = traits.labels | traits.normed | traits.rigid | traits.signed | traits.positive | self.kin | self.related
        fixed |= traits.structured | traits.records | traits.ordered | self.gates | self._spared("negative")
        return [i for i, value in enumerate(args) if is_float(value) and i not in fixed]

    def _factor(self, distribution: str, dtype: torch.dtype) -> float:
        factor = _SCALES[distribution]
        if distribution == "large_scale" and hides(self.file.text):
            factor = _BELOW_HIDING
        if distribution == "tiny_scale" and dtype == torch.float16:
            factor = -_TINY_HALF
        return abs(factor) if distribution in self.unsigned else factor

    @property
    def traits(self) -> InputTraits:
        """Which inputs never vary, hold labels, are structured or not row-major. Draws once."""
        if self._traits is None:
            other = sample(self._draw(1))
            found = InputTraits.of(self._draw(0), other)
            self._traits = replace(found, ordered=found.ordered | self.ordered)
        return self._traits

    @property
    def form(self) -> Form | None:
        """How ``forward`` takes the arguments, which are given one by one (``records/nested.py``)."""
        assert self.traits is not None  # they draw
        return self._form

    def _drawn(self, seed: int, distribution: str) -> list[Any]:
        """What ``get_inputs()`` gives, of the outcomes of the distribution. Raises NotJudgedError: it raises on these,
        or its sizes depend on them.
        """
        ways = self.outcomes.get(distribution, {})
        if distribution != "sorted" and not ways:
            return self._draw(seed)
        try:
            return self.outcome(seed, lambda number: "sorted" if distribution == "sorted" else ways.get(number))[0]
        except UsageError as error:
            raise NotJudgedError(str(error)) from error

    def outcome(self, seed: int, way: Callable[[int], Way | None]) -> tuple[list[Any], int]:
        """What ``get_inputs()`` gives where its draws, by number, come out in another way, and how many there are.
        Raises UsageError: it raises then, or gives other sizes.
        """
        with Outcomes(way, _subseed(seed, "outcomes")) as outcomes:
            values = self._draw(seed)
        if [_sizes(v) for v in values] != self._argument_sizes:
            raise UsageError(f"{self.file.path}: the sizes that get_inputs() gives depend on what it draws")
        return values, outcomes.drawn

    @functools.cached_property
    def _argument_sizes(self) -> list[Any]:
        return [_sizes(v) for v in self._draw(0)]

    def _draw(self, seed: int) -> list[Any]:
        values, self._form = call_inputs(self.file, self._namespace, self.device, seed)
        return values

    # -- weights ------------------------------------------------------------------------------------------------------

    def weights(self, seed: int, distribution: str = "standard") -> dict[str, torch.Tensor]:
        """A state_dict on the device, contiguous and detached; aliased entries stay equal.

        Seed 0: as initialised. Else every floating parameter is changed and keeps its scale: spread ones become
        ``mean + 0.8 (w - mean) + 0.6 std n`` with n from N(0, 1), which leaves mean and variance; constant ones are
        multiplied by a factor within 20 % of 1, zeros become noise of scale 0.1. Buffers are multiplied by such
        factors, element by element, so that variances stay positive and masks stay masks: rows that are in order by one
        together, flags by none; zeros get noise; numbers that a row holds twice stay equal. Of complex tensors that
        goes for the parts. Integers, and so ``num_batches_tracked``, stay. All that is as far as the file takes it
        (:attr:`vary_weights`). Rows of padding stay zero (:attr:`padding`).

        Under ``edges``, what arguments are compared with stays as initialised.
        Under ``trained``, parameters are further from what they were made as: constant ones get secret signs and sizes,
        from an eighth to eight times theirs (faint ones about 1), zeros noise of scale 1, others twice their size.
        Where a layer makes decays, constant ones are between half and twice theirs, and spread ones stay.
        """
        state = {name: tensor.detach() for name, tensor in self._model.state_dict().items()}
        if seed == 0 or self.vary_weights == "never":
            same = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
            return self._finished(same, distribution)
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "weights"))
        done: dict[tuple[Any, ...], torch.Tensor] = {}
        changed = {}
        compared = set(self.edges.ties.values()) if distribution == "edges" else set()
        kept = {_place(tensor) for name, tensor in state.items() if name in compared}
        for name, tensor in state.items():
            key = _place(tensor)
            if key not in done:  # tied weights are one tensor under two names
                flags = name in self.flags and not is_mask(tensor)
                done[key] = tensor if flags else change_weight(name, tensor, name in self.parameters, generator)
                if self.vary_weights == "inwards":
                    done[key] = mirrored_inwards(tensor, done[key])
                done[key] = doubled(done[key], self.twice.get(name))
                if distribution == "trained" and name in self.parameters:
                    done[key] = as_trained(tensor, done[key], generator, mild=self.decays)
            changed[name] = (tensor if key in kept else done[key]).clone(memory_format=torch.contiguous_format)
        return self._finished(changed, distribution)

    def tied(self, name: str | int) -> list[str | int]:
        """All names of a weight that are one tensor, and it alone of an argument, by its position."""
        state = self._model.state_dict()
        return [name] if isinstance(name, int) else [one for one in state if _place(state[one]) == _place(state[name])]

    def _finished(self, weights: dict[str, torch.Tensor], distribution: str) -> dict[str, torch.Tensor]:
        """The weights, in their own dict, with long memory, large scores and rows of padding."""
        if distribution == "long_memory" and self.slow is not None and isinstance(self.slow.what, str):
            weights[self.slow.what] = self.slow.applied(weights[self.slow.what])
        if distribution == "far_mean":
            weights = moved_biases(weights, self.shifted, FAR_MEANS[-1])
        if distribution == "large_scale":
            weights |= {name: weights[name] * factor + shift for name, (factor, shift) in self.louder.items()}
        for name, rows in self.padding.items():
            weights[name][rows] = 0
        return weights

    def find_related(self) -> frozenset[int]:
        """What :attr:`related` is at these sizes."""
        origins = Origins()
        with origins.leaving, origins:
            values = self._draw(0)
        return origins.related(values, self._draw(1))

    def find_repeated(self) -> dict[int, tuple[int, ...]]:
        """By the position of an argument, the dims along which the file gives equal elements at these sizes."""
        draws = enumerate(zip(self._draw(0), self._draw(1), strict=True))
        return {index: dims for index, both in draws if (dims := repeated_dims(*both))}

    def find_shared(self, items: int, place: int) -> dict[int, tuple[int, ...]]:
        """What :attr:`alike` is in place of a batch of one: whose items are equal, beside those of another argument."""
        sizes = enumerate(self._argument_sizes)
        dims = {i: d for i, size in sizes if size for d in (0, place) if size[d : d + 1] == (items,)}
        repeated = self.find_repeated()
        found: dict[int, tuple[int, ...]] = {i: (dim,) for i, dim in dims.items() if dim in repeated.get(i, ())}
        return found if dims.keys() - found.keys() else {}

    def find_edges(self) -> Edges:
        """What :attr:`edges` is. Raises UsageError: the file raises in fp64."""
        args, weights = self.inputs(1), self.weights(0)
        tracer = EdgeTracer(args, weights, self.inside)
        with tracer:
            self.oracle(args, weights)
        return tracer.found()

    def find_twice(self) -> dict[int | str, Doubling]:
        """What :attr:`twice` is at these sizes."""
        buffers = {name: w for name, w in self._model.state_dict().items() if name not in self.parameters}
        drawn, other = (dict(enumerate(self._draw(seed))) for seed in (0, 1))
        tables = {i: value for i, value in drawn.items() if isinstance(value, torch.Tensor) and not are_flags(value)}
        found = {key: how for key, tensor in (tables | buffers).items() if (how := doubling(tensor)) is not None}
        return {key: how for key, how in found.items() if key not in other or doubling(other[key]) == how}

    @functools.cached_property
    def padding(self) -> dict[str, torch.Tensor]:
        """By the name of a parameter, which of its rows stand for padding: few in a table that are made zero, and those
        of ``nn.Embedding`` with a ``padding_idx``. Training leaves them zero, and candidates may rely on it.
        """
        indices = {
            id(module.weight): module.padding_idx
            for module in self._model.modules()
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.padding_idx is not None
        }
        found = {}
        for name, weight in self._model.named_parameters(remove_duplicate=False):
            index = indices.get(id(weight))
            rows = padding_rows(weight.detach())
            if index is not None and not bool(weight[index].any()):
                rows = torch.arange(len(weight), device=weight.device) == index
            if rows is not None:
                found[name] = rows
        return found

    @functools.cached_property
    def parameters(self) -> frozenset[str]:
        """Names of the weights that are parameters: what they hold means nothing, as it may in buffers (masks)."""
        return frozenset(name for name, _ in self._model.named_parameters(remove_duplicate=False))

    # -- the model ----------------------------------------------------------------------------------------------------

    def reference(self, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs of ``Model`` with these weights, in its own dtypes, in train or eval mode as it was built. Nested
        tuples, lists and dicts are flattened in order (:attr:`output_form`), numbers become tensors of one element, and
        what is neither is dropped. The arguments stay as they are, and no output shares memory with them.

        Raises UsageError: forward raises, or returns no tensor. NotJudgedError: what comes out is not decided by the
        arguments and weights (random numbers, state of earlier calls), or has sizes that depend on values.
        """
        outputs = self._run(self._model, args, weights) if self._examined else self._examine(args, weights)
        self._check_sizes(args, outputs)
        return outputs

    def _examine(self, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The outputs, of a Model that was seen to be judgeable: once for each problem."""
        before, draws = _generator_state(self.device), _Draws()
        with draws:
            outputs = self._run(self._model, args, weights)
        drew = draws.met or not torch.equal(before, _generator_state(self.device))
        other = None
        if _own_values(self._model) or any(module._non_persistent_buffers_set for module in self._model.modules()):
            other = self._build(1)
        if drew or other is not None:
            with seeded(_subseed(1, "again"), self.device, place=False), _Draws(again=True):
                again = self._run(other or self._model, args, weights)
            if not _alike(outputs, again):
                raise self._refused("random", _DRAWN if drew else _OUTSIDE)
        self._check_state(args, weights, outputs)
        self._examined = True
        self._check_sizes(args, outputs)
        if draws.sized:
            for seed in (1, 2, 3):  # public: whether a file is refused says nothing of a candidate
                others = self.inputs(seed)
                self._check_sizes(others, self._run(self._model, others, weights))
        return outputs

    def _check_state(
        self, args: Sequence[Any], weights: Mapping[str, torch.Tensor], outputs: Sequence[torch.Tensor]
    ) -> None:
        """Raises NotJudgedError: one module gives other outputs after a call on other inputs."""
        module = self._fresh(self._model, weights)
        before = _marks(module)
        self._call(module, self.inputs(_subseed(1, "state")))
        other = {name for name, value in module.state_dict().items() if not _equal(value, weights.get(name))}
        self.changes = tuple(
            name for name, mark in _marks(module).items() if name in other or not _same_mark(before.get(name), mark)
        )
        try:
            alike = _alike(outputs, self._call(module, args))
        except UsageError:  # a full cache
            alike = False
        if not alike:
            names = ", ".join(self.changes[:4]) + (" and others" if len(self.changes) > 4 else "")
            changed = f"{names} of Model" if names else "something outside of Model"
            raise self._refused("state", _KEPT.format(changed=changed))

    def _check_sizes(self, args: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
        """Raises NotJudgedError: these outputs have other sizes than earlier ones of arguments of the same sizes."""
        form = repr([tuple(a.shape) if isinstance(a, torch.Tensor) else a for a in args])
        shapes = [list(output.shape) for output in outputs]
        known = self._sizes.setdefault(form, shapes)
        for index, (one, other) in enumerate(zip(known, shapes, strict=False)):
            if one != other:
                raise self._refused("sizes", _SIZED.format(index=index, one=one, other=other))

    def oracle(self, args: Sequence[Any], weights: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The same outputs computed in fp64; integer outputs stay integer. Floating and complex arguments, weights and
        buffers are converted, and so is every other tensor when ``forward`` uses it; the default dtype is fp64
        meanwhile. Casts to fp32 and half types that the file writes out (``x.float()``, ``dtype=torch.float16``) go to
        fp64 as well; :attr:`inside` tells of the latter.

        Raises UsageError: forward raises in fp64, or yields a floating output that is not fp64; the message names the
        line.
        """
        wide_args = [widened(v) if isinstance(v, torch.Tensor) else v for v in args]
        outputs = self._run(self._model, wide_args, weights, double=True)  # loading the weights widens them
        if self._examined:
            self._check_sizes(args, outputs)
        for index, output in enumerate(outputs):
            if output.dtype in WIDER:
                raise UsageError(
                    f"{self.file.path}: output {index} is {output.dtype} though Model was run in fp64, so there is no "
                    "oracle to judge it by. Forward fixes that type by other means than .to(), .float(), .half() or "
                    "dtype= (through NumPy, or views of bits); leave that to the candidate"
                )
        return outputs

    def _run(
        self,
        model: torch.nn.Module,
        args: Sequence[Any],
        weights: Mapping[str, torch.Tensor],
        *,
        double: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        return self._call(self._fresh(model, weights, double=double), args, double=double)

    def _fresh(
        self, model: torch.nn.Module, weights: Mapping[str, torch.Tensor], *, double: bool = False
    ) -> torch.nn.Module:
        """A module that was never called: a copy of the problem's own."""
        with self.file.running("Model.forward" + (" in fp64" if double else "")), torch.no_grad():
            fresh = model
            if model is self._model:
                fresh = self._build(0) if _holds_functions(model) else _copied(model)
            if double:
                fresh = fresh.double()
                for part in fresh.modules():
                    if has_fast_path(part):
                        part.forward = without_modes(part.forward)
            fresh.load_state_dict(weights, strict=True)
        return fresh

    def _call(self, module: torch.nn.Module, args: Sequence[Any], *, double: bool = False) -> tuple[torch.Tensor, ...]:
        with self.file.running("Model.forward" + (" in fp64" if double else "")), torch.no_grad():
            given = list(args)
            if not self._examined or self.written:
                given = [v.clone() if isinstance(v, torch.Tensor) else v for v in given]
            versions = [v._version if isinstance(v, torch.Tensor) else 0 for v in given]
            with in_double() if double else contextlib.nullcontext() as widening:
                result = module(*nested(self.form, given))
            if widening is not None:
                self.inside = coarser(self.inside, widening.met)
            outputs, self.output_form = outputs_of(result, self.device, torch.float64 if double else torch.float32)
        if not outputs:
            raise UsageError(
                f"{self.file.path}: Model.forward returns an object of type {type(result).__name__}, in which no "
                "tensor is found; return a tensor, or tensors in a tuple, a list or a dict"
            )
        versioned = enumerate(zip(given, versions, strict=True))
        self.written |= {i for i, (v, was) in versioned if isinstance(v, torch.Tensor) and v._version != was}
        if not self._examined:  # writes through ``.data`` count no version
            pairs = enumerate(zip(given, args, strict=True))
            self.written |= {i for i, (v, was) in pairs if isinstance(v, torch.Tensor) and not same_bits(v, was)}
        inputs = {v.untyped_storage().data_ptr() for v in given if isinstance(v, torch.Tensor)}
        separate, taken = [], set(inputs)
        for index, output in enumerate(outputs):
            place = output.untyped_storage().data_ptr()
            if place in inputs and not double:
                self.shared |= {index}
            separate.append(output.detach().clone() if place in taken else output.detach())
            taken.add(place)
        return tuple(separate)

    def _build(self, seed: int) -> torch.nn.Module:
        return build_model(self.file, self._namespace, (self.init_args, self.init_keywords), self.device, seed)

    def _refused(self, reason: str, why: str) -> NotJudgedError:
        return NotJudgedError(f"{self.file.path} cannot be judged: {why}", reason=reason)


def hides(text: str, least: float = _HIDING[0]) -> bool:
    """Whether a file has a negative number from ``-least`` on that hides scores, or names the end of float16."""
    numbers = (float(found.replace("_", "")) for found in _NEGATIVE.findall(text))
    return any(least <= number <= _HIDING[1] for number in numbers) or bool(_HALF_END.search(text))


def _copied(model: torch.nn.Module) -> torch.nn.Module:
    """A deep copy. Empty dicts, of which each module has a dozen for hooks, are made here: that halves the time."""
    own = (value for module in model.modules() for value in vars(module).values())
    empty: dict[int, Any] = {id(d): type(d)() for d in own if type(d) in (dict, collections.OrderedDict) and not d}
    return copy.deepcopy(model, empty)


def _sizes(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _subseed(seed: int, purpose: str) -> int:
    """A 63-bit seed of its own for each purpose, so that no two streams of one seed are alike."""
    return int(digest(str(seed), purpose)[:16], 16) >> 1


# -- Randomness and precision -----------------------------------------------------------------------------------------


class _Draws(TorchDispatchMode):
    """Notes whether an operator draws random numbers (``met``), or one gives sizes that depend on values (``sized``).
    ``again``: each such operator runs twice and the second result
    counts, so that numbers differ from those of another run whatever seed the generator, or ``forward``, was given.
    """

    def __init__(self, *, again: bool = False) -> None:
        TorchDispatchMode.__init__(self)
        self.met = self.sized = False
        self._again = again

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func.name()
        if torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags:
            self.sized = True
        if torch.Tag.nondeterministic_seeded in func.tags and "rrelu" not in name:  # that changes its input in place
            # fused attention and recurrences draw only under dropout, which the generator's state shows
            self.met = self.met or not ("attention" in name or "rnn" in name or "lstm" in name or "gru" in name)
            if self._again:
                out = func(*args, **(kwargs or {}))
        return out


def _generator_state(device: str) -> torch.Tensor:
    state = torch.random.get_rng_state()
    kind = torch.device(device).type
    if kind != "cpu":
        state = torch.cat([state, getattr(torch, kind).get_rng_state(torch.device(device)).cpu()])
    return state


def _alike(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether two runs differ by no more than rounding in another order."""
    for a, b in zip(first, second, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        # Piece by piece, because the outputs may fill half of the memory.
        for x, y in zip(opened(a).reshape(-1).split(_PIECE), opened(b).reshape(-1).split(_PIECE), strict=True):
            if not a.is_floating_point():
                if not torch.equal(x, y):
                    return False
                continue
            finite = x.isfinite()
            if not torch.equal(finite, y.isfinite()):
                return False
            size = x[finite].abs()
            limit = max(_RANDOM, 4 * torch.finfo(a.dtype).eps if a.itemsize < 4 else 0.0)
            if size.numel() and bool((x - y)[finite].abs().max() > limit * size.max()):
                return False
    return True


def _holds_functions(model: torch.nn.Module) -> bool:
    """Whether a module holds functions that hold modules in turn: a copy's would still call the original's."""
    held = [value for module in model.modules() for value in vars(module).values()]
    return any(isinstance(v, (MethodType, functools.partial)) or getattr(v, "__closure__", None) for v in held)


_OF_TORCH = ("_parameters", "_buffers", "_modules")


def _own_values(model: torch.nn.Module) -> list[tuple[torch.nn.Module, str, Any]]:
    """(module, attribute, value) of what holds tensors in modules beside parameters and buffers: in no state_dict."""
    return [
        (module, name, value)
        for module in model.modules()
        for name, value in vars(module).items()
        if name not in _OF_TORCH and flatten(value)
    ]


def _equal(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.dtype == other.dtype and torch.equal(one, other)


def _marks(model: torch.nn.Module) -> dict[str, tuple[Any, int]]:
    """By name, what a module and those in it hold: the value, and of tensors the version, which every write raises."""
    found = {}
    for prefix, module in model.named_modules():
        for name, value in {**vars(module), **module._parameters, **module._buffers}.items():
            if name not in _OF_TORCH and (value is None or isinstance(value, (bool, int, float, str, torch.Tensor))):
                version = value._version if isinstance(value, torch.Tensor) else 0
                found[f"{prefix}.{name}" if prefix else name] = value, version
    return found


def _same_mark(one: tuple[Any, int] | None, other: tuple[Any, int]) -> bool:
    """Whether a value was neither replaced nor written."""
    if one is None or isinstance(one[0], torch.Tensor) or isinstance(other[0], torch.Tensor):
        return one is not None and one[0] is other[0] and one[1] == other[1]
    return bool(one[0] == other[0])
