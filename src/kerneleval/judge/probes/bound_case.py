"""A task bound to one case on one device: secret arguments, their layout in memory, the expectation.

It calls no candidate: ``calls.py`` does. Values are drawn by ``windows/inputs.py``, expectations come from
``oracle/reference.py``.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kerneleval.devices import Device
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.oracle.expectation import Expectation
from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import CallLayout, Refresh, TensorSlot, WindowBuffer, WindowLayout, dense
from kerneleval.judge.windows.layouts import gradient_of, strided
from kerneleval.records import Case, Scalar, Task, TensorSpec, UsageError

__all__ = ["BoundCase", "Calibrated", "Drawn", "other_scalars"]

_SMALL = 1e-2
"""A plain argument below this is taken for an epsilon."""

_FRACTIONS = 2**8
"""Fractions in units of 1 / this are numbers of bfloat16, and of float16."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Secret arguments of one call and what must come out."""

    args: list[Any]
    """Tensors and plain values, in the order of the call."""
    grads: list[torch.Tensor]
    """Upstream gradients; empty for forward."""
    expectation: Expectation
    """The oracle, the native outputs and the bounds."""

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Everything that is revealed, arguments before upstream gradients."""
        return [a for a in self.args if isinstance(a, torch.Tensor)] + self.grads


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What further calls of a case that was right are compared with. No tensors: a task has a hundred cases."""

    call_layout: CallLayout
    """Layout of one call."""
    relative_rms: float
    """As :attr:`Expectation.timed_relative_rms`."""
    worst: float
    """As :attr:`Expectation.timed_worst`."""
    scales: tuple[float, ...]
    """As :attr:`Expectation.timed_scales`."""


def other_scalars(task: Task, case: Case, *, larger: bool) -> dict[str, float]:
    """Secret values for the plain floating arguments. Small ones, which are added to something (epsilons), become 30 to
    100 times as large, so that it shows where they are left out, or, where they are not to be ``larger`` and the data
    is small enough to show it, as small; others (scales) become larger or smaller by up to a half, and are numbers of
    every floating type: to what is compared with them, a rounded one would be another.
    """
    specs = task.arguments(case.dims_map, case.dtype)
    values = {s.name: s.value for s in specs if isinstance(s, Scalar) and isinstance(s.value, float) and s.value}
    draw = secrets.SystemRandom().uniform

    def factor(value: float) -> float:
        if abs(value) >= _SMALL:
            return draw(1.25, 1.6) if larger else draw(0.5, 0.8)
        return 1 / draw(30, 100) if case.distribution == "small_scale" and not larger else draw(30, 100)

    def changed(value: float) -> float:
        if abs(value) < _SMALL:
            return float(f"{value * factor(value):.3g}")
        fraction, exponent = math.frexp(value * factor(value))
        return math.ldexp(round(fraction * _FRACTIONS), exponent) / _FRACTIONS

    return {name: changed(value) for name, value in values.items()}


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
        self.native_on = reference.native_place(device)

    def arguments(self, seed: int) -> list[Any]:
        """Fresh secret arguments."""
        if self.problem is not None:
            return list(self.problem.inputs(seed, self.case.distribution))
        return inputs.draw(self.specs, self.case, seed, self.device.judge_device)

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
        """The expectation for given arguments."""
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
        return Drawn(args=args, grads=grads, expectation=expectation)

    def calibrated(self, drawn: Drawn) -> Calibrated:
        """What further calls are compared with, by the bounds of one call."""
        known = drawn.expectation
        return Calibrated(
            call_layout=self.call_layout(drawn),
            relative_rms=known.timed_relative_rms,
            worst=known.timed_worst,
            scales=known.timed_scales,
        )

    def call_layout(self, drawn: Drawn, variant: int = 0) -> CallLayout:
        """The layout of one call; ``variant``: which variant of the case's layout (``layouts.strided``)."""
        slots = tuple(self._slot(position, arg, variant) for position, arg in enumerate(drawn.args))
        outputs = tuple((tuple(t.shape), str(t.dtype)[6:]) for t in drawn.expectation.native)
        grads = tuple(self._placed(gradient_of(tuple(g.shape), str(g.dtype)[6:]), variant) for g in drawn.grads)
        return CallLayout(args=slots, grads=grads, outputs=outputs, wanted=self.wanted, dims=self.dims)

    def other_layouts(self, drawn: Drawn) -> list[CallLayout]:
        """The same call in the other variants of the case's layout, as rows of a larger tensor for its right half.
        Where several tensors are not contiguous, a secret part of them is contiguous in one of these calls and
        the rest in another, and in a third one each part has a variant of its own. Empty for contiguous cases and for
        problem files.
        """
        if self.problem is not None or self.case.layout == "contiguous":
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

    def native_is_right(self, drawn: Drawn, call_layout: CallLayout) -> bool:
        """Whether PyTorch itself is right on the drawn tensors in this layout.

        It is not everywhere: cuDNN's gradients of attention, which PyTorch 2.11 takes for half types on Hopper, are
        wrong where the upstream gradient has other strides than the queries.

        Raises:
            InfrastructureError: the device has too little memory.
        """
        buffer = WindowBuffer(WindowLayout([call_layout], self.case.direction), self.device)
        buffer.fill(0, drawn.tensors)
        tensors = iter([buffer.tensor(0, index) for index in range(len(call_layout.slots))])
        args = [next(tensors) if isinstance(arg, torch.Tensor) else arg for arg in drawn.args]
        try:
            grads = list(tensors) or None
            outputs = reference.native(self.task, self.case, args, grads, tf32=self.tf32, native_on=self.native_on)
        except UsageError:
            return False
        return matches(outputs, drawn.expectation)

    def _slot(self, position: int, arg: Any, variant: int) -> TensorSlot | Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        shape, dtype = tuple(arg.shape), str(arg.dtype)[6:]
        if self.problem is not None:
            traits = self.problem.traits
            slot = dense(shape, dtype, refresh="scaled" if position in traits.structured else _refresh_of(arg))
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


def _refresh_of(tensor: torch.Tensor) -> Refresh:
    """How a problem's input may change, by what it looks like: integers whose rows are sorted may be offsets, and stay
    sorted; integers of which no two are equal may be a permutation, and stay one.
    """
    flat = tensor.reshape(-1)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool or flat.numel() < 2:
        return "elements"
    if tensor.shape[-1] > 1 and bool((tensor[..., 1:] >= tensor[..., :-1]).all()):
        return "steps"
    return "moved" if flat.unique().numel() == flat.numel() else "elements"
