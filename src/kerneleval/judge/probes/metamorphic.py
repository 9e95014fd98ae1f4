"""Metamorphic relations: what a candidate's own outputs on other inputs say about its outputs on these.

No oracle says what must come out: the candidate is held against itself. How far its two answers may be apart follows
from the bounds at the transformed inputs, and from how far the native reference breaks the relation by rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.judge.oracle.exact import exactly
from kerneleval.judge.oracle.expectation import Expectation, Expected, as_real, opened
from kerneleval.judge.windows.inputs import stream
from kerneleval.records import Case, Evidence, Finding, Relation, Task, UsageError

__all__ = ["applicable", "check"]

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
    usual = (_usual(task.dtypes), "standard")
    return tuple(
        r
        for r in task.relations
        if (r.holds(case.dtype, case.distribution) if r.holds else (case.dtype, case.distribution) == usual)
    )


def _usual(dtypes: Sequence[str]) -> str:
    if "float32" in dtypes:
        return "float32"
    return next((dtype for dtype in dtypes if dtype not in ("float16", "bfloat16")), "")


def check(
    task: Task,
    case: Case,
    run: Run,
    args: Sequence[Any],
    seed: int,
    *,
    tf32: bool = False,
    native_on: str = "",
) -> list[Finding]:
    """Findings of every relation of the task that applies to the case; none: all hold.

    Args:
        task: an operator task.
        case: a forward case.
        run: calls the candidate on arguments of the case's shapes and dtypes and gives its outputs; called once on the
            original arguments and once for each relation. What it raises is passed on.
        args: the original arguments, on the device.
        seed: secret, for the random choices of the relations.
        tf32: whether TF32 is allowed.
        native_on: as in :func:`oracle.expect`.

    Returns:
        Findings of level ``fail`` and reason ``broken_relation``; their evidence is ``relation``, its name, and the
        figures of the comparison.

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
        pairs = zip(there.outputs, wanted, own, strict=True)
        outputs = tuple(_centred(expected, w, o, moved) for expected, w, o in pairs)
        result = compare(run(moved), Expectation(outputs=outputs, args=tuple(moved)))
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


def _centred(expected: Expected, wanted: torch.Tensor, own: torch.Tensor, moved: Sequence[Any]) -> Expected:
    """The output's bounds around what the relation asks for, widened by the native reference's breach of it.

    Args:
        expected: expectation at the transformed inputs.
        wanted: what the candidate's original outputs make it.
        own: what the native reference's original outputs make it.
        moved: the transformed arguments.
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
