"""Mutants: what a broken kernel would give at one call of a task, and whether the judge rejects it.

It must reject all of them, but for those that are equivalent: two operands that may be exchanged, a shift of what is
constant. ``planting.py`` makes mutants from what the reference gives; ``task_selftest.py`` tests tasks by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare, matches
from kerneleval.judge.oracle.expectation import Expectation, Expected, as_real
from kerneleval.judge.oracle.reference_call import ReferenceCall, Tensors, precision
from kerneleval.judge.oracle.tolerances import unit_roundoff
from kerneleval.judge.windows import inputs
from kerneleval.records import Case, Task

__all__ = ["FEWEST_ELEMENTS", "KINDS", "Fate", "Planted", "Probe", "fate", "forms_of"]

FEWEST_ELEMENTS = 16
"""Outputs with fewer elements are passed or rejected by luck; few bugs are planted there."""

KINDS: dict[str, str] = {
    "constant": "zeros, or the mean of the output, for the output",
    "input_copied": "a copy of an input for the output",
    "last_row_missing": "the last row (of the first dim) left at zero",
    "off_by_one_tail": "the end of the last dim left at zero, or at its neighbour's value",
    "wrong_axis": "square inputs transposed; outputs shifted by one along a dim",
    "swapped_operands": "two inputs of one shape exchanged",
    "wrong_sign_output": "the output with the wrong sign",
    "wrong_sign_gradient": "a gradient with the wrong sign",
    "precision_downgrade": "computed with inputs of a narrower type, and rounded to it",
    "unquantised": "a quantised operator without its quantisation",
    "badly_drawn": "random numbers that are constant, in order, repeated, scaled or missing at the end",
}
"""Slug of each kind of mutant, and what it is."""

_FEW_ROUNDINGS, _FEW_ROUNDINGS_64 = 4.0, 128.0
"""Roundings of the output's size by which the right answer may come out otherwise where native has hardly any error; of
64 bits, where the oracle is no more exact than native is.
"""


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One drawn call of a task and its expectation."""

    call: ReferenceCall
    expectation: Expectation
    other: ReferenceCall
    """The same case under another seed."""
    tf32: bool

    @classmethod
    def of(cls, task: Task, case: Case, device: str, seed: int, tf32: bool) -> Probe:
        """Draw a call, twice, and run the references.

        Raises:
            UsageError: the reference raises.
        """
        problem = task.build(case.dims_map, device) if task.module and task.build is not None else None
        calls = []
        for number in (seed, seed + 1):
            if problem is not None:
                args, weights = list(problem.inputs(number)), problem.weights(number)
            else:
                args, weights = inputs.draw(task.arguments(case.dims_map, case.dtype), case, number, device), {}
            grads = None
            if case.direction == "backward":
                specs = reference.output_specs(task, case, args)
                grads = inputs.upstream(specs, number, device, case.layout, case.distribution)
            calls.append(ReferenceCall(task=task, case=case, args=args, grads=grads, problem=problem, weights=weights))
        own = calls[0]
        expectation = reference.expect(task, case, own.args, own.grads, problem=problem, weights=own.weights, tf32=tf32)
        return cls(call=own, expectation=expectation, other=calls[1], tf32=tf32)

    @property
    def backward(self) -> bool:
        """Whether the outputs are gradients."""
        return self.call.case.direction == "backward"

    @property
    def small(self) -> bool:
        """Whether an output has so few elements that luck decides."""
        return any(t.numel() < FEWEST_ELEMENTS for t in self.expectation.native)

    def accepts(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Whether these outputs would pass. What fails is not diagnosed, which takes longest."""
        if forms_of(outputs) == forms_of(self.expectation.native) and not matches(outputs, self.expectation):
            return False
        return not isinstance(compare(outputs, self.expectation), Mismatch)

    def native(self, call: ReferenceCall) -> Tensors:
        """Outputs of the native reference on another call."""
        with precision(tf32=self.tf32):
            return call.run(call.case.dtype)

    def with_output(self, position: int, output: torch.Tensor) -> Tensors:
        """The native outputs but for one."""
        native = self.expectation.native
        return (*native[:position], output, *native[position + 1 :])


@dataclass(frozen=True, kw_only=True)
class Planted:
    """One mutant, or none."""

    kind: str
    """A key of :data:`KINDS`."""
    name: str = ""
    """Which of its kind, the same at every case of a task, direction and dtype: ``output 0: its mean``."""
    outputs: Tensors | None = field(default=None, repr=False)
    """What it gives; None: there is nothing to plant."""
    why_not: str = ""
    """Why there is nothing to plant."""
    said: str = ""
    """One sentence where it passes."""


@dataclass(frozen=True, kw_only=True)
class Fate:
    """What became of a mutant at one case."""

    kind: str
    """A key of :data:`KINDS`."""
    name: str
    """Which of its kind; empty: none could be planted."""
    fate: Literal["killed", "survived", "equivalent", "not_applicable"]
    """``killed``: the judge rejects it; ``equivalent``: it passes because it is right."""
    why: str = ""
    """Of those that are not killed."""


def fate(probe: Probe, mutant: Planted) -> Fate:
    """What becomes of a mutant."""
    if mutant.outputs is None:
        return Fate(kind=mutant.kind, name=mutant.name, fate="not_applicable", why=mutant.why_not)
    if not probe.accepts(mutant.outputs):
        return Fate(kind=mutant.kind, name=mutant.name, fate="killed")
    why = _why_right(probe, mutant)
    if why:
        return Fate(kind=mutant.kind, name=mutant.name, fate="equivalent", why=why)
    return Fate(kind=mutant.kind, name=mutant.name, fate="survived", why=_why_passed(probe, mutant.outputs))


def forms_of(outputs: Sequence[torch.Tensor]) -> list[tuple[torch.Size, torch.dtype]]:
    """Shape and dtype of each output."""
    return [(t.shape, t.dtype) for t in outputs]


# --------------------------------------------------------------------------------------------------------------------
# Those that pass
# --------------------------------------------------------------------------------------------------------------------


def _why_right(probe: Probe, mutant: Planted) -> str:
    """Why a mutant that passes is none; empty: it is one."""
    outputs = mutant.outputs or ()
    pairs = list(zip(outputs, probe.expectation.outputs, strict=True))
    if all(_same(got, expected.native) for got, expected in pairs):
        return "it gives the same"
    if mutant.kind == "precision_downgrade":  # how wide the type is must show
        return ""
    if all(_as_near(got, expected) for got, expected in pairs):
        return "it is as near to the oracle as the native reference is"
    return ""


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = as_real(one), as_real(other)
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _as_near(got: torch.Tensor, expected: Expected) -> bool:
    """Whether an output's error is within the native one's, or a few roundings of its size."""
    if _same(got, expected.native):
        return True
    if expected.bounds is None:
        return False
    oracle_, own, native = (as_real(t).double() for t in (expected.oracle, got, expected.native))
    finite = oracle_.isfinite() & own.isfinite() & native.isfinite()
    if not bool((finite | (own == native) | (own.isnan() & native.isnan())).all()):
        return False
    count = max(1, int(finite.sum()))

    def rms(values: torch.Tensor) -> float:
        return float(torch.linalg.vector_norm(values[finite])) / math.sqrt(count)

    dtype = expected.native.real.dtype if expected.native.is_complex() else expected.native.dtype
    few = (_FEW_ROUNDINGS_64 if dtype == torch.float64 else _FEW_ROUNDINGS) * unit_roundoff(dtype)
    return rms(own - oracle_) <= 2 * rms(native - oracle_) + few * rms(oracle_)


def _why_passed(probe: Probe, outputs: Tensors) -> str:
    """Figures of a mutant that is taken for right."""
    result = compare(outputs, probe.expectation)
    found = result.evidence
    if isinstance(result, Mismatch) or "relative_rms_error" not in found:
        kinds = ", ".join(dict.fromkeys(e.kind for e in probe.expectation.outputs))
        return f"passes the comparison of {kinds} outputs"
    error, bound, native = (
        found[name] for name in ("relative_rms_error", "relative_rms_bound", "native_relative_rms_error")
    )
    return f"relative rms error {error:.2g} is within the bound, {bound:.2g} (native {native:.2g})"
