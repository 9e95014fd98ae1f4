"""The oracle: the reference in fp64 on the same inputs, with bounds from what the native reference makes of them.

Three runs of the trusted reference give an expectation: in fp64 (the oracle), in the case's dtype (the native error),
and in fp32 on inputs moved by 2^-14 of themselves (the conditioning). ``calibration.py`` makes bounds of them,
``comparison.py`` applies these. See ``docs/correctness.md``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle import kinks
from kerneleval.judge.oracle.calibration import (
    bounded,
    exactly,
    following,
    held,
    independent,
    positions,
    scales_of,
    within_floor,
)
from kerneleval.judge.oracle.comparison import keeps_to
from kerneleval.judge.oracle.expectation import (
    NATIVE,
    POOLED,
    PROBE,
    Expectation,
    Expected,
    Kind,
    Scales,
    floor_of,
    is_eight_bit,
    opened,
    reduction_length,
    tiles,
)
from kerneleval.judge.oracle.reference_call import (
    AGAIN,
    ByWeights,
    ReferenceCall,
    Tensors,
    inexact,
    precision,
    widened,
)
from kerneleval.judge.windows import inputs
from kerneleval.records import (
    Case,
    InfrastructureError,
    NotJudgedError,
    Task,
    TensorSpec,
    Tolerance,
    UsageError,
)
from kerneleval.tasks.formats.jumps import Flips, Noise, jumps, noisy, too_many
from kerneleval.tasks.formats.soundness import allowed, astray, limit_of

_ROUNDINGS, _NUDGES = 2.0**-19, 8
"""How far inputs move by a few roundings of fp32 (a mean of 500 numbers, summed in turn, is off by 2^-20 at most), and
how often: half of the integers that depend on it differ each time."""

_POOL_DRAWS = 8
"""Most further draws for a small output; no more than it takes to see about 64 elements."""

_POOL_ELEMENTS = 1 << 18
"""Further draws are made only where all arguments together have at most this many elements."""


_ONE = threading.RLock()
"""Whether TF32 is allowed is one setting of the whole process: one expectation is made at a time."""

_OTHER_KERNELS = ("transposed", "sliced", "expanded")
"""Layouts for which libraries pick other kernels, with another rounding: the native error is the larger of both."""

_HELD_BYTES = 64 << 20
"""Outputs in fp64 of up to so many bytes are held until it is known whether further forms are asked."""

_FAR_TURNS, _FP32_BITS = 2, 24
"""Problem files far from 0, and zeros: as many oracles count whose every number is rounded as fp32. Of ``1 - s`` for a
similarity near 1 nothing else shows what rounding it costs: it hardly moves with the inputs, and PyTorch's own may be
right."""

_HALF_BITS = {torch.float16: 11, torch.bfloat16: 8}

_MOST_LEFT = 2.0**-16
"""Of zeros, that oracle counts where it is off by less than this part of the output's rms, or of 1. In the gradients of
a choice between equal scores it was off by 0.2."""

_ROUNDED_TURNS, _LUCK = 8, 4.0
"""Problem files whose native error says how far others may be off: as many such oracles say how far rounding takes what
comes out. A nearly singular system of equations has errors along one direction, and native's may be small by luck: in
outputs of few elements it counts up to so many times."""

_USUAL = 2
"""Of the usual ways of a fused operator (``Task.unfused``), as many are asked: the last ones in half types, else the
first ones.
"""


def _nudged(call: ReferenceCall) -> list[Tensors]:
    """Oracles on inputs moved by a few roundings: integers that differ follow from one, as a count above a mean."""
    calls = [call.moved(wide=True, number=5 * turn, size=_ROUNDINGS / PROBE) for turn in range(_NUDGES)]
    with precision(tf32=False):
        return [one.run("fp64") for one in calls]


def native_place(device: Device) -> str:
    """``native_on`` for a device: its own name where the judge works on another one; empty: where the arguments lie."""
    return device.torch_device if device.torch_device != device.judge_device else ""


_SPECS: dict[tuple[Any, ...], list[tuple[tuple[int, ...], str]]] = {}
_MOST_SPECS = 1024


def output_specs(task: Task, case: Case, args: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    """(shape, dtype) of every forward output of an operator task; runs the reference once for each dims, plain values
    and dtype.

    Raises:
        UsageError: the reference raises.
        InfrastructureError: the device has too little memory.
    """
    values = repr([arg for arg in args if not isinstance(arg, torch.Tensor)])
    key = (task.reference, task.arguments, case.dims, case.folds, case.dtype, values)
    with _ONE:
        if key not in _SPECS:
            if len(_SPECS) >= _MOST_SPECS:
                _SPECS.clear()
            forward = replace(case, direction="forward")
            call = ReferenceCall(task=task, case=forward, args=args)
            _SPECS[key] = [(tuple(t.shape), str(t.dtype)[6:]) for t in call.run(case.dtype)]
        return list(_SPECS[key])


def native(
    task: Task,
    case: Case,
    args: Sequence[Any],
    grads: Sequence[torch.Tensor] | None = None,
    *,
    tf32: bool = False,
    native_on: str = "",
) -> Tensors:
    """What the reference of an operator task gives in the case's dtype, the arguments lying as they do.

    Raises:
        UsageError: the reference raises.
        InfrastructureError: the device has too little memory.
    """
    with _ONE, precision(tf32=tf32):
        return ReferenceCall(task=task, case=case, args=args, grads=grads, native_on=native_on).there().natively()


def expect(
    task: Task,
    case: Case,
    args: Sequence[Any],
    grads: Sequence[torch.Tensor] | None = None,
    *,
    problem: Any = None,
    weights: Mapping[str, torch.Tensor] | None = None,
    tf32: bool = False,
    native_on: str = "",
) -> Expectation:
    """What must come out of a call on these arguments.

    Args:
        case: the case; its direction says whether outputs or gradients are expected.
        args: arguments in order: tensors on the device, of the case's dtype, and plain values. They are read, not kept
            from changing: change them only when done with the expectation.
        grads: upstream gradients (backward cases), one for each floating output.
        tf32: whether TF32 is allowed, for the native reference and in the bounds.
        native_on: torch device on which the native reference runs; empty: that of the arguments, as for all the rest.

    Raises:
        UsageError: the reference raises, or its outputs do not fit the task's tolerance.
        NotJudgedError: a problem file's are no rounding of fp64's (``tasks/formats/soundness.py``).
        InfrastructureError: the device has too little memory.
    """
    given = weights or {}
    call = ReferenceCall(
        task=task, case=case, args=args, grads=grads, problem=problem, weights=given, native_on=native_on
    )
    with _ONE:
        if problem is not None:
            _settled(call, tf32)
        runs = _Runs.of(call, tf32, every=not _has_further_forms(call))
        held = sum(wide.nbytes for wide in runs.oracle) <= _HELD_BYTES
        if not runs.every and not held and not _cancels(call):
            runs = runs.of_every_form()
        found = _expectation(runs)
        if runs.every and not _rests_on_native(call, found):
            return found
        more = runs.rounded_at_random if runs.every else runs.of_every_form
        if not held and not runs.every:
            more = functools.partial(_anew, call, tf32)  # of zeros alone: nothing is held, and few are wrong
        return replace(found, wider=functools.cache(lambda: _expectation(more())))


def _anew(call: ReferenceCall, tf32: bool) -> _Runs:
    with _ONE:
        return _Runs.of(call, tf32)


def _rests_on_native(call: ReferenceCall, found: Expectation) -> bool:
    """Whether an output of a problem file in fp32, and none too large to be asked again, has its bound from the native
    error and not from the floor.
    """
    if call.problem is None or call.narrow or sum(t.numel() for t in call.given if inexact(t)) > _POOL_ELEMENTS:
        return False
    bounds = [one.bounds for one in found.outputs if one.bounds is not None and one.native.itemsize >= 4]
    return any(
        (_LUCK if b.independent < POOLED else 1.0) * NATIVE * b.scales.native_rms > b.scales.floor_rms for b in bounds
    )


def _expectation(runs: _Runs) -> Expectation:
    call, case = runs.call, runs.call.case
    with _ONE:
        runs = runs.apart_from_flips()
        fewest = min((count for count in runs.independent if count), default=POOLED)
        expected = runs.expected(_pool(runs, min(_POOL_DRAWS, 1 + 64 // fewest)) if fewest < POOLED else [])
        if case.distribution == "nonfinite" and call.problem is None:
            found = [*([_of_infinities(call)] if _asks_less(call) else []), _of_fp32(call, expected)]
            for free in found:
                expected = tuple(one.with_free(where) for one, where in zip(expected, free, strict=True))
        if call.task.tolerance.kinks and case.direction == "backward":
            expected = tuple(replace(e, kinks=both) for e, both in zip(expected, _kinks(call), strict=True))
        if case.distribution == "large_scale":
            expected = tuple(replace(one, overflows=_overflows(one, call.given)) for one in expected)
        return Expectation(outputs=expected, args=(*call.args, *(call.grads or ())))


def _kinks(call: ReferenceCall) -> list[tuple[torch.Tensor, torch.Tensor] | None]:
    """``Expected.kinks`` of each gradient."""
    wide = call.converted(widened)
    with precision(tf32=False):
        between = call.task.tolerance.kinks == "between"
        step = 2.0**-25 if call.case.dtype == "float16" and not between else 0.0
        return kinks.limits(lambda args: replace(wide, args=args).run("fp64"), wide.args, between=between, step=step)


def _asks_less(call: ReferenceCall) -> bool:
    """Whether nothing is asked where the reference makes NaN of an infinity (``Nonfinite``)."""
    specs = call.task.arguments(call.case.dims_map, call.case.dtype)
    all_asked = ("ieee", "nan", "channels", "none")
    return any(isinstance(spec, TensorSpec) and spec.nonfinite not in all_asked for spec in specs)


def _of_infinities(call: ReferenceCall) -> list[torch.Tensor | None]:
    """Where each output of the reference is NaN though no input is: NaN is replaced by a number there."""
    with precision(tf32=False):
        outputs = call.converted(lambda tensor, number: widened(tensor, number).nan_to_num(1.0, math.inf, -math.inf))
        found = outputs.run("fp64")
    return [out.isnan() if inexact(out) and bool(out.isnan().any()) else None for out in found]


def _overflows(expected: Expected, given: Sequence[Any]) -> bool:
    """Whether native, in a half type, has numbers that are not finite where the oracle does not round to them, though
    what it is given is finite.
    """
    own = expected.native
    if own.dtype not in (torch.float16, torch.bfloat16):
        return False
    lost = bool((~own.isfinite() & (expected.oracle.to(own.dtype) != own)).any())
    return lost and all(bool(opened(t).isfinite().all()) for t in given if inexact(t))


def _of_fp32(call: ReferenceCall, expected: Sequence[Expected]) -> list[torch.Tensor | None]:
    """Where the native reference makes NaN in fp32 of what it takes in a half type: kernels may compute in fp32.
    PyTorch 2.13's gelu of infinity is NaN on AMD processors of 2025, in fp32 alone.
    """
    if not any(one.native.dtype in (torch.float16, torch.bfloat16) for one in expected):
        return [None] * len(expected)
    with precision(tf32=False):
        wide = call.there().converted(lambda t, _: t.float() if t.dtype.itemsize == 2 else t).run("fp32")
    lost = [
        inexact(out) and out.isnan().to(one.native.device) & ~one.oracle.isnan()
        for out, one in zip(wide, expected, strict=True)
    ]
    return [where if isinstance(where, torch.Tensor) and bool(where.any()) else None for where in lost]


_FINE = 14
"""Bits beyond which rounding is fine (``Expected.fine``). One element in 256 that is exchanged changes a sum by a
sixteenth of its scatter. Half types have 5 to 8 bits, TF32 10, and fp32 14 to 21."""


@dataclass(frozen=True, kw_only=True)
class _Runs:
    """What comes out of one call in several runs of the reference: an entry for each output."""

    call: ReferenceCall
    tf32: bool
    every: bool
    """Whether native outputs are those of all forms (:func:`_furthest`)."""
    oracle: Tensors
    native: Tensors
    probed: Tensors
    """On moved inputs."""
    plain: Tensors
    """In fp64 without the quantisation; empty: the operator has none."""
    flips: Flips | None = None
    """Which elements may fall to the other side of a step; None: not known, or no problem file's."""
    bits: int = 0
    """How many bits of a number rounding leaves, where ``flips`` are known."""
    known: dict[int, Expected] = field(default_factory=dict)
    """Floating outputs with their bounds, as far as they were made."""
    rounded: dict[int | None, list[Tensors]] = field(default_factory=dict)
    """Oracles rounded at random, as far as they were made, by their bits; None: as fp32."""

    @classmethod
    def of(cls, call: ReferenceCall, tf32: bool, *, every: bool = True) -> _Runs:
        oracle = _exact(call)
        with precision(tf32=False):
            drawn = call.task.tolerance.kind == "random" and call.case.direction == "forward"
            moved = oracle if drawn else _moved(call, oracle)
        if len(oracle) != len(moved):
            raise UsageError(f"task {call.task.name} has {len(oracle)} outputs, and {len(moved)} on moved inputs")
        native, plain = _native(call, oracle, tf32, every=every), _unquantised(call)
        return cls(call=call, tf32=tf32, every=every, oracle=oracle, native=native, probed=moved, plain=plain)

    def of_every_form(self) -> _Runs:
        """The same with native outputs of all forms."""
        with _ONE, precision(tf32=self.tf32):
            native = _furthest(self.call, self.oracle, self.native)
        return replace(self, every=True, native=native, known={})

    def rounded_at_random(self) -> _Runs:
        """The same of a problem file, each element of its native outputs as far off as oracles are whose every number
        is rounded as fp32 (their rms), where native is nearer.
        """
        call, turns = self.call, list[Tensors]()
        with _ONE, precision(tf32=False):
            for turn in range(_ROUNDED_TURNS):
                with contextlib.suppress(UsageError):  # a matrix that has no root when it is rounded
                    turns.append(noisy(call.problem, call.args, call.weights, Noise(_FP32_BITS, turn)))
        several = zip(*turns, strict=True) if turns else [() for _ in self.native]
        four = zip(self.native, self.oracle, several, strict=True)
        native = tuple(_worse(own, _scattered(own, wide, others), wide) for own, wide, others in four)
        return replace(self, native=native, known={})

    def apart_from_flips(self) -> _Runs:
        """The same of a problem file, its native outputs put right where they fall to the other side of a step; of
        gradients behind rounded numbers, with the means to do so.
        """
        call, problem = self.call, self.call.problem
        floors = [self._given(index)["floor"] for index, kind in enumerate(self.kinds) if kind == "float"]
        # where neither holds, a kink lies at an input, which every kernel sees alike
        rounded = call.task.level > 1 or call.task.tolerance.reduction is not None
        if problem is None and floors and call.case.direction == "backward" and rounded:
            return self._beside_kinks(max(f.probe_scale * PROBE * f.conditioning for f in floors))
        if problem is None or not floors:
            return self
        # eight roundings and what sums add, as floors allow for
        noise = max(f.probe_scale * PROBE * (f.conditioning + f.intermediate) for f in floors)
        bits, formulas = math.ceil(-math.log2(noise)), [contextlib.nullcontext(), *call.other_formulas()]

        def run(turn: int) -> Tensors:
            with _ONE, precision(tf32=False), formulas[turn % len(formulas)]:
                outputs = noisy(problem, call.args, call.weights, Noise(bits, turn))
            return tuple(held(*pair) for pair in zip(outputs, self.native, strict=True))

        def asked() -> bool:
            with _ONE, precision(tf32=False):
                return jumps(problem, call.case.distribution, _place_of(call))

        right = [held(*pair) for pair in zip(self.oracle, self.native, strict=True)]
        flips = Flips(run, asked, right, self._smooth)

        def put_right(index: int, own: torch.Tensor) -> torch.Tensor:
            if self.kinds[index] != "float" or within_floor(self._bounded(index)):
                return own
            least = self._tolerance(index, self.probed[index])
            return own if least is None or not _beyond(own, right[index], least) else flips.nearest(index, own)

        native = tuple(put_right(index, own) for index, own in enumerate(self.native))
        known = {index: one for index, one in self.known.items() if native[index] is self.native[index]}
        return replace(self, native=native, flips=flips, bits=bits, known=known)

    def _beside_kinks(self, noise: float) -> _Runs:
        """The same of gradients, which jump where a sum lies beside the kink of a function: ``relu(x @ w)`` is 0 in one
        kernel and a rounding error above it in another.
        """
        bits = math.ceil(-math.log2(noise)) if noise else 0

        def run(turn: int) -> Tensors:
            rounded = Noise(bits, turn)
            call = self.call.converted(lambda tensor, number: rounded.rounded(widened(tensor, number)))
            with _ONE, precision(tf32=False), rounded:
                outputs = call.run("fp64")
            return tuple(held(*pair) for pair in zip(outputs, self.native, strict=True))

        def asked() -> bool:
            with _ONE, precision(tf32=False):
                return kinks.has_kinks(self.call.task.reference, lambda: _exact(self.call))

        right = [held(*pair) for pair in zip(self.oracle, self.native, strict=True)]
        return replace(self, flips=Flips(run, asked, right, self._smooth, rare=True), bits=bits)

    def _smooth(self) -> list[torch.Tensor | None]:
        """How far elements may be off where nothing jumps: inputs are moved by so little that none falls over."""
        small = 2.0**-22
        try:
            with _ONE, precision(tf32=False):
                moved = self.call.moved(wide=True, size=small).run("fp64")
        except UsageError:  # the file takes no others
            return self._tolerances(self.probed)
        return self._tolerances([_calmer(*three, small) for three in zip(moved, self.probed, self.oracle, strict=True)])

    def _tolerances(self, probed: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """How far elements of each output may be off by its floor alone, however far native is; None: is not asked."""
        return [self._tolerance(index, moved) for index, moved in enumerate(probed)]

    def _tolerance(self, index: int, probed: torch.Tensor) -> torch.Tensor | None:
        wide, own = self.oracle[index], self.native[index]
        if self.kinds[index] != "float" or own.is_complex() or not own.numel():
            return None
        one = bounded(wide, wide.to(own.dtype), probed, **self._given(index))
        assert one.bounds is not None
        tolerance = (one.bounds.local + one.bounds.slack) / one.bounds.gain
        return tolerance.view(own.shape).to(one.oracle.dtype)

    def _bounded(self, index: int, pool: Sequence[Scales] = ()) -> Expected:
        """A floating output with its bounds."""
        if index not in self.known:
            tensors = self.oracle[index], self.native[index], self.probed[index]
            given = self._given(index)
            one = bounded(*tensors, **given, pool=pool, independent=self.independent[index])
            self.known[index] = following(one, sum(g.numel() for g in self.call.grads or ()))
        return self.known[index]

    @functools.cached_property
    def kinds(self) -> list[Kind]:
        return [_kind(self.call, own) for own in self.native]

    @functools.cached_property
    def independent(self) -> list[int]:
        """Elements that are no repetitions of others; 0 of outputs that have no bounds."""
        case = self.call.case
        repeats = case.layout == "expanded" or case.distribution == "constant"
        count = independent if repeats else torch.Tensor.numel
        return [count(wide) if kind == "float" else 0 for kind, wide in zip(self.kinds, self.oracle, strict=True)]

    def expected(self, pool: Sequence[Sequence[Scales | None]]) -> tuple[Expected, ...]:
        """The outputs with their bounds, for which ``pool`` has scales on further draws."""
        call, near, found = self.call, list[Tensors](), list[Expected]()
        for index, (kind, wide, own) in enumerate(zip(self.kinds, self.oracle, self.native, strict=True)):
            if kind == "random":
                found.append(Expected(kind=kind, oracle=wide.to(own.dtype), native=own, law=call.task.tolerance.law))
                continue
            if kind != "float":
                values = [n for n in self.native if inexact(n)]
                stable = call.task.tolerance.stable
                named = positions(own, values, call.args, stable=stable) if call.problem is not None else None
                if named is None and kind == "count" and not near:
                    near = _nudged(call)
                one = named or exactly(kind, wide, own, call.args, near=[n[index] for n in near])
                # a task of this library says what it counts or names, a file does not
                found.append(one if call.problem is not None else replace(one, either=()))
                continue
            count = self.independent[index]
            others = [s for s in (scales[index] for scales in pool) if s is not None] if count < POOLED else []
            one = self._bounded(index, others)
            if self.flips is not None:
                one = replace(one, undone=functools.partial(self.flips.undone, index), fine=self.bits >= _FINE)
            found.append(_by_contract(one, self.plain[index], call.task.tolerance) if self.plain else one)
        return tuple(found)

    def scales(self) -> list[Scales | None]:
        """Those of each output, to be pooled; None of one that has no bounds."""
        three = zip(self.oracle, self.native, self.probed, strict=True)
        return [
            scales_of(*tensors, **self._given(index)) if kind == "float" else None
            for index, (kind, tensors) in enumerate(zip(self.kinds, three, strict=True))
        ]

    def _given(self, index: int) -> dict[str, Any]:
        """What bounds take beside the outputs."""
        call, own = self.call, self.native[index]
        forward_numel = sum(g.numel() for g in call.grads or ())
        weights = tuple(call.weights.values())
        length = reduction_length(call.task, call.case, call.args, weights, own.shape, forward_numel)
        aside = _rms(self.oracle[index] - self.plain[index]) if self.plain else 0.0
        # a problem file does not say whether it multiplies matrices: those that have no two do not
        products = not call.task.module or sum(t.ndim > 1 for t in (*call.args, *weights) if inexact(t)) > 1
        given, tolerance = (own.dtype, length, call.case), call.task.tolerance
        floor = floor_of(*given, tolerance, tf32=self.tf32, quantised_rms=aside, products=products, inside=call.inside)
        floor = replace(floor, left=self._left(index, floor.unit))
        return {"floor": floor, "args": (*call.args, *(call.grads or ())), "length": length}

    def _left(self, index: int, unit: float) -> float:
        """``Floor.left``: of functions of single numbers, roundings; of a mask or what underflows nothing. Infinite
        where it is not known: sums cancel, and fused operators do not show what they round.
        """
        own, call = self.native[index], self.call
        if self.kinds[index] != "float" or not own.numel() or bool(held(self.oracle[index], own).any()):
            return math.inf
        if bool(self.probed[index].any()):
            return math.inf
        if call.task.level > 1 or call.task.tolerance.reduction is not None:
            return 0.0 if bool(self.oracle[index].any()) else math.inf  # not 0 in fp64: nothing cancels
        if not self.every:  # most are 0, which needs no more
            return 0.0
        sizes = [min(1.0, unit * 2.0**_FP32_BITS) * float(out[index].abs().amax()) for out in self._rounded(None)]
        half = _HALF_BITS.get(call.inside or getattr(torch, call.case.dtype))
        if half is not None and any(sizes):
            sizes += [float(out[index].abs().amax()) for out in self._rounded(half)]
        left = max(sizes, default=math.inf)
        return left if math.isfinite(left) else math.inf

    def _rounded(self, half: int | None) -> list[Tensors]:
        """Oracles whose every number is rounded at random: as fp32, exact ones too, or to so many bits. None where the
        reference raises, or takes too much memory.
        """
        if half not in self.rounded:
            call, found = self.call, self.rounded.setdefault(half, [])
            for turn in range(_FAR_TURNS):
                noise = Noise(half or _FP32_BITS, turn, wholly=half is None)
                with _ONE, precision(tf32=False), contextlib.suppress(UsageError, InfrastructureError):
                    if call.problem is not None:
                        found.append(noisy(call.problem, call.args, call.weights, noise))
                    else:
                        with noise:
                            found.append(_exact(call))
        return self.rounded[half]


def _exact(call: ReferenceCall) -> Tensors:
    with precision(tf32=False):
        return (call if call.problem is not None else call.converted(widened)).run("fp64")


def _native(call: ReferenceCall, oracle: Tensors, tf32: bool, *, every: bool = True) -> Tensors:
    """Native outputs, which have the form of the oracle's; of ``every`` form or of the usual one alone."""
    with precision(tf32=tf32):
        native = call.there().natively()
        if every:
            native = _furthest(call, oracle, native)
    task, dtype = call.task.name, call.case.dtype
    if len(oracle) != len(native):
        raise UsageError(f"task {task} has {len(oracle)} outputs in fp64 and {len(native)} in {dtype}")
    for index, (wide, own) in enumerate(zip(oracle, native, strict=True)):
        if wide.shape != own.shape:
            raise UsageError(f"output {index} of task {task} has other shapes in fp64 and {dtype}")
    return native


_JUMPED = 2.0**6
"""A response that is so many times another one is no response but a jump."""


def _calmer(moved: torch.Tensor, probed: torch.Tensor, oracle: torch.Tensor, part: float) -> torch.Tensor:
    """The oracle moved by what inputs moved by this part of ``PROBE`` tell, or by all of it, whichever is less; not
    where the least movement jumps as far as any.
    """
    if not inexact(oracle):
        return oracle
    little, much = (moved - oracle) / part, probed.to(oracle.dtype) - oracle
    less = torch.where(little.abs() < much.abs(), little, much)
    return oracle + less.masked_fill_(little.abs() > _JUMPED * much.abs(), 0.0)


def _beyond(native: torch.Tensor, oracle: torch.Tensor, tolerance: torch.Tensor) -> bool:
    return bool(((native.to(oracle.dtype) - oracle).abs() > tolerance).any())


_FLAWS: dict[tuple[object, ...], str] = {}
"""Problem file, sizes, distribution, device and TF32 -> why nothing says what is right there; empty: it is settled."""


def _place_of(call: ReferenceCall) -> tuple[object, ...]:
    return call.problem.file.hash, call.case.dims, call.case.distribution, call.problem.device


def _settled(call: ReferenceCall, tf32: bool) -> None:
    """Raises NotJudgedError: the native outputs of a problem file are further from fp64 than rounding leaves them. A
    bound of twice that error would let nearly anything pass. Public draws say so, the same for every candidate.
    """
    key = (*_place_of(call), tf32)
    if key not in _FLAWS:
        problem, distribution = call.problem, call.case.distribution
        draws = ((problem.inputs(seed, distribution), problem.weights(seed, distribution)) for seed in (1, 2))
        flaws = (_flaw(replace(call, args=args, weights=weights), tf32) for args, weights in draws)
        _FLAWS[key] = next(filter(None, flaws), "")
    if _FLAWS[key]:
        raise NotJudgedError(f"{call.problem.file.path} cannot be judged at {call.case.key}: {_FLAWS[key]}")


def _flaw(call: ReferenceCall, tf32: bool) -> str:
    """What is wrong with the native outputs on these arguments; empty: nothing."""
    oracle = _exact(call)
    native = _native(call, oracle, tf32)
    limit = limit_of((*call.args, *call.weights.values(), *native), call.inside, tf32=tf32)
    limit = allowed(limit, call.case.distribution)
    found = astray(native, oracle, limit)
    if found is None:
        return ""
    right = _Runs.of(call, tf32).apart_from_flips().native
    return str(found if too_many(native, right) else astray(right, oracle, limit) or "")


def _has_further_forms(call: ReferenceCall) -> bool:
    """Whether native outputs of other forms may be further from the oracle, which are asked where outputs are wrong
    without them: most are right, and such a form takes as long as the usual one. Of problem files they come at once.
    """
    return call.problem is None and (
        _of_other_kernels(call) or _cancels(call) or bool(call.task.unfused or call.other_formulas())
    )


def _cancels(call: ReferenceCall) -> bool:
    """Whether numbers that do not follow from the arguments may cancel: of zeros native and oracle have exactly 0 for
    the logarithm of a mean, ``log(N) - log(N)``, where a kernel with another logarithm has a rounding of it.
    """
    return call.problem is None and call.case.distribution == "zeros" and call.task.tolerance.law is None


def _of_other_kernels(call: ReferenceCall) -> bool:
    drawn = call.task.tolerance.law is not None  # the worse of two draws is no draw
    return call.problem is None and call.case.layout in _OTHER_KERNELS and not drawn


def _furthest(call: ReferenceCall, oracle: Tensors, native: Tensors) -> Tensors:
    """Native outputs: of these and those of other layouts and formulas, element by element the one furthest from the
    oracle. Usual forms and formulas are asked in the candidate's layout too, in which they may round otherwise.
    """
    there = call.there()
    placed = there.placed() if _of_other_kernels(call) else there
    if placed is not there:
        other = placed.natively()
        native = tuple(_worse(*three) for three in zip(native, other, oracle, strict=True))
    forms = (there,) if placed is there else (there, placed)  # kernels may copy their inputs first
    usual = call.task.unfused[-_USUAL:] if call.narrow else call.task.unfused[:_USUAL]
    separate = [
        replace(form, task=replace(call.task, reference=unfused)) for form, unfused in itertools.product(forms, usual)
    ]
    for form in separate:
        other = form.natively()
        native = tuple(_worse(*three) for three in zip(native, other, oracle, strict=True))
    if call.problem is not None and call.case.distribution == "far_mean":
        for turn in range(_FAR_TURNS):
            other = noisy(call.problem, call.args, call.weights, Noise(_FP32_BITS, turn))
            native = tuple(_worse(*three) for three in zip(native, other, oracle, strict=True))
    if _cancels(call):
        for turn in range(_FAR_TURNS):
            with contextlib.suppress(UsageError), Noise(_FP32_BITS, turn):  # no root of what is rounded
                other = _exact(call)
                native = tuple(_left_over(*three) for three in zip(native, other, oracle, strict=True))
    for form in (*forms, *separate) if call.case.distribution == "common" else forms:
        for formula in call.other_formulas():
            with formula:
                other = form.natively()
            if formula.met:
                native = tuple(_worse(*three) for three in zip(native, other, oracle, strict=True))
            elif isinstance(formula, ByWeights):
                break
    return native


def _unquantised(call: ReferenceCall) -> Tensors:
    """What comes out in fp64 without the quantisation; empty: the operator has none."""
    form = call.task.tolerance.exact_form
    if form is None:
        return ()
    with precision(tf32=False):
        return replace(call, task=replace(call.task, reference=form)).converted(widened).run("fp64")


def _rms(tensor: torch.Tensor) -> float:
    finite = tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    return float(torch.linalg.vector_norm(finite)) / math.sqrt(max(1, tensor.numel()))


def _by_contract(expected: Expected, plain: torch.Tensor, tolerance: Tolerance) -> Expected:
    """The same with the contract, if the oracle itself keeps to it."""
    exact = plain.to(expected.oracle.dtype)
    keeps = not keeps_to(tolerance.contract, expected.oracle, exact)
    return replace(expected, plain=exact, contract=tolerance.contract if keeps else None)


def _moved(call: ReferenceCall, oracle: Tensors) -> Tensors:
    """Outputs on moved inputs. Under outliers the inputs are moved twice, and the further output counts: where a few
    numbers decide an element, chance moves them together so that nothing is seen (two scores of one large query).
    """
    # a module of a half type cannot be run on fp32 inputs: its oracle is probed instead
    what = "fp64" if call.problem is not None and call.narrow else "fp32"
    try:
        moved = call.moved().run(what)
        if call.case.distribution == "outlier":
            again = call.moved(number=AGAIN).run(what)
            moved = tuple(_worse(*three) for three in zip(moved, again, oracle, strict=True))
    except UsageError as error:
        if call.problem is None or isinstance(error, NotJudgedError):
            raise
        return _barely_moved(call, oracle)
    return moved


def _barely_moved(call: ReferenceCall, oracle: Tensors) -> Tensors:
    """The same for a problem file that raises on moved inputs (it asserts that rows sum to 1): what comes out on inputs
    moved by a few roundings, as much further from the oracle; the oracle, if the file takes no others at all. Then the
    error of the native outputs alone says how exact an answer must be.
    """
    try:
        moved = call.moved(wide=True, size=_ROUNDINGS / PROBE).run("fp64")
    except UsageError as error:
        if isinstance(error, NotJudgedError):
            raise
        return oracle
    return tuple(
        torch.lerp(wide, one, PROBE / _ROUNDINGS) if inexact(wide) else wide
        for wide, one in zip(oracle, moved, strict=True)
    )


def _scattered(native: torch.Tensor, oracle: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """The oracle and, at each element, the rms distance of others from it, in the native type."""
    if not others or not inexact(native) or native.itemsize < 4:
        return native
    squares = [(other - oracle).abs().square().nan_to_num(nan=0.0, posinf=0.0) for other in others]
    return (oracle + torch.stack(squares).mean(0).sqrt()).to(native.dtype)


def _worse(first: torch.Tensor, second: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Element by element the native output that is further from the oracle; made part by part, for an output may take
    a tenth of a device's memory.
    """
    dtype, quantised = first.dtype, first.dtype in (torch.int8, torch.uint8)
    if not (inexact(first) or quantised) or first.shape != second.shape:
        return first
    first, second, oracle = (t.short() if quantised else opened(t) for t in (first, second, oracle))
    worse = torch.empty_like(first, memory_format=torch.contiguous_format)
    shape = (1, first.numel())
    one, other, right, out = (t.reshape(shape) for t in (first, second, oracle, worse))
    for rows, columns in tiles(shape, first.device):
        a, b, o = one[rows, columns], other[rows, columns].to(one.dtype), right[rows, columns]
        torch.where((b - o).abs() > (a - o).abs(), b, a, out=out[rows, columns])
    return worse.to(dtype)


def _left_over(native: torch.Tensor, other: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """The native output, or what is left of numbers that cancel in another one: not what falls to another side of a
    step or a tie there, which is far more than rounding.
    """
    if not inexact(native) or native.shape != other.shape:
        return native
    size = float(torch.linalg.vector_norm(oracle)) / math.sqrt(max(1, oracle.numel()))
    most = _MOST_LEFT * (size if 1.0 < size < math.inf else 1.0)
    return _worse(native, torch.where((other - oracle).abs() <= most, other, oracle), oracle)


def _kind(call: ReferenceCall, native: torch.Tensor) -> Kind:
    kind = call.task.tolerance.kind
    if kind != "float" and call.case.direction == "forward":  # a gradient may be a sum of equal copies
        return kind
    return "float" if inexact(native) and not is_eight_bit(native) else "count"


_POOLS: dict[tuple[Any, ...], list[list[Scales | None]]] = {}
_MOST_POOLS = 4096


def _pool(runs: _Runs, draws: int) -> list[list[Scales | None]]:
    """Scales of the outputs on further draws of the same case; of a problem file none. Public seeds, the same for every
    candidate: they decide nothing but bounds.
    """
    call, tf32, every = runs.call, runs.tf32, runs.every
    if call.problem is not None or sum(a.numel() for a in call.args if isinstance(a, torch.Tensor)) > _POOL_ELEMENTS:
        return []
    task, case = call.task, call.case
    device = next((str(a.device) for a in call.args if isinstance(a, torch.Tensor)), "cpu")
    key = (
        task.reference,
        task.unfused,
        task.arguments,
        task.tolerance,
        case,
        tf32,
        every,
        draws,
        device,
        call.native_on,
    )
    if key in _POOLS:
        return _POOLS[key]
    specs = task.arguments(case.dims_map, case.dtype)
    found = []
    for seed in range(draws):
        args = inputs.draw(specs, case, seed, device)
        grads = None
        if call.grads is not None:
            forms = [(tuple(g.shape), str(g.dtype)[6:]) for g in call.grads]
            grads = inputs.upstream(forms, seed, device, case.layout, case.distribution)
        found.append(_Runs.of(replace(call, args=args, grads=grads), tf32, every=every).scales())
    if len(_POOLS) >= _MOST_POOLS:
        _POOLS.clear()
    _POOLS[key] = found
    return found
