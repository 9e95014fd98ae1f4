"""Tests of a task itself: would it pass what is right, and notice what is wrong? No worker, no candidate.

A task whose output hardly depends on its inputs, or that a constant or a copy of an input satisfies, rewards nothing
but luck; a tolerance that lets a planted bug through is too wide.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kerneleval.judge import inputs, oracle
from kerneleval.judge.comparison import Mismatch, compare
from kerneleval.judge.contract import keeps_to
from kerneleval.judge.expectation import Expectation, opened
from kerneleval.judge.tolerances import POOLED
from kerneleval.records import Case, Evidence, Task

__all__ = ["selftest"]

_FEWEST = 16
"""Outputs with fewer elements are passed or rejected by luck; only their reference is tested."""

_MOST_NATIVE = 0.125
"""Largest relative rms error of a native reference by which candidates can still be judged."""

_TELLING = 8.0
"""An end whose largest element is a smaller part of the largest of all is within what half types are off there: bounds
follow the largest error of a row, and a short last dim makes the whole output one row."""

_TELLING_DRAWS = 4096
"""Half as many numbers as it takes to tell that they are not drawn as they should be."""

_ROUNDINGS = 64.0
"""Roundings by which equal elements may differ."""

_SEED = 20240531
"""A task is public, so its self-test is repeatable."""

Tensors = tuple[torch.Tensor, ...]


def selftest(task: Task, device: str, cases: Sequence[Case], *, tf32: bool = False) -> list[Evidence]:
    """What is wrong with a task, case by case.

    At every case the native reference must pass and, on standard data, be near the oracle; for half types the reference
    computed in fp32 and rounded once must pass too. At standard contiguous cases other than edge cases, whose outputs
    have at least 16 elements:

    * the output depends on every tensor argument, and a gradient on every upstream gradient;
    * zeros, the mean of the output and copies of inputs are rejected;
    * planted bugs are rejected: the last row or column missing, the wrong sign, a narrower type.

    Args:
        task: an operator or module task.
        device: torch device.
        cases: where to test it.
        tf32: whether TF32 is allowed; then no test asks that it be noticed.

    Returns:
        Plain data with ``test`` (slug), ``level`` ``fail``, ``case`` and ``message``; empty: nothing is wrong.

    Raises:
        UsageError: the reference raises.
    """
    findings: list[Evidence] = []
    for case in cases:
        probe = _Probe.of(task, case, device, _SEED, tf32)
        if task.tolerance.law is not None:
            for drawn in (_reference_passes, _badly_drawn):
                findings += [_finding(case, drawn.__name__, text) for text in drawn(probe)]
            continue
        for test in (_reference_passes, _half_in_fp32, _well_conditioned):
            findings += [_finding(case, test.__name__, text) for text in test(probe)]
        telling = case.distribution == "standard" and case.layout == "contiguous" and case.shape_category != "edge"
        if telling and all(t.numel() >= _FEWEST for t in probe.expectation.native):
            for test in (_depends, _no_trivial_answer, _mutants, _downgrades):
                findings += [_finding(case, test.__name__, text) for text in test(probe)]
    return findings


def _finding(case: Case, test: str, text: str) -> Evidence:
    return {"test": test.strip("_"), "level": "fail", "case": case.key, "message": text}


@dataclass(frozen=True, kw_only=True)
class _Probe:
    """One drawn call of the task and its expectation."""

    call: oracle.Call
    expectation: Expectation
    other: oracle.Call
    """The same case under another seed."""
    tf32: bool

    @classmethod
    def of(cls, task: Task, case: Case, device: str, seed: int, tf32: bool) -> _Probe:
        problem = task.build(case.dims_map, device) if task.module and task.build is not None else None
        calls = []
        for number in (seed, seed + 1):
            if problem is not None:
                args, weights = list(problem.inputs(number)), problem.weights(number)
            else:
                args, weights = inputs.draw(task.arguments(case.dims_map, case.dtype), case, number, device), {}
            grads = None
            if case.direction == "backward":
                specs = oracle.output_specs(task, case, args)
                grads = inputs.upstream(specs, number, device, case.layout, case.distribution)
            calls.append(oracle.Call(task=task, case=case, args=args, grads=grads, problem=problem, weights=weights))
        own = calls[0]
        expectation = oracle.expect(task, case, own.args, own.grads, problem=problem, weights=own.weights, tf32=tf32)
        return cls(call=own, expectation=expectation, other=calls[1], tf32=tf32)

    def accepts(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs would pass."""
        return not isinstance(compare(outputs, self.expectation), Mismatch)

    def native(self, call: oracle.Call) -> Tensors:
        """Outputs of the native reference on another call."""
        with oracle.precision(tf32=self.tf32):
            return call.run(call.case.dtype)


# --------------------------------------------------------------------------------------------------------------------
# Tests: each yields one sentence for each thing that is wrong
# --------------------------------------------------------------------------------------------------------------------


def _reference_passes(probe: _Probe) -> Iterator[str]:
    result = compare(probe.expectation.native, probe.expectation)
    if isinstance(result, Mismatch):
        yield f"the native reference fails its own task: {result.message}"


def _badly_drawn(probe: _Probe) -> Iterator[str]:
    """What is no draw, or no independent one, of outputs that are drawn."""
    for position, output in enumerate(probe.expectation.native):
        flat = output.reshape(-1)
        half = flat.numel() // 2
        if half < _TELLING_DRAWS:
            continue
        wrong = {
            "the same number everywhere": flat[:1].expand(flat.shape),
            "numbers in order": flat.sort().values,
            "the first half twice": torch.cat((flat[:half], flat[:half], flat[2 * half :])),
            "its last eighth left at zero": torch.cat((flat[: -(half // 4)], torch.zeros_like(flat[: half // 4]))),
        }
        if flat.is_floating_point():
            wrong["its numbers times 1.25"] = flat * 1.25
        for name, mutant in wrong.items():
            if probe.accepts([mutant.view(output.shape).contiguous()]):
                yield f"output {position} passes with {name}"


def _well_conditioned(probe: _Probe) -> Iterator[str]:
    """Bounds follow the native error, so a reference that misses its own oracle would pass anything."""
    if probe.call.case.distribution != "standard":
        return
    for position, expected in enumerate(probe.expectation.outputs):
        if expected.bounds is None:
            continue
        scales = expected.bounds.scales
        if scales.rms > scales.floor_rms:  # else its terms cancel: zero, but for their rounding
            relative = scales.native_rms / scales.rms
            if relative > _MOST_NATIVE:
                yield f"output {position} of the native reference is off by {relative:.2g} of its size from the oracle"


def _half_in_fp32(probe: _Probe) -> Iterator[str]:
    """Computing in fp32 and rounding once is the best that a half kernel can do."""
    native = probe.expectation.native
    if probe.call.problem is not None or not any(t.dtype in (torch.float16, torch.bfloat16) for t in native):
        return
    with oracle.precision(tf32=False):
        outputs = probe.call.converted(lambda t, _: t.float() if t.dtype.itemsize == 2 else t).run("fp32")
    result = compare([o.to(n.dtype) for o, n in zip(outputs, native, strict=True)], probe.expectation)
    if isinstance(result, Mismatch):
        yield f"the reference computed in fp32 and rounded once fails: {result.message}"


def _depends(probe: _Probe) -> Iterator[str]:
    """Each tensor in turn is drawn anew; forward all arguments count, backward the upstream gradients."""
    forward = probe.call.case.direction == "forward"
    own: Sequence[Any] = probe.call.args if forward else probe.call.grads or ()
    others: Sequence[Any] = probe.other.args if forward else probe.other.grads or ()
    for position, (mine, other) in enumerate(zip(own, others, strict=True)):
        if not isinstance(mine, torch.Tensor) or mine.numel() == 0 or torch.equal(mine, other):
            continue
        changed = [*own[:position], other, *own[position + 1 :]]
        call = replace(probe.call, args=changed) if forward else replace(probe.call, grads=changed)
        if probe.accepts(probe.native(call)):
            what = f"argument {position}" if forward else f"upstream gradient {position}"
            yield f"the output passes although {what} has other values: it hardly depends on it"


def _no_trivial_answer(probe: _Probe) -> Iterator[str]:
    native, backward = probe.expectation.native, probe.call.case.direction == "backward"
    tensors = [t for t in (*probe.call.args, *(probe.call.grads or ())) if isinstance(t, torch.Tensor)]
    for position, output in enumerate(native):
        answers: list[tuple[str, torch.Tensor]] = [("zeros", torch.zeros_like(output))]
        if output.is_floating_point() and not (backward and _constant(output)):
            finite = output.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            answers.append(("its mean", torch.full_like(output, float(finite.mean()))))
        answers += [
            (f"a copy of tensor {i}", t)
            for i, t in enumerate(tensors)
            # where the operator itself copies (the gradients of a sum), a copy is right
            if t.shape == output.shape and t.dtype == output.dtype and not torch.equal(t, output)
        ]
        for name, answer in answers:
            if probe.accepts([*native[:position], answer, *native[position + 1 :]]):
                yield f"output {position} may be replaced by {name}"


def _constant(output: torch.Tensor) -> bool:
    """Whether all elements are one number but for rounding, as gradients of a bias whose outputs are summed are."""
    low, high = torch.aminmax(opened(output))
    return bool(high - low <= _ROUNDINGS * torch.finfo(output.dtype).eps * torch.maximum(low.abs(), high.abs()))


def _mutants(probe: _Probe) -> Iterator[str]:
    native = probe.expectation.native
    for position, output in enumerate(native):
        mutants: list[tuple[str, torch.Tensor]] = []
        sizes = (
            (output.abs() if output.is_complex() else output).double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs()
        )
        bounds = probe.expectation.outputs[position].bounds
        scale = max(float(sizes.square().mean().sqrt()), bounds.typical / bounds.gain if bounds is not None else 0.0)
        for dim, name in ((0, "first"), (-1, "last")):
            partial = output.clone()
            partial.select(dim, -1).zero_()
            # an end that happens to be near zero is no bug; another draw shows it
            end = sizes.select(dim, -1).max()
            if bool(end > 0.5 * scale) and bool(end > sizes.max() / _TELLING):
                mutants.append((f"with the end of its {name} dim left at zero", partial))
        if output.is_floating_point() and bool(torch.any(output != 0)):
            mutants.append(("with the wrong sign", (-opened(output)).to(output.dtype)))
        for name, mutant in mutants:
            if probe.accepts([*native[:position], mutant, *native[position + 1 :]]):
                yield f"output {position} passes {name}"


def _downgrades(probe: _Probe) -> Iterator[str]:
    """The reference on inputs rounded to a narrower type, whose outputs are rounded to it too."""
    native = probe.expectation.native
    if not any(t.is_floating_point() for t in native):
        return
    if probe.call.task.tolerance.exact_form is not None:  # its type is narrow already
        yield from _unquantised(probe)
        return
    for name, narrow in _narrower(probe.call.case.dtype, probe.tf32).items():
        outputs = probe.native(probe.call.converted(functools.partial(_apply, narrow)))
        if name != "tf32":  # products of tf32 numbers are accumulated and stored in fp32
            outputs = tuple(narrow(o) if o.is_floating_point() else o for o in outputs)
        if all(torch.equal(o, n) for o, n in zip(outputs, native, strict=True)):
            continue  # the sign of a number is the same in any type
        if probe.accepts(outputs):
            yield f"computing with {name} inputs passes"


def _unquantised(probe: _Probe) -> Iterator[str]:
    """What exact arithmetic gives, and a result that breaks the contract of its own operator."""
    for position, (expected, native) in enumerate(
        zip(probe.expectation.outputs, probe.expectation.native, strict=True)
    ):
        if expected.plain is None or native.numel() < POOLED:  # the bounds of fewer leave room for luck
            continue
        if probe.accepts([*probe.expectation.native[:position], expected.plain.to(native.dtype)]):
            yield f"output {position} passes without any quantisation"
        if expected.contract is None:
            broken = keeps_to(probe.call.task.tolerance.contract, expected.oracle, expected.plain)
            yield f"output {position} of the oracle breaks the contract: {broken}"


def _apply(narrow: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor, number: int) -> torch.Tensor:
    return narrow(tensor)


def _narrower(dtype: str, tf32: bool) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    def through(narrow: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
        return lambda t: t.to(narrow).to(t.dtype)

    found = {
        "float64": {"float32": through(torch.float32)},
        "float32": {"float16": through(torch.float16), "bfloat16": through(torch.bfloat16), "tf32": _tf32},
    }.get(dtype, {})
    # products of TF32 numbers are as exact as those of float16 numbers
    return {name: f for name, f in found.items() if not tf32 or name == "bfloat16"}


def _tf32(tensor: torch.Tensor) -> torch.Tensor:
    """fp32 values rounded to the 10 stored bits of TF32."""
    if tensor.dtype != torch.float32:
        return tensor
    return ((tensor.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
