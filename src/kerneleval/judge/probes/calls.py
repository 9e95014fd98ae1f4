"""A task's case bound to secret arguments and their expectation, and the windows in which a loaded candidate is called.

Every probe and every check gets a :class:`Calls`. It knows nothing of the probes: ``cells.py`` decides which of them a
case meets and what becomes of a worker that died. Values are drawn by ``windows/inputs.py``, expectations come from
``oracle/reference.py``; what one window is stands in ``windows/protocol.py``.
"""

from __future__ import annotations

import math
import re
import secrets
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare, matches
from kerneleval.judge.oracle.expectation import Expectation, TimedBounds, is_eight_bit, opened
from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import (
    CallLayout,
    Refresh,
    TensorSlot,
    WindowBuffer,
    WindowLayout,
    dense,
    gradient_of,
    strided,
)
from kerneleval.judge.windows.modules import reveal_weights
from kerneleval.judge.windows.protocol import Cut, Window, claimed, output_views
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import (
    Case,
    Evidence,
    Failed,
    NotJudgedError,
    Outcome,
    Passed,
    Protocol,
    Scalar,
    Task,
    TensorSpec,
    UsageError,
    new_secret,
)
from kerneleval.tasks.formats.traits import InputTraits, is_symmetric
from kerneleval.worker.host import WorkerFailure
from kerneleval.worker.waiting import TimeLimit

_SMALL = 1e-2
"""A plain argument below this is taken for an epsilon."""

_FRACTIONS = 2**8
"""Fractions in units of 1 / this are numbers of bfloat16, and of float16."""

_SHARE = 0.125
"""Numbers from this on, below 1, may be shares: the operator may use 1 minus such a number, too."""

_LARGEST = 2.0**127
"""Numbers from this magnitude on stay as they are: the largest of bfloat16 and float32 is less than twice as large."""

_ONE_SIDED = (253, 255)
"""Of these fractions the products with numbers of bfloat16 are rounded down more often than up, by 0.05 % and 0.15 % in
the mean; of all others by 0.03 % at most. A kernel that keeps scaled scores in the half type is off by as much."""


_LOADING_S = 0.1
"""An expectation that took longer may have loaded libraries."""

_RUNS = 20
"""Native runs in the time of which an expectation is made at most, if no library is loaded."""

_MOST_LARGER = 1.6
"""Factor of a plain argument, at most."""

_ASCENDING = 8
"""Fewer numbers ascend by chance."""

_LOADED: set[tuple[str, str, str]] = set()
"""Devices, directions and dtypes of which this process has made an expectation."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Secret arguments of one call and what must come out."""

    args: list[Any]
    """Tensors and plain values, in the order of the call."""
    grads: list[torch.Tensor]
    """Upstream gradients; empty for forward."""
    expectation: Expectation
    took_s: float = 0.0
    """What the judge needed for the expectation."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Everything that is revealed, arguments before upstream gradients."""
        return [a for a in self.args if isinstance(a, torch.Tensor)] + self.grads


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What further calls of a case that was right are compared with. Few tensors: a task has a hundred cases."""

    call_layout: CallLayout
    bounds: TimedBounds
    """How far their outputs may be from native ones."""
    whole: Mapping[int, torch.Tensor] = field(default_factory=dict)
    """Integers and flags of a problem file's call that is to be timed, by position."""

    def belonging(self, args: Sequence[Any]) -> list[Any]:
        """Arguments of another draw. Where that has other plain numbers than this call, as the largest length of a
        batch, the call's own integers and flags take the place of its, since they belong together.
        """
        pairs = zip(self.call_layout.args, args, strict=True)
        alike = all(isinstance(own, TensorSlot) or repr(own) == repr(other) for own, other in pairs)
        return list(args) if alike else [self.whole.get(place, arg) for place, arg in enumerate(args)]


def other_scalars(task: Task, case: Case, *, larger: bool) -> dict[str, float]:
    """Secret values for plain arguments. Whole numbers become one of those that the task names (``Scalar.among``).
    Floating ones for which it names some become one of these half of the time; always, if their usual value is named.

    Of all other floating ones, small ones, which are added to something (epsilons), become 30 to 100 times as large, so
    that it shows where they are left out, or, where they are not to be ``larger`` and the data is small enough to show
    it, as small. Others (scales) become larger or smaller by up to a half, but decays and shares do not come beyond 1.
    Others than epsilons are numbers of every floating type: to what is compared with them, a rounded one would be
    another.
    """
    specs = task.arguments(case.dims_map, case.dtype)
    values = {s.name: s.value for s in specs if isinstance(s, Scalar) and isinstance(s.value, float) and s.value}
    draw = secrets.SystemRandom().uniform

    def factor(value: float) -> float:
        if larger and _MOST_LARGER * value > 1 > value:
            return (1 - (1 - value) * draw(0.4, 0.75)) / value
        if abs(value) >= _SMALL:
            return draw(1.25, _MOST_LARGER) if larger else draw(0.5, 0.8)
        return 1 / draw(30, 100) if case.distribution == "small_scale" and not larger else draw(30, 100)

    def changed(value: float) -> float:
        if abs(value) < _SMALL:
            return float(f"{value * factor(value):.3g}")
        return number_of_all_types(value * factor(value))

    named = [s for s in specs if isinstance(s, Scalar) and s.among]
    named = [s for s in named if s.name not in values or s.value in s.among or secrets.randbits(1)]
    chosen = {s.name: secrets.choice(s.among) for s in named}
    return {name: changed(value) for name, value in values.items()} | chosen


def number_of_all_types(value: float) -> float:
    """A number near this one that has the few digits of bfloat16 and float16, but none of the ``_ONE_SIDED``. Between
    ``_SHARE`` and 1 the same holds for 1 minus the number. Infinities, NaN and numbers from ``_LARGEST`` on stay as
    they are.
    """
    if not abs(value) < _LARGEST:
        return value
    if _SHARE <= abs(value) < 0.5:
        return math.copysign(round(abs(value) * _FRACTIONS) / _FRACTIONS, value)
    fraction, exponent = math.frexp(value)
    whole = round(abs(fraction) * _FRACTIONS)
    whole -= whole in _ONE_SIDED
    return math.copysign(math.ldexp(whole, exponent) / _FRACTIONS, value)


class BoundCase:
    """One case of a task, ready to be drawn any number of times."""

    def __init__(
        self,
        task: Task,
        case: Case,
        device: Device,
        *,
        tf32: bool,
        problem: Any = None,
        scalars: Mapping[str, float] | None = None,
    ) -> None:
        self.task, self.case, self.device, self.tf32, self.problem = task, case, device, tf32, problem
        self.dims = case.dims_map
        self.specs: tuple[Any, ...] = () if problem is not None else task.arguments(self.dims, case.dtype)
        if scalars:
            self.specs = tuple(
                replace(s, value=scalars[s.name]) if isinstance(s, Scalar) and s.name in scalars else s
                for s in self.specs
            )
        self.wanted: tuple[int, ...] = ()
        if case.direction == "backward":
            self.wanted = tuple(i for i, s in enumerate(self.specs) if isinstance(s, TensorSpec) and s.differentiable)
        self.weights: dict[str, torch.Tensor] | None = None
        self.exchanged: Callable[[], Drawn | None] | None = None
        """The first call with elements exchanged, where it was drawn ahead (``repeats.exchanged_call``)."""
        self.native_on = reference.native_place(device)

    def arguments(self, seed: int) -> list[Any]:
        """Fresh secret arguments."""
        if self.problem is not None:
            return list(self.problem.inputs(seed, self.case.distribution))
        return inputs.draw(self.specs, self.case, seed, self.device.judge_device)

    def timed_arguments(self, seed: int) -> list[Any]:
        """The same for timed windows, without numbers at borders (``Arg.borders``), parameters of 0 (``Arg.unset``) and
        rows of 0 (``Arg.idle``). At borders right gradients may be far from the baseline's, and each call would be put
        to the oracle; outputs may be infinite, and errors are measured by their rms. That rms is taken from one call,
        so it must not depend on what is 0 there.
        """
        if self.problem is not None:
            return self.arguments(seed)
        specs = [
            replace(spec, borders=(), unset=False, idle=False) if isinstance(spec, TensorSpec) else spec
            for spec in self.specs
        ]
        return inputs.draw(specs, self.case, seed, self.device.judge_device)

    def upstream(self, args: Sequence[Any], seed: int) -> list[torch.Tensor]:
        """Fresh secret upstream gradients (backward cases)."""
        if self.case.direction == "forward":
            return []
        outputs = reference.output_specs(self.task, self.case, args)
        return inputs.upstream(outputs, seed, self.device.judge_device, self.case.layout, self.case.distribution)

    def draw(self, seed: int) -> Drawn:
        """Fresh secret arguments with their expectation."""
        args = self.arguments(seed)
        return self.expect(args, self.upstream(args, seed))

    def expect(self, args: list[Any], grads: list[torch.Tensor]) -> Drawn:
        """The expectation for given arguments.

        Raises:
            NotJudgedError: a problem file raises on other values or sizes than its own, or gives infinities or NaN on
                such values.
        """
        began_s = time.perf_counter()
        others = self.problem is not None and self.case.distribution != "standard"
        sizes = self.problem is not None and self.case.shape_category != "given"
        try:
            expectation = reference.expect(
                self.task,
                self.case,
                args,
                grads or None,
                problem=self.problem,
                weights=self.weights,
                tf32=self.tf32,
                native_on=self.native_on,
            )
        except UsageError as error:
            if not (others or sizes) or isinstance(error, NotJudgedError):
                raise
            raise NotJudgedError(f"{self.case.key}: the file itself raises there: {error}") from error
        if others and not all(bool(opened(out).isfinite().all()) for out in expectation.native):
            raise NotJudgedError(f"{self.case.key}: the outputs of the file itself are not finite there")
        took_s = self._warm_s(args, grads, time.perf_counter() - began_s)
        return Drawn(args=args, grads=grads, expectation=expectation, took_s=took_s)

    def _warm_s(self, args: Sequence[Any], grads: Sequence[torch.Tensor], took_s: float) -> float:
        """What an expectation takes once libraries are loaded, of which the first one took so long: by what the native
        reference takes now.
        """
        kind = (self.device.name, self.case.direction, self.case.dtype)
        if kind in _LOADED or took_s < _LOADING_S:
            return took_s
        _LOADED.add(kind)
        began_s = time.perf_counter()
        if self.problem is not None:
            self.problem.reference(list(args), self.weights or {})
        else:
            where = self.native_on
            reference.native(self.task, self.case, args, grads or None, tf32=self.tf32, native_on=where)
        self.device.synchronize()
        return min(took_s, _RUNS * (time.perf_counter() - began_s))

    def call_layout(self, drawn: Drawn, variant: int = 0) -> CallLayout:
        """The layout of one call; ``variant``: which variant of the case's layout (``layouts.strided``)."""
        slots = tuple(self._slot(position, arg, variant) for position, arg in enumerate(drawn.args))
        outputs = tuple((tuple(t.shape), str(t.dtype)[6:]) for t in drawn.expectation.native)
        grads = tuple(self._placed(gradient_of(tuple(g.shape), str(g.dtype)[6:]), variant) for g in drawn.grads)
        call = CallLayout(args=slots, grads=grads, outputs=outputs, wanted=self.wanted, dims=self.dims)
        if self.problem is None:
            return call
        return replace(call, form=self.problem.output_form, shared=tuple(sorted(self.problem.shared)))

    def other_layouts(self, drawn: Drawn) -> list[CallLayout]:
        """The same call in the other variants of the case's layout, and mixed ones where several tensors are not
        contiguous (``docs/inputs.md``). Empty for contiguous cases.
        """
        if self.case.layout == "contiguous":
            return []
        call_layout, second, third, fourth = (self.call_layout(drawn, variant) for variant in range(4))
        others = [second, third]
        laid_out = [i for i, slot in enumerate(call_layout.slots) if not slot.is_contiguous]
        if len(laid_out) > 1:
            chance = secrets.SystemRandom()
            part = set(chance.sample(laid_out, chance.randrange(1, len(laid_out))))
            rest = set(laid_out) - part
            others = [second.contiguous(part), third.contiguous(rest), second.mixed(third, rest)]
        every = [call_layout, *others, *([fourth] if fourth not in (call_layout, second, third) else [])]
        return [one for index, one in enumerate(every) if one not in every[:index]][1:]

    def native_is_right(self, drawn: Drawn, call_layout: CallLayout, device: Device | None = None) -> bool:
        """Whether the reference itself, in PyTorch, runs and is right on the drawn tensors in this layout, which it is
        not everywhere (``docs/inputs.md``); on another device, if one is given (of operators).

        Raises:
            InfrastructureError: the device has too little memory.
        """
        device = device or self.device
        args, grads = self.laid_out(drawn, call_layout, device)
        try:
            if self.problem is not None:
                return matches(self.problem.reference(args, self.weights or {}), drawn.expectation)
            where = reference.native_place(device)
            outputs = reference.native(self.task, self.case, args, grads or None, tf32=self.tf32, native_on=where)
        except UsageError:
            return False
        return matches([o.to(self.device.judge_device) for o in outputs], drawn.expectation)

    def laid_out(self, drawn: Drawn, call_layout: CallLayout, device: Device) -> tuple[list[Any], list[torch.Tensor]]:
        """(arguments, upstream gradients) as they lie in a window."""
        buffer = WindowBuffer(WindowLayout([call_layout], self.case.direction), device, [drawn.tensors])
        tensors = iter([buffer.tensor(0, index) for index in range(len(call_layout.slots))])
        args = [next(tensors) if isinstance(arg, torch.Tensor) else arg for arg in drawn.args]
        return args, list(tensors)

    def _slot(self, position: int, arg: Any, variant: int) -> TensorSlot | Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        shape, dtype = tuple(arg.shape), str(arg.dtype)[6:]
        if self.problem is not None:
            traits = self.problem.traits
            refresh = _refresh_by(traits, position, arg)
            if position in traits.frozen and arg.is_floating_point() and self.problem.vary == "never":
                refresh = "kept"
            if any(position in kept for kept in (self.problem.kin, self.problem.twice, self.problem.alike)):
                refresh = "kept"
            written = position in self.problem.written
            if self.case.layout != "contiguous":
                placed = self._placed(TensorSpec(name="", shape=shape, dtype=dtype), variant)
                return replace(placed, refresh=refresh, written=written)
            slot = replace(dense(shape, dtype, refresh=refresh), written=written)
            if position not in traits.placed:
                return slot
            extent, strides, offset = traits.placed[position]
            return replace(slot, strides=strides, offset=offset, extent=extent)
        spec = self.specs[position]
        if self.case.layout == "contiguous" or spec.role != "data":
            seed = spec.name == "seed" and self.task.tolerance.law is not None
            slot = dense(shape, dtype, refresh="seeds" if seed else "rows" if spec.role == "mask" else "elements")
            return replace(slot, weight=spec.role == "weight")
        return self._placed(spec, variant)

    def _placed(self, spec: TensorSpec, variant: int) -> TensorSlot:
        """Where the case's layout puts the elements of a data tensor."""
        extent, strides, offset = strided(self.case.layout, spec, variant)
        return TensorSlot(shape=tuple(spec.shape), dtype=spec.dtype, strides=strides, offset=offset, extent=extent)


def _refresh_by(traits: InputTraits, position: int, tensor: torch.Tensor) -> Refresh:
    """How a problem's input may change, by what it promises."""
    shape = tensor.shape
    if position in traits.rigid or position in traits.normed & traits.structured:
        return "kept"  # rows of a triangle have their places
    if position in traits.normed:
        return "records" if math.prod(shape[:-1]) > 1 else "moved"
    flags = position in traits.labels and shape[-2:-1] != shape[-1:]
    if position in traits.structured and not flags:
        return "scaled"
    if position in traits.records:
        return "records"
    if not tensor.is_floating_point() and is_symmetric(tensor):
        return "kept"
    if position in traits.structured:  # flags and one-hot rows stay such
        return "rows"
    found = _refresh_of(tensor)
    if position in traits.ordered and found == "elements":  # edges in no order are none
        return "kept" if position in traits.frozen else "steps"
    return found


def _refresh_of(tensor: torch.Tensor) -> Refresh:
    """How a problem's input may change, by what it looks like: integers whose rows are sorted may be offsets, and stay
    sorted; integers of which no two are equal may be a permutation, and stay one. Longer rows of numbers that ascend
    are edges or times.
    """
    flat = tensor.reshape(-1)
    if tensor.is_complex() or tensor.dtype == torch.bool or is_eight_bit(tensor) or flat.numel() < 2:
        return "elements"
    if tensor.is_floating_point():
        ascending = (
            tensor.dim() > 0
            and tensor.shape[-1] >= _ASCENDING
            and bool((tensor[..., 1:] >= tensor[..., :-1]).all() & (tensor[..., 0] < tensor[..., -1]).all())
        )
        return "steps" if ascending else "elements"
    if tensor.shape[-1] > 1 and bool((tensor[..., 1:] >= tensor[..., :-1]).all()):
        return "steps"
    return "moved" if flat.unique().numel() == flat.numel() else "elements"


_PROBE_S = 10.0
"""Seconds that the further calls of a window may take together; slower candidates get fewer calls."""

_REPEATED_PROBE_S = 2.0
"""The same where this probe was made before, in another dtype or layout."""

_SHARES = 6
"""A window of further calls takes at most this part of what is left of the candidate's budget of time."""

_LARGE_BYTES = 1 << 30
"""Before a window that takes more memory, the judge's allocator gives back what it keeps and does not use."""


def mutation(what: str, who: str = "the call") -> Failed:
    """The outcome of a call that changed its inputs, of a task that is not in place."""
    text = f"{who} changed {what}; inputs must stay as they are"
    return Failed(stage="honesty", reason="input_mutation", message=text)


def with_names(failed: Failed, task: Task, case: Case) -> Failed:
    """The outcome with the names of the arguments whose numbers the worker or its memory gave."""
    if failed.reason != "input_mutation" and failed.evidence.get("what") != "gradient":
        return failed
    names = [spec.name for spec in task.arguments(case.dims_map, case.dtype)]

    def named(match: re.Match[str]) -> str:
        number = int(match[1])
        return f"{match[0]} ({names[number]})" if number < len(names) else match[0]

    return replace(failed, message=re.sub(r"\bargument (\d{1,3})\b(?! \()", named, failed.message))


_REUSED = (
    "the output of one call was overwritten by a later call: the candidate keeps an output buffer and returns it "
    "again. Outputs must be new tensors: allocate them in every call"
)


def _of_later_call(
    made: Callable[[int], Sequence[torch.Tensor]], drawn: Sequence[Drawn], index: int, new: set[int]
) -> bool:
    """Whether the outputs of a call are, bit by bit, those of a later one that is right, on ``new`` inputs (ids), which
    no call before had: else it may be a kept result, and a single wrong number may be near another call's by chance.
    Nor does a later one count of which only zeros are expected: they may be memory that nobody wrote.

    Args:
        made: number of a call -> its outputs.
    """
    before = {id(one) for one in drawn[: index + 1]}
    return any(
        id(later) in new - before
        and any(bool(_bytes(output).any()) for output in later.expectation.native)
        and all(map(_equal_bits, made(index), made(place)))
        and matches(made(place), later.expectation)
        for place, later in enumerate(drawn[index + 1 :], index + 1)
    )


def _equal_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    return torch.equal(_bytes(first), _bytes(second))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """All of it as bytes, shape (bytes,): not every device reduces or compares every dtype."""
    return tensor.reshape(-1).view(torch.uint8)


class Calls:
    """Calls one candidate at cases of one task on one device."""

    def __init__(self, loaded: Loaded, task: Task, protocol: Protocol, device: Device) -> None:
        self.loaded, self.task, self.protocol, self.device = loaded, task, protocol, device
        self.calibration: dict[Case, Calibrated] = {}
        """What further calls of each case that was right are compared with."""
        self.scalars: dict[str, float] = {}
        """Plain arguments that get another value than the task's, by name."""
        self.last_layouts: tuple[CallLayout, ...] = ()
        """Layouts of the calls of the last window."""
        self.lost_s = 0.0
        """How long the windows took in which a worker died."""
        self.slowest_s = 0.0
        """What the slowest call so far took."""
        self._last_call_s = 0.0
        self._called: set[tuple[int, str]] = set()
        """Process and layout of every call so far: code may be compiled for another of either."""
        self._revealed: weakref.WeakValueDictionary[int, Drawn] = weakref.WeakValueDictionary()
        self._problems: dict[tuple[tuple[str, int], ...], Any] = {}

    def affordable(self, calls: int, *, repeated: bool = False) -> int:
        """How many of these calls take at most ten seconds, by the time of the last window; two seconds where the probe
        is ``repeated``, which means that it was made before in another dtype or layout.
        """
        limit_s = min(_REPEATED_PROBE_S if repeated else _PROBE_S, max(0.0, self.loaded.patience.left_s) / _SHARES)
        return min(calls, int(limit_s / self._last_call_s)) if self._last_call_s else calls

    def bind(self, case: Case) -> BoundCase:
        """The case with, for module problems, fresh weights revealed to the candidate."""
        problem = self.problem(case)
        bound = BoundCase(self.task, case, self.device, tf32=self.protocol.tf32, problem=problem, scalars=self.scalars)
        if problem is not None:
            self.ensure_module(self.loaded, case)
            bound.weights = problem.weights(new_secret(), case.distribution)
            reveal_weights(self.loaded, bound.weights)
        return bound

    def problem(self, case: Case) -> Any:
        """The module problem of a case; None for operators."""
        if not self.task.module:
            return None
        if case.dims not in self._problems:
            assert self.task.build is not None
            self._problems.clear()
            began_s = time.perf_counter()
            self._problems[case.dims] = self.task.build(case.dims_map, self.device.judge_device)
            self.loaded.reference_s = time.perf_counter() - began_s
        return self._problems[case.dims]

    def ensure_module(self, loaded: Loaded, case: Case) -> None:
        """Have a module of the case's sizes in the worker."""
        if loaded.module_key != case.dims:
            problem = self.problem(case)
            loaded.make_module(problem.init_args, new_secret(), problem.form, keywords=problem.init_keywords)
            loaded.module_key = case.dims

    def window(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        cut: int = 0,
        layouts: Sequence[CallLayout] | None = None,
        excused: Callable[[int], bool] | None = None,
    ) -> Outcome:
        """The outcome of one window over the drawn calls; see :meth:`call`.

        Args:
            excused: asked about each call whose outputs are wrong: whether that says nothing about the candidate.

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        new = {id(one) for one in drawn if id(one) not in self._revealed}
        self._revealed.update((id(one), one) for one in drawn)
        window, layout = self.call(bound, drawn, look=True, cut=cut, layouts=layouts)
        self._last_call_s = window.elapsed_ns / 1e9 / len(drawn)
        self.slowest_s = max(self.slowest_s, self._last_call_s)
        if window.wrong is not None:
            return claimed(window.wrong)
        evidence: Evidence = {}
        right: dict[int, tuple[torch.Tensor, ...]] = {}
        for index, one in enumerate(drawn):
            outputs = output_views(window, layout, index)
            if id(one) in right and all(map(torch.equal, right[id(one)], outputs)):
                continue
            result = compare(outputs, one.expectation)
            if not isinstance(result, Mismatch):
                right.setdefault(id(one), outputs)
                evidence = result.evidence
            elif excused is None or result.reason != "wrong_output" or not excused(index):
                reason, message = result.reason, result.message
                if reason == "wrong_output" and _of_later_call(
                    partial(output_views, window, layout), drawn, index, new
                ):
                    reason, message = "output_reused", f"{_REUSED} ({message})"
                return Failed(stage="correctness", reason=reason, message=message, evidence=result.evidence)
        if window.mutated and not self.task.in_place:
            return mutation(window.mutated)
        return Passed(evidence=evidence)

    def call(
        self,
        bound: BoundCase,
        drawn: Sequence[Drawn],
        *,
        look: bool,
        cut: int = 0,
        layouts: Sequence[CallLayout] | None = None,
    ) -> tuple[Window, WindowLayout]:
        """One window over the drawn calls; its outputs are not compared.

        Args:
            look: whether to see if the candidate changes its inputs.
            cut: how many calls are made before the inputs of the others are revealed; 0: all are revealed at once.
            layouts: of the calls; None: as the case says.
        """
        layout = WindowLayout(layouts or [bound.call_layout(one) for one in drawn], bound.case.direction)
        self.last_layouts = layout.calls
        buffer = WindowBuffer(layout, self.device, [one.tensors for one in drawn])
        if layout.nbytes > _LARGE_BYTES:
            self.device.trim()  # what was freed here is kept from the worker
        where = Cut(at=cut) if cut else None
        reference_s = sum(one.took_s for one in drawn)
        limit = self.loaded.patience.limit(reference_s, first=self._is_first(layout))
        self.loaded.patience.give(reference_s)
        began_s = time.monotonic()
        try:
            window = self.loaded.runner.window(buffer, limit=limit, check_mutation=look, cut=where)
        except WorkerFailure:
            self.lost_s += time.monotonic() - began_s
            raise
        return window, layout

    def _is_first(self, layout: WindowLayout) -> bool:
        """Whether the process has not met one of these calls' shapes, strides, dtypes and plain values yet."""
        distinct = {id(one): one for one in layout.calls}.values()
        forms = {(self.loaded.runner.worker.pid, repr(one)) for one in distinct}
        first = not forms <= self._called
        self._called |= forms
        return first

    @property
    def limit(self) -> TimeLimit:
        """How long a window may take whose expectations nobody has computed: what any may, or ten times as long as the
        slowest call that was made.
        """
        return self.limit_of(first=True)

    def limit_of(self, *, first: bool) -> TimeLimit:
        """The same; ``first``: code may be compiled."""
        return self.loaded.patience.limit_of(10 * self.slowest_s, first=first)

    def outputs(self, call_layout: CallLayout, args: Sequence[Any], case: Case) -> tuple[torch.Tensor, ...]:
        """What the candidate gives on arguments of a known layout (forward; not compared with anything).

        Raises:
            WorkerError, WorkerFailure: the candidate raised, or its process is gone.
        """
        layout = WindowLayout([call_layout], case.direction)
        buffer = WindowBuffer(layout, self.device, [[a for a in args if isinstance(a, torch.Tensor)]])
        window = self.loaded.runner.window(buffer, limit=self.limit, check_mutation=False)
        return output_views(window, layout, 0)
