"""The judge's side of one problem at given sizes: secret inputs and weights, the native reference, the fp64 oracle.

Everything the file's code could remember between calls is thrown away: each call runs a fresh copy of the module as it
was built, so running statistics, counters and kept hidden states never leak from one call into the next.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from kerneleval.records import FAR_DEVIATION, FAR_MEANS, Form, NotJudgedError, OutputForm, UsageError, digest, nested
from kerneleval.tasks.formats.memory import Slow
from kerneleval.tasks.formats.outcomes import Outcomes, Way
from kerneleval.tasks.formats.problem_file import ProblemFile, own_settings, seeded
from kerneleval.tasks.formats.redrawn import are_ones, redrawn
from kerneleval.tasks.formats.soundness import is_eight_bit, opened
from kerneleval.tasks.formats.survey import build_model, call_inputs, flatten, init_arguments, outputs_of

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

_TINY_HALF = 2.0**-10
"""The tiny factor in float16, whose numbers end at 6e-8."""

SIGNED = ("small_scale", "tiny_scale")
"""Those that have a positive factor where the file takes no negative numbers (roots, logarithms)."""

Vary = Literal["freely", "inwards", "never"]
"""How far arguments that a file gives alike under every seed, or weights, are varied: as :meth:`ModuleProblem.inputs`
and :meth:`ModuleProblem.weights` say; within the range of their own numbers (:func:`_inwards`); or not at all."""

DISTRIBUTIONS = (
    *_SCALES,
    "outlier",
    "alike",
    "padded",
    "far_mean",
    "sorted",
    "skewed",
    "redrawn",
    "long_memory",
    "trained",
)
"""Distributions beyond the file's own."""

_ALIKE = 1.0 / 16.0
"""Under ``alike``, what is left of the rows' distance from one of them."""

_PADDED_ROWS, _PADDED, _ENDS = 4, 8, 16
"""Under ``padded``, one row in so many is zero, one is from a place on, one element in so many is elsewhere, and where
all numbers are within [0, 1) one in so many is 1."""

_OUTLIERS, _OUTLIER = 1e-3, 10.0
"""Under ``outlier``, this share of the elements is this many times as large."""

_LAST, _HEAVY = 8, 0.25
"""There, one of the last eight elements is as large as a quarter of the norm of all: a kernel that leaves out the end
of a long sum has left out much of it. Each argument has it at another place: at one place they would cancel in every
difference."""

_FAINT = 0.01
"""A constant parameter below this size keeps a branch out of a network that has learned nothing yet (layer scale)."""

_PIECE = 1 << 24
_SPREAD = 0.2
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


class ModuleProblem:
    """A problem at given sizes on one device (``cpu``, ``cuda`` ...); integers of the file that ``dims`` leaves out
    stay as written. Raises UsageError: the file, its Model or its get_init_inputs() raises at these sizes; names the
    line. What ``unsigned`` and ``kept`` are, ``sweep.safe_distributions`` finds out.
    """

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
        self.skewed: Mapping[int, Way] = {}
        """How draws of ``get_inputs()``, by number, come out under ``skewed``."""
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
        a factor, plain floats by one between 0.8 and 0.95. ``outlier`` gives rows sizes of their own and elements
        secret signs, and makes a few large, ``alike`` brings all rows near one of them, ``padded`` makes some elements
        and rows 0, and ``far_mean`` takes a tensor far from 0; what elements depend on one another stays as it is
        there.
        Raises UsageError: get_inputs() raises, or an unknown distribution.
        """
        if distribution != "standard" and distribution not in DISTRIBUTIONS:
            raise UsageError(
                f"problem files offer no distribution {distribution!r}; known are standard, {', '.join(DISTRIBUTIONS)}"
            )
        traits = self.traits
        args = [v.contiguous() if isinstance(v, torch.Tensor) else v for v in self._drawn(seed, distribution)]
        if distribution == "redrawn":
            generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "redrawn"))
            for index in sorted(traits.frozen - (self.kept or frozenset())):
                other = redrawn(args[index], generator)
                args[index] = args[index] if other is None else other
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "inputs"))
        for index in sorted(traits.frozen):
            if index in traits.rigid and not are_flags(args[index]):
                args[index] = args[index] if self.vary == "never" else _turned(args[index], generator)
                continue
            if self.kept is not None and (are_flags(args[index]) or self._becomes_flags(index, args[index])):
                continue
            if (is_inexact(args[index]) or is_eight_bit(args[index])) and self.vary != "never":
                whole = index in traits.records
                varied = _varied(args[index], generator, inwards=self.vary == "inwards", rows=whole)
                args[index] = _normed_again(args[index], varied) if index in traits.normed else varied
        if distribution == "long_memory" and self.slow is not None and isinstance(self.slow.what, int):
            args[self.slow.what] = self.slow.applied(args[self.slow.what])
        if distribution not in ("standard", "trained", "redrawn", "sorted", "skewed", "long_memory"):
            self._distort(args, distribution, generator)
        return args

    def _becomes_flags(self, index: int, tensor: torch.Tensor) -> bool:
        """Whether it holds ones alone, in the place of which ``redrawn`` gives flags."""
        assert self.kept is not None
        return index not in self.kept and are_ones(tensor)

    def _distort(self, args: list[Any], distribution: str, generator: torch.Generator) -> None:
        """Give floating arguments the distribution, in their list."""
        traits = self.traits
        ends = itertools.cycle(torch.randperm(_LAST, generator=generator, device=self.device).tolist())
        for index, value in enumerate(args):
            if type(value) is float:
                # by a factor in [0.8, 0.95): the same in all calls, and a probability stays one
                part = int(digest(self.file.hash, f"argument {index}")[:8], 16) / 2**32
                args[index] = value * (0.8 + 0.15 * part)
            elif is_float(value) and index in traits.normed and distribution == "padded":
                args[index] = _certain(value, generator)
            elif is_float(value) and index not in traits.labels | traits.normed | traits.rigid:
                if distribution in _LARGE and index in self.gates:
                    continue
                if distribution in _SCALES:
                    factor = self._factor(distribution, value.dtype)
                    args[index] = value * (abs(factor) if index in traits.signed else factor)
                elif index in traits.structured | traits.records | traits.ordered:
                    continue
                elif distribution == "far_mean":
                    far = _far_from_zero(value, self.far)
                    args[index] = far.abs() * value.sign() if index in traits.positive else far
                elif distribution == "padded":
                    args[index] = value if index in traits.positive else _padded(value, generator)
                elif distribution == "outlier":
                    uneven = _uneven(value, next(ends), generator)
                    args[index] = uneven.abs() * value.sign() if index in traits.positive else uneven
                else:
                    args[index] = _near_one_row(value, generator)

    def _factor(self, distribution: str, dtype: torch.dtype) -> float:
        factor = _SCALES[distribution]
        if distribution == "large_scale" and _hides(self.file.text):
            factor = _BELOW_HIDING
        if distribution == "tiny_scale" and dtype == torch.float16:
            factor = -_TINY_HALF
        return abs(factor) if distribution in self.unsigned else factor

    @property
    def traits(self) -> InputTraits:
        """Which inputs never vary, hold labels, are structured or not row-major. Draws once."""
        if self._traits is None:
            other = sample(self._draw(1))
            self._traits = InputTraits.of(self._draw(0), other)
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
        if distribution not in ("sorted", "skewed"):
            return self._draw(seed)
        try:
            return self.outcome(seed, self.skewed.get if distribution == "skewed" else lambda number: "sorted")[0]
        except UsageError as error:
            raise NotJudgedError(str(error)) from error

    def outcome(self, seed: int, way: Callable[[int], Way | None]) -> tuple[list[Any], int]:
        """What ``get_inputs()`` gives where its draws, by number, come out in another way, and how many there are.
        Raises UsageError: it raises then, or gives other sizes.
        """
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "outcomes"))
        with Outcomes(way, generator) as outcomes:
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
        factors, element by element, so that variances stay positive and masks stay masks: rows that are in order by
        one together, flags by none; zeros get noise. Of complex tensors that goes for the parts. Integers, and so
        ``num_batches_tracked``, stay. All that is as far as the file takes it (:attr:`vary_weights`).

        Under ``trained``, parameters are further from what they were made as: constant ones get secret signs and sizes,
        from an eighth to eight times theirs (faint ones about 1), zeros noise of scale 1, others twice their size.
        """
        state = {name: tensor.detach() for name, tensor in self._model.state_dict().items()}
        if seed == 0 or self.vary_weights == "never":
            same = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in state.items()}
            return self._slowed(same, distribution)
        generator = torch.Generator(device=self.device).manual_seed(_subseed(seed, "weights"))
        done: dict[tuple[Any, ...], torch.Tensor] = {}
        changed = {}
        for name, tensor in state.items():
            key = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
            if key not in done:  # tied weights are one tensor under two names
                done[key] = _changed(name, tensor, name in self.parameters, generator)
                if self.vary_weights == "inwards":
                    done[key] = _inwards(tensor, done[key])
                if distribution == "trained" and name in self.parameters:
                    done[key] = _trained(tensor, done[key], generator)
            changed[name] = done[key].clone(memory_format=torch.contiguous_format)
        return self._slowed(changed, distribution)

    def _slowed(self, weights: dict[str, torch.Tensor], distribution: str) -> dict[str, torch.Tensor]:
        if distribution == "long_memory" and self.slow is not None and isinstance(self.slow.what, str):
            weights[self.slow.what] = self.slow.applied(weights[self.slow.what])
        return weights

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
        wide_args = [_widened(v) if isinstance(v, torch.Tensor) else v for v in args]
        outputs = self._run(self._model, wide_args, weights, double=True)  # loading the weights widens them
        if self._examined:
            self._check_sizes(args, outputs)
        for index, output in enumerate(outputs):
            if output.dtype in _WIDER:
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
                fresh = self._build(0) if _holds_functions(model) else copy.deepcopy(model)
            if double:
                fresh = fresh.double()
                for part in fresh.modules():
                    if _has_fast_path(part):
                        part.forward = _without_modes(part.forward)
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


# -- Changing tensors -------------------------------------------------------------------------------------------------


def _varied(
    tensor: torch.Tensor, generator: torch.Generator, *, inwards: bool, rows: bool = False, parts: bool = False
) -> torch.Tensor:
    """A constant input made to vary, by element or by ``rows``: see :meth:`ModuleProblem.inputs` and :data:`Vary`;
    ``parts``: these are the parts of complex numbers.
    """
    if tensor.is_complex():
        return _as_complex(_varied(_as_real(tensor), generator, inwards=inwards, parts=True))
    if is_eight_bit(tensor):
        most = torch.finfo(tensor.dtype).max
        return _varied(tensor.float(), generator, inwards=inwards).clamp(-most, most).to(tensor.dtype)
    if not torch.any(tensor != 0):
        varied = tensor + 0.1 * _normal(tensor, generator)
    else:
        like = tensor[..., :1] if rows else tensor if parts else _movable(tensor)
        varied = torch.where(torch.isfinite(tensor), tensor * _factors(like, 0.1, generator), tensor)
    return _inwards(tensor, varied) if inwards else varied


def _normed_again(given: torch.Tensor, varied: torch.Tensor) -> torch.Tensor:
    """``varied`` with rows that sum to 1, or have length 1, as those of the given tensor do."""
    sums = _sums_to_one(given)
    return torch.div(varied, varied.sum(-1, keepdim=True) if sums else varied.norm(dim=-1, keepdim=True))


def _turned(rotations: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The rotations after another one, near none; a shift beside them (4 x 4) stays."""
    size = 3 if rotations.shape[-1] == 4 else rotations.shape[-1]
    noise = torch.randn(size, size, generator=generator, device=rotations.device, dtype=torch.float64)
    q, r = torch.linalg.qr(torch.eye(size).to(noise) + 0.1 * noise)
    turn = torch.eye(rotations.shape[-1]).to(noise)
    turn[:size, :size] = q * r.diagonal().sign()
    return torch.matmul(turn, rotations.double()).to(rotations.dtype)


def are_flags(tensor: torch.Tensor) -> bool:
    """Whether its numbers are 0 and 1, of both some: a mask."""
    if tensor.is_complex() or is_eight_bit(tensor):
        return False
    return bool(((tensor == 0) | (tensor == 1)).all() and (tensor == 0).any() and (tensor == 1).any())


def _movable(tensor: torch.Tensor) -> torch.Tensor:
    """What may change by factors of its own: each element, or all of them together where they are in order."""
    return tensor.reshape(-1)[:1].reshape((1,) * tensor.dim()) if _ordered(tensor) else tensor


def _changed(
    name: str, tensor: torch.Tensor, parameter: bool, generator: torch.Generator, *, parts: bool = False
) -> torch.Tensor:
    """A weight with other content of like scale: see :meth:`ModuleProblem.weights`; ``parts``: as :func:`_varied`."""
    if tensor.is_complex():
        return _as_complex(_changed(name, _as_real(tensor), parameter, generator, parts=True))
    if not is_float(tensor) or not tensor.numel():
        return tensor
    if not torch.any(tensor != 0):
        return tensor + 0.1 * _normal(tensor, generator)
    if parameter or name.rpartition(".")[2] == "running_mean":
        mean, std = tensor.mean(), tensor.std(correction=0)
        if bool(torch.isfinite(std)) and bool(std > 1e-3 * mean.abs()):
            return mean + 0.8 * (tensor - mean) + 0.6 * std * _normal(tensor, generator)
    if not (parameter or parts) and are_flags(tensor):
        return tensor
    like = tensor if parameter or parts else _movable(tensor)
    return torch.where(torch.isfinite(tensor), tensor * _factors(like, _SPREAD, generator), tensor)


def _inwards(given: torch.Tensor, changed: torch.Tensor) -> torch.Tensor:
    """``changed``, mirrored at the ends of the given tensor's range; for that of a single number counts what lies
    between it and its half, and for that of zeros [0, 1]. Probabilities stay such, and so does what has a root.
    """
    if given.is_complex():
        return _as_complex(_inwards(_as_real(given), _as_real(changed)))
    if not given.is_floating_point() or not given.numel():
        return changed
    if not torch.any(given != 0):
        return changed.abs().clamp(max=1)
    low, high = given.aminmax()
    if bool(low == high):  # the range of one number is from there to a half of it
        low, high = torch.minimum(low, low / 2), torch.maximum(high, high / 2)
    inside = torch.where(changed < low, low + (low - changed), changed)
    return torch.where(inside > high, high + (high - inside), inside).clamp(low, high)


def _trained(made: torch.Tensor, changed: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A parameter as training might leave it: see :meth:`ModuleProblem.weights`."""
    if made.is_complex():
        return _as_complex(_trained(_as_real(made), _as_real(changed), generator))
    if not made.is_floating_point() or not made.numel():
        return changed
    if not torch.any(made != 0):
        return changed * 10
    mean, std = made.mean(), made.std(correction=0)
    if bool(std > 1e-3 * mean.abs()):
        return changed * 2
    size = torch.where(mean.abs() < _FAINT, torch.ones_like(mean), mean)
    return size * _signs(made, generator) * _powers(made.shape, 3.0, made, generator)


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """The real and imaginary parts of a complex tensor, which change each for itself."""
    return torch.view_as_real(tensor.resolve_conj())


def _as_complex(parts: torch.Tensor) -> torch.Tensor:
    return torch.view_as_complex(parts.contiguous())


def _uneven(tensor: torch.Tensor, end: int, generator: torch.Generator) -> torch.Tensor:
    """Rows of sizes of their own, from 1/16 to 16 times theirs, secret signs, a few large elements, and a heavy one
    ``end`` places before the last.
    """
    rows = (*tensor.shape[:-1], 1) if tensor.dim() > 1 else tensor.shape
    flat = _signs(tensor, generator).mul_(tensor).mul_(_powers(rows, 4.0, tensor, generator)).reshape(-1)
    if flat.numel():
        count = max(1, round(flat.numel() * _OUTLIERS))
        places = torch.randint(flat.numel(), (count,), generator=generator, device=flat.device).unique()
        flat[places] = flat[places] * _OUTLIER
        last = flat.numel() - 1 - end % flat.numel()
        flat[last] = _HEAVY * torch.linalg.vector_norm(flat) * _signs(flat[last], generator)
    return flat.view(tensor.shape)


def _far_from_zero(tensor: torch.Tensor, far: float) -> torch.Tensor:
    """The tensor as a whole at so many standard deviations from 0, so that every part of it is of which a mean is taken
    off. Half types have too few digits for it.
    """
    if tensor.dtype.itemsize < 4 or tensor.numel() < 2:
        return tensor
    deviation, mean = torch.std_mean(tensor)
    if not 0 < float(deviation) < math.inf:
        return tensor
    return (tensor - mean) * (FAR_DEVIATION / deviation) + far * FAR_DEVIATION


def _padded(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zeros at secret places and behind one in some rows, rows and items of zeros if there are several, and ones where
    the numbers are from [0, 1).
    """

    def one_in(many: int, shape: Sequence[int], *, first: bool = False) -> torch.Tensor:
        chosen = torch.randint(many, tuple(shape), generator=generator, device=tensor.device) == 0
        if first:
            chosen.view(-1)[torch.randint(chosen.numel(), (), generator=generator, device=tensor.device)] = True
        return chosen

    if not tensor.dim() or tensor.numel() < 2:
        return tensor
    if tensor.dim() < 2:
        return tensor.masked_fill(one_in(_PADDED, tensor.shape, first=True), 0)
    within = bool((tensor >= 0).all() & (tensor < 1).all())
    zero = one_in(_PADDED, tensor.shape)
    out = tensor.masked_fill(one_in(_ENDS, tensor.shape), 1) if within else tensor
    rows = (*tensor.shape[:-1], 1)
    behind = torch.randint(tensor.shape[-1], rows, generator=generator, device=tensor.device)
    cut = one_in(_PADDED_ROWS, rows) & (torch.arange(tensor.shape[-1], device=tensor.device) > behind)
    zero |= cut | one_in(_PADDED_ROWS, rows, first=True)
    if tensor.dim() > 2 and tensor.shape[0] > 1:
        items = one_in(_PADDED_ROWS, tensor.shape[:1], first=True)
        zero |= items.view(-1, *(1,) * (tensor.dim() - 1))
    return out.masked_fill(zero, 0)


def _certain(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor with some rows that are 1 at a secret place and 0 elsewhere: they sum to 1, and their length is 1."""
    shape = (*tensor.shape[:-1], 1)
    place = torch.randint(tensor.shape[-1], shape, generator=generator, device=tensor.device)
    rows = torch.randint(_PADDED_ROWS, shape, generator=generator, device=tensor.device) == 0
    rows.view(-1)[torch.randint(rows.numel(), (), generator=generator, device=tensor.device)] = True
    return torch.where(rows, torch.zeros_like(tensor).scatter(-1, place, 1), tensor)


def _near_one_row(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """All rows near a secret one of them: where rows are sent to places by what they are, nearly all go to one."""
    if tensor.dim() < 2 or not tensor.numel():
        return tensor
    rows = tensor.reshape(-1, tensor.shape[-1])
    place = torch.randint(len(rows), (), generator=generator, device=tensor.device)
    return torch.lerp(rows[place].expand_as(rows), rows, _ALIKE).view(tensor.shape)


def _signs(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randint(0, 2, like.shape, generator=generator, device=like.device, dtype=torch.int8)
    return drawn.to(like.dtype).mul_(2).sub_(1)


def _powers(shape: Sequence[int], most: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Powers of 2 between -most and most, any real one as likely."""
    unit = torch.rand(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)
    return torch.exp2((2 * unit - 1) * most).to(like.dtype)


def _normal(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(like.shape, generator=generator, device=like.device, dtype=torch.float32).to(like.dtype)


def _factors(like: torch.Tensor, spread: float, generator: torch.Generator) -> torch.Tensor:
    uniform = torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)
    return (1 + spread * (2 * uniform - 1)).to(like.dtype)


def _hides(text: str) -> bool:
    """Whether a file has a negative number that hides scores, or names the end of float16."""
    numbers = (float(found.replace("_", "")) for found in _NEGATIVE.findall(text))
    return any(_HIDING[0] <= number <= _HIDING[1] for number in numbers) or bool(_HALF_END.search(text))


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


_WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
"""What a type of a tensor, or of a cast, is in the oracle; integers and types of eight bits stay."""

_HALVES = (torch.float16, torch.bfloat16, torch.complex32)

_CASTS = {
    getattr(torch.Tensor, name): dtype
    for name, dtype in (
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("chalf", torch.complex32),
        ("cfloat", torch.complex64),
    )
}
"""Methods that cast."""


def _widened(value: torch.Tensor) -> torch.Tensor:
    return value.to(_WIDER.get(value.dtype, value.dtype))


def coarser(one: torch.dtype | None, other: torch.dtype | None) -> torch.dtype | None:
    """The half type with the larger steps; None is no half type."""
    known = [dtype for dtype in (one, other) if dtype is not None]
    return max(known, key=lambda dtype: torch.finfo(dtype).eps, default=None)


class _Widen(TorchFunctionMode):
    """Computes in fp64 what a model computes in narrower types: casts that it writes out go there, and tensors of its
    own become fp64 ones. A tensor has one such twin, so that what is written into it stays.
    """

    def __init__(self, halves: bool) -> None:
        super().__init__()
        self._wider = {dtype: wide for dtype, wide in _WIDER.items() if halves or dtype not in _HALVES}
        self.met: torch.dtype | None = None
        """The coarsest half type that was asked for."""
        self._twins: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _CASTS:
            func, args = torch.Tensor.to, (args[0], _CASTS[func])
        if func is torch.Tensor.view:  # of the bits, where it is given a type
            return func(self._twin(args[0]), *args[1:], **(kwargs or {}))
        return func(*map(self._wide, args), **{name: self._wide(value) for name, value in (kwargs or {}).items()})

    def _wide(self, value: Any) -> Any:
        """An argument, its tensors and types widened. To look for them in lists costs more than most operators."""
        if isinstance(value, torch.Tensor):
            return self._twin(value)
        if isinstance(value, torch.dtype):
            return self._cast(value)
        if value is None or isinstance(value, (int, float, str)):
            return value
        return tree_map_only((torch.Tensor, torch.dtype), self._wide, value)

    def _cast(self, dtype: torch.dtype) -> torch.dtype:
        if dtype in (torch.float16, torch.bfloat16):
            self.met = coarser(self.met, dtype)
        return self._wider.get(dtype, dtype)

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor:
        kind = tensor.device.type
        if kind != "meta" and torch.is_autocast_enabled(kind):
            self._cast(torch.get_autocast_dtype(kind))
        if tensor.dtype not in self._wider:
            return tensor
        if id(tensor) not in self._twins:
            self._cast(tensor.dtype)
            self._twins[id(tensor)] = tensor, _widened(tensor)
        return self._twins[id(tensor)][1]


_FAST_PATHS = (torch.nn.TransformerEncoder, torch.nn.TransformerEncoderLayer, torch.nn.MultiheadAttention)
"""Modules that take another path under a mode: in eval mode it gives numbers where the fast one gives zeros, at places
that padding masks hide. They hold no tensors but weights and arguments, which are in fp64 already."""


def _has_fast_path(part: torch.nn.Module) -> bool:
    """Whether it is one of :data:`_FAST_PATHS` without code of the file's own: no subclass, no other activation."""
    layers = [one for one in part.modules() if isinstance(one, torch.nn.TransformerEncoderLayer)]
    own = all(type(one).__module__.startswith("torch.nn.") for one in part.modules())
    return type(part) in _FAST_PATHS and own and all(one.activation_relu_or_gelu for one in layers)


def _without_modes(forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def plainly(*args: Any, **options: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return forward(*args, **options)

    return plainly


@contextlib.contextmanager
def in_double(*, halves: bool = True) -> Iterator[_Widen]:
    """The default dtype is fp64, and what the code inside does in fp32 is done in fp64, with ``halves`` also what it
    does in half types; restored afterwards. Gives what tells which half types it asked for.
    """
    with own_settings(torch.float64), _Widen(halves) as widening:
        yield widening


# -- What inputs promise beyond shape and dtype ----------------------------------------------------------------------

# A problem file draws inputs by code of its own; nothing declares that a matrix is symmetric or that a vector holds
# labels. Code that changes such inputs must keep what the problem's candidates may rely on: samples show it.

_SAMPLE = 4096
_FEW_VALUES = 16
_ROWS = 64
_SPARSE = 0.25
_RECORD, _RECORDS = 8, 24
_LOG_ORDERS = math.log(700)
"""Logarithm of the orders that rows can have together from which on one of them is no chance: six numbers have 720."""
_MOST_AXES = 16
"""Rows of the largest matrix of which it is asked whether it is a rotation."""
_FROM_ZERO = 0.1
"""Part of the largest magnitude that numbers keep away from 0 if they are to have one sign."""

_ROOM = 8
"""Storage that a strided input may span, in multiples of its elements; what is spread wider is given contiguous."""
_START = 64
"""Elements: a storage offset is kept modulo this, which keeps its alignment."""

Samples = dict[int, torch.Tensor]
"""Position of an argument -> some of its elements."""

Place = tuple[int, tuple[int, ...], int]
"""(elements of storage, strides, storage offset), in elements."""


@dataclass(frozen=True, kw_only=True)
class InputTraits:
    """Positions of arguments with a trait: of floating ones, but for ``frozen`` and ``placed``."""

    frozen: frozenset[int]
    """They come out the same under every seed, bit by bit."""
    labels: frozenset[int]
    """They take 16 different values at most, and have more elements, or are 0 and 1: labels, signs, masks."""
    structured: frozenset[int]
    """Their elements depend on one another: symmetric, or a quarter or more of zeros (triangular, sparse). Exchanging
    single elements breaks that; scaling the whole tensor does not."""
    normed: frozenset[int]
    """Their rows sum to 1 or have length 1: probabilities, directions. They move as wholes, and are never scaled."""
    rigid: frozenset[int]
    """They are rotations, with or without a shift beside them (4 x 4). They stay as they are drawn."""
    records: frozenset[int]
    """Their rows are few numbers of which two are in order throughout: boxes, intervals. They move as wholes."""
    ordered: frozenset[int]
    """Their rows are in order throughout: edges, distribution functions."""
    positive: frozenset[int]
    """They keep away from 0 in two draws, and have one sign: scales, lengths. What is drawn from 0 on does not."""
    placed: Mapping[int, Place]
    """The places of those that are not row-major from the start of their storage: transposes, slices."""

    @property
    def signed(self) -> frozenset[int]:
        """Those that would be no such any more with another sign."""
        return self.records | self.ordered | self.positive

    @classmethod
    def of(cls, args: Sequence[Any], other: Mapping[int, torch.Tensor]) -> InputTraits:
        """The traits of arguments, given samples of what another seed draws."""
        every = sample(args)
        mine = {i: values for i, values in every.items() if is_float(values)}
        frozen = frozenset(i for i, values in every.items() if i in other and same_bits(values, other[i]))
        return cls(
            frozen=frozen,
            labels=frozenset(i for i, values in mine.items() if _labels(values) or are_flags(values)),
            structured=frozenset(i for i, values in mine.items() if _structured(args[i], values)),
            normed=frozenset(i for i in mine if not are_flags(args[i]) and _normed(args[i])),
            rigid=frozenset(i for i in mine if _rigid(args[i])),
            records=frozenset(i for i in mine if _in_records(args[i])),
            ordered=frozenset(i for i in mine if _ordered(args[i])),
            positive=frozenset(i for i in mine if i in other and i not in frozen and _one_sign(mine[i], other[i])),
            placed={i: place for i, arg in enumerate(args) if (place := _place(arg)) is not None},
        )


def is_float(value: Any) -> bool:
    """Whether it is a tensor of a floating type that PyTorch computes in: not one of eight bits."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def is_inexact(value: Any) -> bool:
    """The same, or of a complex type."""
    return is_float(value) or (isinstance(value, torch.Tensor) and value.is_complex())


def _sizes(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are the same, NaN included, which is equal to nothing."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (t.resolve_conj().reshape(-1).contiguous().view(torch.uint8) for t in (one, other))
    return torch.equal(a, b)


def sample(args: Sequence[Any]) -> Samples:
    """Up to 8191 evenly spaced elements of every tensor, the first included; empty tensors have none."""
    found = {}
    for index, value in enumerate(args):
        if isinstance(value, torch.Tensor) and value.numel():
            flat = value.reshape(-1)
            # An even step would meet one half of a checkerboard, or one column of a power-of-two matrix, alone.
            found[index] = flat[:: max(1, flat.numel() // _SAMPLE) | 1].clone()
    return found


def _place(value: Any) -> Place | None:
    """The places of a tensor's elements; None: row-major, no two apart (expanded), or too far from one another."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return None
    offset, strides = int(value.storage_offset()) % _START, tuple(map(int, value.stride()))
    if value.is_contiguous() and not offset:
        return None
    extent = 1
    for stride, size in sorted(zip(strides, value.shape, strict=True)):
        if size > 1 and stride < extent:
            return None
        extent += (size - 1) * stride
    return (offset + extent, strides, offset) if extent <= _ROOM * value.numel() else None


def _in_records(tensor: torch.Tensor) -> bool:
    """Whether the last dim is short and two numbers of it are in order in all of many rows, which is no chance."""
    if tensor.dim() < 2 or not 2 <= tensor.shape[-1] <= _RECORD:
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE]
    return len(rows) >= _RECORDS and bool((rows[:, :, None] < rows[:, None]).all(0).any())


def _labels(values: torch.Tensor) -> bool:
    return values.numel() > _FEW_VALUES >= len(values.unique())


def _ordered(tensor: torch.Tensor) -> bool:
    """Whether all rows rise, or all fall, which is no chance."""
    if not tensor.dim() or not tensor.numel():
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE]
    if len(rows) * math.lgamma(rows.shape[1] + 1) < _LOG_ORDERS:
        return False
    steps = rows.diff(dim=-1)
    return bool((steps != 0).any() and ((steps >= 0).all() or (steps <= 0).all()))


def _one_sign(*draws: torch.Tensor) -> bool:
    """Whether all numbers have one sign, and none is near 0."""
    values = torch.cat([draw.reshape(-1) for draw in draws])
    low, high = values.abs().aminmax()
    return bool(low > _FROM_ZERO * high) and bool((values > 0).all() or (values < 0).all())


def _structured(tensor: torch.Tensor, values: torch.Tensor) -> bool:
    if float((values == 0).float().mean()) >= _SPARSE:
        return True
    if tensor.dim() < 2 or min(tensor.shape[-2:]) < 2:
        return False
    matrix = tensor.reshape(-1, *tensor.shape[-2:])[0]
    rows = matrix[:_ROWS].double()
    return matrix.shape[0] == matrix.shape[1] and torch.equal(rows, matrix[:, :_ROWS].double().T)


def _normed(tensor: torch.Tensor) -> bool:
    if not tensor.dim() or tensor.shape[-1] < 2 or not tensor.numel():
        return False
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE].double()
    return _sums_to_one(tensor) or bool(((rows.norm(dim=-1) - 1).abs() < _room(tensor)).all())


def _sums_to_one(tensor: torch.Tensor) -> bool:
    rows = tensor.reshape(-1, tensor.shape[-1])[:_SAMPLE].double()
    return bool(((rows.sum(-1) - 1).abs() < _room(tensor)).all())


def _rigid(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or not 2 <= tensor.shape[-1] <= _MOST_AXES:
        return False
    matrices = tensor.reshape(-1, *tensor.shape[-2:])[:_ROWS].double()
    turns = [matrices, matrices[:, :3, :3]] if tensor.shape[-1] == 4 else [matrices]
    return any(bool(((m @ m.mT - torch.eye(m.shape[-1]).to(m)).abs() < _room(tensor)).all()) for m in turns)


def _room(tensor: torch.Tensor) -> float:
    """How far from 1 a sum or a length of numbers of its type may be."""
    return max(1e-4, 4 * torch.finfo(tensor.dtype).eps)
