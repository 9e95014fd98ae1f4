"""Mutants: what a broken kernel would give at one call of a task, and whether the judge rejects it.

It must reject all of them, but for those that are equivalent: two operands that may be exchanged, a shift of what is
constant. ``task_selftest.py`` tests tasks by them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare, matches
from kerneleval.judge.oracle.expectation import (
    POOLED,
    Expectation,
    Expected,
    as_real,
    is_eight_bit,
    opened,
    same,
    unit_roundoff,
)
from kerneleval.judge.oracle.reference_call import ReferenceCall, Tensors, precision
from kerneleval.judge.windows import inputs
from kerneleval.records import Case, Task, TensorSpec, UsageError

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
    "crowded_index": "what equal indices name beyond twice their even share and 16 taken from the next value",
    "lost_infinity": "infinities among the inputs taken for zeros",
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
    device: str
    seed: int
    tf32: bool

    @classmethod
    def of(cls, task: Task, case: Case, device: str, seed: int, tf32: bool) -> Probe:
        """Draw a call and run the references.

        Raises:
            UsageError: the reference raises.
        """
        problem = task.build(case.dims_map, device) if task.module and task.build is not None else None
        own = _drawn(ReferenceCall(task=task, case=case, args=(), problem=problem), seed, device)
        found = reference.expect(task, case, own.args, own.grads, problem=problem, weights=own.weights, tf32=tf32)
        return cls(call=own, expectation=found.widest, device=device, seed=seed, tf32=tf32)

    @functools.cached_property
    def other(self) -> ReferenceCall:
        """The same case under another seed."""
        return _drawn(self.call, self.seed + 1, self.device)

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


def _drawn(call: ReferenceCall, seed: int, device: str) -> ReferenceCall:
    task, case, problem = call.task, call.case, call.problem
    if problem is not None:
        args, weights = list(problem.inputs(seed)), problem.weights(seed)
    else:
        args, weights = inputs.draw(task.arguments(case.dims_map, case.dtype), case, seed, device), {}
    grads = None
    if case.direction == "backward":
        specs = reference.output_specs(task, case, args)
        grads = inputs.upstream(specs, seed, device, case.layout, case.distribution)
    return replace(call, args=args, grads=grads, weights=weights)


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


def _why_right(probe: Probe, mutant: Planted) -> str:
    """Why a mutant that passes is none; empty: it is one."""
    outputs = mutant.outputs or ()
    pairs = list(zip(outputs, probe.expectation.outputs, strict=True))
    if all(_gives_the_same(got, expected) for got, expected in pairs):
        return "it gives the same"
    if mutant.kind == "precision_downgrade":  # how wide the type is must show
        return ""
    if all(_as_near(got, expected) for got, expected in pairs):
        return "it is as near to the oracle as the native reference is"
    return ""


def _gives_the_same(got: torch.Tensor, expected: Expected) -> bool:
    """Whether it is the native output, wherever something is asked."""
    alike = same(as_real(got), as_real(expected.native))
    unasked = expected.unasked(got)
    if unasked is not None and unasked.shape == alike.shape:
        alike |= unasked
    return bool(alike.all())


def _as_near(got: torch.Tensor, expected: Expected) -> bool:
    if bool(same(as_real(got), as_real(expected.native)).all()):
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


_TELLING = 8.0
"""An end whose largest element is a smaller part of the largest of all is within what half types are off there: bounds
follow the largest error of a row, and a short last dim makes the whole output one row."""

_OWN_ERRORS = 4.0
"""An end of at most so many of PyTorch's own largest errors is within bounds: on the CPU, it sums gradients of the
gains of norms in half types (2,000 rows: 4 to 5 % off, 16,000: 10 to 15 %), and a kernel that sums so must pass."""

_FEW_STEPS = 32.0
"""An end of at most so many of the smallest numbers of its type is within bounds: gradients of a mean over a million
elements in float16 are."""

_TELLING_DRAWS = 4096
"""Half as many numbers as it takes to tell that they are not drawn as they should be."""

_ROUNDINGS = 64.0
"""Roundings by which equal elements may differ."""

_NARROWER = {
    "float64": ("float32",),
    "float32": ("float16", "bfloat16", "tf32"),
    "float16": ("bfloat16",),
    "bfloat16": ("float8_e5m2",),
    "complex128": ("float32",),
    "complex64": ("bfloat16",),
}
"""Types to which inputs and outputs are rounded, by the case's."""

_KNOWN = ("float64", "float32")
"""Those of these whose mutants :func:`task_selftest.selftest` asks to be rejected."""


def known(probe: Probe) -> Iterator[Planted]:
    """The mutants that a task's self-test asks to be rejected wherever they are planted; needs outputs of
    16 elements and more.
    """
    yield from _constants(probe)
    yield from _copies(probe)
    yield from _ends(probe)
    if probe.call.task.tolerance.exact_form is not None:  # its type is narrow already
        yield from _unquantised(probe)
    elif probe.call.case.dtype in _KNOWN:
        yield from _downgrades(probe)


def planted(probe: Probe) -> Iterator[Planted]:
    """Every mutant at this call; at least one of each kind, planted or not."""
    task = probe.call.task
    if task.tolerance.law is not None:
        yield from _constants(probe)
        yield from _copies(probe)
        yield from badly_drawn(probe)
        for kind in [kind for kind in KINDS if kind not in ("constant", "input_copied", "badly_drawn")]:
            yield Planted(kind=kind, why_not="drawn numbers have no right value")
        return
    if probe.small:
        yield from _constants(probe)
        for position, output in enumerate(probe.expectation.native):
            yield from _sign(probe, position, output)
        few = f"an output has fewer than {FEWEST_ELEMENTS} elements, so that luck decides"
        for kind in ("input_copied", "last_row_missing", "off_by_one_tail", "precision_downgrade"):
            yield Planted(kind=kind, why_not=few)
    else:
        for builder in (_constants, _copies, _ends, _neighbours):
            yield from builder(probe)
        if task.tolerance.exact_form is None:
            yield from _downgrades(probe)
    if task.tolerance.exact_form is not None:
        yield Planted(kind="precision_downgrade", why_not="its type is narrow already: see unquantised")
        yield from _unquantised(probe)
    yield from _transposed(probe)
    yield from _shifted(probe)
    yield from _swapped(probe)
    other, why = ("wrong_sign_output", "") if probe.backward else ("wrong_sign_gradient", task.no_backward)
    yield Planted(kind=other, why_not="it has no backward" if why else "planted in the other direction")
    if task.tolerance.exact_form is None:
        yield Planted(kind="unquantised", why_not="it does not quantise")
    yield Planted(kind="badly_drawn", why_not="it does not draw")
    yield from structured(probe)


def structured(probe: Probe) -> Iterator[Planted]:
    """The mutants that inputs without structure do not show; they are planted at every case."""
    found = {"crowded_index": False, "lost_infinity": False}
    for spec, arg in _tensors(probe):
        if spec.role == "index":
            changed, kind = _uncrowded(spec, arg), "crowded_index"
        elif arg.is_floating_point() and bool(arg.float().isinf().any()):  # the eight-bit types have no isinf
            changed, kind = torch.where(arg.isinf(), 0, arg), "lost_infinity"
        else:
            continue
        if not torch.equal(changed.nan_to_num(), arg.nan_to_num()):
            found[kind] = True
            args = list(probe.call.args)
            args[[a is arg for a in args].index(True)] = changed
            yield Planted(kind=kind, name=spec.name, outputs=probe.native(replace(probe.call, args=args)))
    whys = {"crowded_index": "no index is crowded here", "lost_infinity": "no input is infinite here"}
    for kind in [kind for kind, met in found.items() if not met]:
        yield Planted(kind=kind, why_not=whys[kind])


def _tensors(probe: Probe) -> Iterator[tuple[TensorSpec, torch.Tensor]]:
    """The tensor arguments of an operator."""
    call = probe.call
    specs = () if call.problem is not None else call.task.arguments(call.case.dims_map, call.case.dtype)
    for spec, arg in zip(specs, call.args, strict=call.problem is None):
        if isinstance(spec, TensorSpec):
            yield spec, arg


def _uncrowded(spec: TensorSpec, index: torch.Tensor) -> torch.Tensor:
    """Indices of which each value occurs at most twice as often as evenly spread ones, and 16 times more; what is
    beyond that has the next value.
    """
    flat, values = index.reshape(-1), max(1, spec.high - spec.low)
    order = flat.argsort(stable=True)
    ascending = flat[order]
    before = torch.empty_like(order)
    before[order] = torch.arange(len(flat), device=flat.device) - torch.searchsorted(ascending, ascending)
    crowded = before >= 2 * -(-len(flat) // values) + 16
    return torch.where(crowded, (flat - spec.low + 1) % values + spec.low, flat).view(index.shape)


def _constants(probe: Probe) -> Iterator[Planted]:
    for position, output in enumerate(probe.expectation.native):
        answers = {"zeros": torch.zeros_like(output)}
        if output.is_floating_point() and not probe.small and not (probe.backward and _constant(output)):
            finite = output.double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            answers["its mean"] = torch.full_like(output, float(finite.mean()))
        for name, answer in answers.items():
            yield _at(probe, "constant", position, name, answer, f"output {position} may be replaced by {name}")


def _copies(probe: Probe) -> Iterator[Planted]:
    tensors = [t for t in (*probe.call.args, *(probe.call.grads or ())) if isinstance(t, torch.Tensor)]
    found = False
    for position, output in enumerate(probe.expectation.native):
        for i, tensor in enumerate(tensors):
            if tensor.shape != output.shape or tensor.dtype != output.dtype:
                continue
            found = True
            name = f"a copy of tensor {i}"
            if torch.equal(tensor, output):  # where the operator itself copies (the gradients of a sum), it is right
                yield Planted(kind="input_copied", name=f"output {position}: {name}", why_not="the right answer is one")
                continue
            yield _at(probe, "input_copied", position, name, tensor, f"output {position} may be replaced by {name}")
    if not found:
        yield Planted(kind="input_copied", why_not="no input has the shape and the type of an output")


def _rolled(output: torch.Tensor, dim: int) -> torch.Tensor:
    """Shifted by one along a dim; numbers of eight bits as their bits, because CUDA does not shift them."""
    return output.view(torch.uint8).roll(1, dim).view(output.dtype) if is_eight_bit(output) else output.roll(1, dim)


def _constant(output: torch.Tensor) -> bool:
    """Whether all elements are one number but for rounding, as gradients of a bias whose outputs are summed are."""
    low, high = torch.aminmax(opened(output))
    return bool(high - low <= _ROUNDINGS * torch.finfo(output.dtype).eps * torch.maximum(low.abs(), high.abs()))


def _ends(probe: Probe) -> Iterator[Planted]:
    """Ends left at zero, and wrong signs, output by output."""
    for position, output in enumerate(probe.expectation.native):
        sizes = (
            (output.abs() if output.is_complex() else output).double().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs()
        )
        bounds = probe.expectation.outputs[position].bounds
        scale = max(float(sizes.square().mean().sqrt()), bounds.typical / bounds.gain if bounds is not None else 0.0)
        for kind, dim, name in (("last_row_missing", 0, "first"), ("off_by_one_tail", -1, "last")):
            partial = output.clone()
            partial.select(dim, -1).zero_()
            said = f"with the end of its {name} dim left at zero"
            # an end that happens to be near zero is no bug; another draw shows it
            end = sizes.select(dim, -1).max()
            why_not = ""
            if not (bool(end > 0.5 * scale) and bool(end > sizes.max() / _TELLING)):
                why_not = "the end is near zero in this draw"
            elif bool(end <= _FEW_STEPS * _step(output)):
                why_not = "the end is a few steps of its type"
            elif bool(end <= _OWN_ERRORS * _own_error(probe, position)):
                why_not = "PyTorch itself is off by a quarter of the end and more"
            if why_not:
                yield Planted(kind=kind, name=f"output {position}: {said}", why_not=why_not)
            else:
                yield _at(probe, kind, position, said, partial, f"output {position} passes {said}")
        yield from _sign(probe, position, output)


def _step(output: torch.Tensor) -> float:
    """The smallest number of an output's type that is not zero; 0 of whole numbers, of which one is no small step."""
    if not output.is_floating_point():
        return 0.0
    info = torch.finfo(output.dtype)
    return float(info.tiny) * float(info.eps)


def _own_error(probe: Probe, position: int) -> float:
    """Largest error of the native reference against the oracle; 0 where the output is judged by equality."""
    expected = probe.expectation.outputs[position]
    if expected.bounds is None:
        return 0.0
    error = (as_real(expected.native).double() - as_real(expected.oracle).double()).abs()
    return float(error.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max())


def _sign(probe: Probe, position: int, output: torch.Tensor) -> Iterator[Planted]:
    kind = "wrong_sign_gradient" if probe.backward else "wrong_sign_output"
    said = "with the wrong sign"
    if output.is_floating_point() and bool(torch.any(output != 0)):
        mutant = (-opened(output)).to(output.dtype)
        yield _at(probe, kind, position, said, mutant, f"output {position} passes {said}")
    elif output.is_complex():
        yield _at(probe, kind, position, said, -output)
    else:
        why = "all of it is zero" if output.is_floating_point() else "whole numbers and flags"
        yield Planted(kind=kind, name=f"output {position}: {said}", why_not=why)


def _neighbours(probe: Probe) -> Iterator[Planted]:
    said = "with the end of its last dim as its neighbour"
    for position, output in enumerate(probe.expectation.native):
        if output.shape[-1] < 2:
            yield Planted(
                kind="off_by_one_tail", name=f"output {position}: {said}", why_not="its last dim has one element"
            )
            continue
        partial = output.clone()
        partial.select(-1, -1).copy_(output.select(-1, -2))
        yield _at(probe, "off_by_one_tail", position, said, partial)


def _shifted(probe: Probe) -> Iterator[Planted]:
    """Outputs that are one step along a dim from where they belong."""
    for position, output in enumerate(probe.expectation.native):
        dims = dict.fromkeys(i for i, size in enumerate(output.shape) if size > 1)
        ends = list(dims)[:1] + list(dims)[1:][-1:]
        for dim in ends:
            name = f"shifted by one along dim {dim}"
            yield _at(probe, "wrong_axis", position, name, _rolled(output, dim))
        if not ends:
            yield Planted(kind="wrong_axis", name=f"output {position}: shifted", why_not="it has one element")


def badly_drawn(probe: Probe) -> Iterator[Planted]:
    """What is no draw, or no independent one, of outputs that are drawn."""
    for position, output in enumerate(probe.expectation.native):
        flat = output.reshape(-1)
        half = flat.numel() // 2
        if half < _TELLING_DRAWS:
            yield Planted(kind="badly_drawn", why_not=f"an output has fewer than {2 * _TELLING_DRAWS} numbers")
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
            shaped = mutant.view(output.shape).contiguous()
            yield _at(probe, "badly_drawn", position, name, shaped, f"output {position} passes with {name}")


def _at(probe: Probe, kind: str, position: int, name: str, output: torch.Tensor, said: str = "") -> Planted:
    outputs = probe.with_output(position, output)
    return Planted(kind=kind, name=f"output {position}: {name}", outputs=outputs, said=said)


def _transposed(probe: Probe) -> Iterator[Planted]:
    """Inputs that are square in the last two dims, transposed: rows taken for columns."""

    def square(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.ndim > 1 and value.shape[-1] == value.shape[-2] > 1

    def turned(values: Sequence[Any]) -> list[Any]:
        return [value.mT.contiguous() if square(value) else value for value in values]

    call = probe.call
    if not any(map(square, call.args)):
        yield Planted(kind="wrong_axis", name="square inputs transposed", why_not="no input is square here")
        return
    yield _run(probe, "wrong_axis", "square inputs transposed", replace(call, args=turned(call.args)))


def _swapped(probe: Probe) -> Iterator[Planted]:
    call, found = probe.call, False
    specs = call.task.arguments(call.case.dims_map, call.case.dtype) if call.problem is None else ()
    for i, j in itertools.combinations(range(len(specs)), 2):
        if not _exchangeable(specs[i], specs[j]):
            continue
        found = True
        args = list(call.args)
        args[i], args[j] = args[j], args[i]
        yield _run(probe, "swapped_operands", f"{specs[i].name} and {specs[j].name}", replace(call, args=args))
    if not found:
        yield Planted(kind="swapped_operands", why_not="no two inputs have one shape and type here")


def _exchangeable(one: Any, other: Any) -> bool:
    """Whether two arguments can stand in for one another. Whole numbers must have one range, because they may select;
    and what lies in [0, 1) stays there, because a GPU ends the process on a probability beyond.
    """
    if not (isinstance(one, TensorSpec) and isinstance(other, TensorSpec)):
        return False
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.dtype.startswith(("float", "bfloat", "complex")):
        return (one.values == "uniform") == (other.values == "uniform")
    return (one.role, one.values, one.low, one.high) == (other.role, other.values, other.low, other.high)


def _downgrades(probe: Probe) -> Iterator[Planted]:
    """The reference on inputs rounded to a narrower type, whose outputs are rounded to it too."""
    native = probe.expectation.native
    if not any(t.is_floating_point() or t.is_complex() for t in native):
        yield Planted(kind="precision_downgrade", why_not="whole numbers and flags")
        return
    narrow_types = _narrower(probe.call.case.dtype, probe.tf32)
    if not narrow_types:
        yield Planted(kind="precision_downgrade", why_not="there is no narrower type")
    for name, narrow in narrow_types.items():
        must_fail = probe.call.case.dtype in _KNOWN and any(t.is_floating_point() for t in native)
        said = f"computing with {name} inputs passes" if must_fail else ""
        found = _run(
            probe, "precision_downgrade", f"{name} inputs", probe.call.converted(functools.partial(_apply, narrow))
        )
        if found.outputs is None:
            yield found
            continue
        outputs = found.outputs
        if name != "tf32":  # products of tf32 numbers are accumulated and stored in fp32
            outputs = tuple(narrow(o) if o.is_floating_point() or o.is_complex() else o for o in outputs)
        if all(torch.equal(o, n) for o, n in zip(outputs, native, strict=True)):
            # the sign of a number is the same in any type
            yield Planted(kind=found.kind, name=found.name, why_not="the narrower type gives the same")
            continue
        yield replace(found, outputs=outputs, said=said)


def _unquantised(probe: Probe) -> Iterator[Planted]:
    """What exact arithmetic gives."""
    for position, (expected, native) in enumerate(
        zip(probe.expectation.outputs, probe.expectation.native, strict=True)
    ):
        name = "without any quantisation"
        if expected.plain is None or native.numel() < POOLED:  # the bounds of fewer leave room for luck
            why = f"it has fewer than {POOLED} elements" if expected.plain is not None else "nothing is quantised there"
            yield Planted(kind="unquantised", name=f"output {position}: {name}", why_not=why)
            continue
        plain = expected.plain.to(native.dtype)
        yield _at(probe, "unquantised", position, name, plain, f"output {position} passes {name}")


def _run(probe: Probe, kind: str, name: str, call: ReferenceCall) -> Planted:
    try:
        outputs = probe.native(call)
    except UsageError as error:
        return Planted(kind=kind, name=name, why_not=f"the reference refuses it: {error}")
    if forms_of(outputs) != forms_of(probe.expectation.native):
        return Planted(kind=kind, name=name, why_not="its outputs have another form")
    return Planted(kind=kind, name=name, outputs=outputs)


def _apply(narrow: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor, number: int) -> torch.Tensor:
    return narrow(tensor)


def _narrower(dtype: str, tf32: bool) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    # products of TF32 numbers are as exact as those of float16 numbers
    names = [name for name in _NARROWER.get(dtype, ()) if not (tf32 and dtype == "float32") or name == "bfloat16"]
    return {name: _tf32 if name == "tf32" else functools.partial(_through, getattr(torch, name)) for name in names}


def _through(narrow: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(torch.view_as_real(tensor.resolve_conj()).to(narrow).to(tensor.real.dtype))
    return tensor.to(narrow).to(tensor.dtype)


def _tf32(tensor: torch.Tensor) -> torch.Tensor:
    """fp32 values rounded to the 10 stored bits of TF32."""
    if tensor.dtype != torch.float32:
        return tensor
    return ((tensor.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
