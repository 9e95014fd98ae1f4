"""What a candidate's outputs on other inputs must be, given those on these: metamorphic relations, and draws by seed.

No oracle says what must come out: the candidate is held against itself. How far its two answers may be apart follows
from the bounds at the transformed inputs, and from how far the native reference breaks the relation by rounding. Of
operators that draw, equal seeds give equal outputs, and unlike seeds outputs that do not depend on each other.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.calibration import exactly
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.distribution import dependent, one_cycle
from kerneleval.judge.oracle.expectation import Expected, as_real, opened
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.windows.inputs import stream
from kerneleval.records import (
    REAL,
    Case,
    Evidence,
    Finding,
    Outcome,
    Passed,
    Relation,
    Task,
    TensorSpec,
    UsageError,
    new_secret,
)

_WIDER = 3.0
"""Both sides of a relation carry the candidate's error; an expected side such as f(x) - f(y) carries two."""

_NATIVE = 4.0
"""Multiple of the native reference's own breach of the relation."""

Run = Callable[[Sequence[Any]], Sequence[torch.Tensor]]


def applicable(task: Task, case: Case) -> tuple[Relation, ...]:
    """The relations to be checked at a case: forward only; standard data unless they say otherwise, in fp32, or where
    the task has none in the first type that is no half one (integers, complex numbers).
    """
    if case.direction != "forward":
        return ()
    first = next((dtype for dtype in task.dtypes if dtype not in ("float16", "bfloat16")), "")
    usual = ("float32" if "float32" in task.dtypes else first, "standard")
    return tuple(
        r
        for r in task.relations
        if (r.holds(case.dtype, case.distribution) if r.holds else (case.dtype, case.distribution) == usual)
    )


def broken_relations(
    task: Task,
    case: Case,
    run: Run,
    args: Sequence[Any],
    seed: int,
    *,
    tf32: bool = False,
    native_on: str = "",
) -> list[Finding]:
    """Findings (level ``fail``, reason ``broken_relation``) of every relation of the task that applies to the case;
    none: all hold.

    Args:
        run: calls the candidate on arguments of the case's shapes and dtypes and gives its outputs; called once on the
            original arguments and once for each relation. What it raises is passed on.
        seed: secret, for the random choices of the relations.

    Raises:
        UsageError: a relation changes shapes or dtypes.
    """
    relations = applicable(task, case)
    if not relations:
        return []
    known = reference.expect(task, case, args, tf32=tf32, native_on=native_on)
    # a private copy: the candidate's next call may reuse the memory
    first = [output.clone() for output in run(args)]
    result = compare(first, known)
    if isinstance(result, Mismatch):
        return [_finding("original", f"wrong before any relation: {result.message}", result.evidence)]
    findings = []
    for number, relation in enumerate(relations):
        moved = list(relation.transform(list(args), _generator(seed, number, args)))
        _same_form(task, relation, args, moved)
        wanted = relation.expect(first, list(args), _generator(seed, number, args))
        own = relation.expect(list(known.native), list(args), _generator(seed, number, args))
        there = reference.expect(task, case, moved, tf32=tf32, native_on=native_on)
        result = compare(run(moved), there.mapped(partial(_centred, wanted=wanted, own=own, moved=moved)))
        if isinstance(result, Mismatch):
            text = f"outputs on transformed inputs do not follow from the original ones: {result.message}"
            findings.append(_finding(relation.name, text, result.evidence))
    return findings


def _finding(relation: str, text: str, evidence: Evidence) -> Finding:
    message = f"relation {relation}: {text}"
    seen = {"relation": relation, **evidence}
    return Finding(level="fail", reason="broken_relation", message=message, evidence=seen)


def _generator(seed: int, number: int, args: Sequence[Any]) -> torch.Generator:
    device = next((str(a.device) for a in args if isinstance(a, torch.Tensor)), "cpu")
    return stream(seed, f"relation {number}", device)


def _same_form(task: Task, relation: Relation, args: Sequence[Any], moved: Sequence[Any]) -> None:
    forms = [[(a.shape, a.dtype) for a in values if isinstance(a, torch.Tensor)] for values in (args, moved)]
    if forms[0] != forms[1]:
        raise UsageError(f"relation {relation.name} of task {task.name} changes the shapes or dtypes of the arguments")


def _centred(
    outputs: Sequence[Expected], *, wanted: Sequence[torch.Tensor], own: Sequence[torch.Tensor], moved: Sequence[Any]
) -> list[Expected]:
    return [_centred_one(*three, moved) for three in zip(outputs, wanted, own, strict=True)]


def _centred_one(expected: Expected, wanted: torch.Tensor, own: torch.Tensor, moved: Sequence[Any]) -> Expected:
    """The output's bounds around what the relation asks for, widened by the native reference's breach of it.

    Args:
        wanted: what the candidate's original outputs make it.
        own: what the native reference's original outputs make it.
    """
    native = expected.native
    bounds = expected.bounds
    if bounds is None:
        if expected.kind == "float":
            return expected
        equal = exactly(expected.kind, wanted, wanted, moved)
        return replace(equal, allowed=2 * expected.allowed, far=2 * expected.far)  # errors of both of its answers
    breach = (as_real(native).double() - as_real(own).double()).abs_().mul_(bounds.gain)
    breach = torch.where(breach.isfinite(), breach, 0.0)
    rms, largest = torch.stack([breach.square().mean().sqrt(), breach.max()]).tolist()
    special = bounds.special or not bool(opened(wanted).isfinite().all())
    widened = replace(
        bounds,
        local=bounds.local * _WIDER,
        slack=bounds.slack * _WIDER + _NATIVE * largest,
        rms=bounds.rms * _WIDER + _NATIVE * rms,
        bulk=1.0,
        variation=float("inf"),
        special=special,
    )
    return Expected(
        kind="float", oracle=wanted.to(expected.oracle.dtype), native=wanted.to(native.dtype), bounds=widened
    )


_SHAPES = ("small", "non_power_of_two")
"""Shape categories whose case is used: one that is quick, one that is awkward. Of models' shapes it is the first."""


@register
def relations(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """Whether the task's metamorphic relations hold."""
    if calls.task.module:
        return
    for case in _chosen(cases, outcomes):
        bound = calls.bind(case)
        call_layout = calls.calibration[case].call_layout

        def run(args: Sequence[Any]) -> Sequence[torch.Tensor]:
            return calls.outputs(call_layout, args, case)  # noqa: B023 - called within this turn of the loop

        seed = new_secret()
        how: dict[str, Any] = {"tf32": calls.protocol.tf32, "native_on": bound.native_on}
        findings = broken_relations(calls.task, case, run, bound.arguments(seed), seed, **how)
        yield from findings
        if not findings and applicable(calls.task, case):
            names = ", ".join(r.name for r in applicable(calls.task, case))
            yield Finding(level="info", message=f"{case.key}: {names} hold")


def _chosen(cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> list[Case]:
    found = []
    real = [c.shape_category for c in cases if c.shape_category.startswith(REAL)]
    for shape in real[:1] or _SHAPES:
        fitting = (
            c
            for c in cases
            if (c.direction, c.distribution, c.layout, c.shape_category) == ("forward", "standard", "contiguous", shape)
            and isinstance(outcomes.get(c), Passed)
        )
        case = next(fitting, None)
        if case is not None:
            found.append(case)
    return found


SEED_BITS = 31
"""Bits of a task's seeds."""

_MOST_BYTES = 1 << 22
"""Of each dtype the smallest and the largest ordinary case that are looked at take no more."""


@register
def drawing(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """Whether draws follow the seed, and nothing but the seed."""
    law = calls.task.tolerance.law
    if law is None:
        return
    for case in _smallest_and_largest(calls, cases, outcomes):
        call_layout = calls.calibration[case].call_layout
        arguments = calls.bind(case).arguments(new_secret())
        specs = calls.task.arguments(case.dims_map, case.dtype)
        place = next(i for i, spec in enumerate(specs) if isinstance(spec, TensorSpec) and spec.name == "seed")
        seed = secrets.randbelow(1 << SEED_BITS)
        given = [_with(arguments, place, value) for value in (seed, *near_seeds(seed), seed)]
        drawn = [[t.clone() for t in calls.outputs(call_layout, args, case)] for args in given]
        if not all(torch.equal(one, again) for one, again in zip(drawn[0], drawn[-1], strict=True)):
            message = f"{case.key}: seed {seed} gave other numbers when it came again"
            yield Finding(level="fail", stage="correctness", reason="not_reproducible", message=message)
            return
        first, *others = [(outputs[0], args) for outputs, args in zip(drawn[:-1], given[:-1], strict=True)]
        told = (dependent(law, first, other) for other in others)
        words = next(filter(None, told), "") or one_cycle([outputs[0] for outputs in drawn[:-1]])
        if words:
            message = f"{case.key}: {words}"
            yield Finding(level="fail", stage="correctness", reason="dependent_draws", message=message)
            return
        message = f"{case.key}: a seed that comes again gives the same numbers, and other seeds independent ones"
        yield Finding(level="info", message=message)


def near_seeds(seed: int) -> list[int]:
    """Seeds of which each differs from that one in a single bit: the lowest, the highest, and a secret one. A kernel
    that keeps some of the bits alone draws the same numbers for two of them.
    """
    bits = (0, SEED_BITS - 1, secrets.randbelow(SEED_BITS))
    return [seed ^ 1 << bit for bit in bits]


def _smallest_and_largest(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> list[Case]:
    found: list[Case] = []
    for dtype in dict.fromkeys(case.dtype for case in cases):
        there = [
            case
            for case in cases
            if (case.dtype, case.distribution, case.layout) == (dtype, "standard", "contiguous")
            and isinstance(outcomes.get(case), Passed)
            and 0 < calls.task.bytes(case.dims_map, dtype) <= _MOST_BYTES
        ]
        there.sort(key=lambda case: calls.task.bytes(case.dims_map, case.dtype))
        found += dict.fromkeys(there[:1] + there[-1:])
    return found


def _with(arguments: Sequence[Any], place: int, seed: int) -> list[Any]:
    changed = list(arguments)
    changed[place] = torch.full_like(arguments[place], seed)
    return changed
