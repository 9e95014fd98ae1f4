"""Tests of a task itself: would it pass what is right, and notice what is wrong? No worker, no candidate.

A task whose output hardly depends on its inputs, or that a constant or a copy of an input satisfies, rewards nothing
but luck; a tolerance that lets a planted bug through is too wide.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from kerneleval.judge.oracle.comparison import Mismatch, compare, keeps_to
from kerneleval.judge.oracle.expectation import POOLED
from kerneleval.judge.oracle.reference_call import precision
from kerneleval.judge.selftest.mutants import Fate, Planted, Probe, badly_drawn, fate, known, planted, structured
from kerneleval.records import Case, Evidence, Task

_MOST_NATIVE = 0.125
"""Largest relative rms error of a native reference by which candidates can still be judged."""

_SEED, _AGAIN = 20240531, 20240602
"""A task is public, so its self-test is repeatable."""

_FURTHER = (20240702, 20240803)
"""Seeds under which :func:`examine` asks once more whether the native reference passes."""

_TEST_OF = {
    "badly_drawn": "badly_drawn",
    "constant": "no_trivial_answer",
    "input_copied": "no_trivial_answer",
    "precision_downgrade": "downgrades",
    "unquantised": "downgrades",
}
"""Test as which a mutant that passes is told, by kind; ``mutants`` otherwise."""


def selftest(task: Task, device: str, cases: Sequence[Case], *, tf32: bool = False) -> list[Evidence]:
    """What is wrong with a task, case by case.

    At every case the native reference must pass and, on standard data, be near the oracle; for half types the reference
    computed in fp32 and rounded once must pass too. At standard contiguous cases other than edge cases, whose outputs
    have at least 16 elements:

    * the output depends on every tensor argument, and a gradient on every upstream gradient;
    * zeros, the mean of the output and copies of inputs are rejected;
    * planted bugs are rejected: the last row or column missing, the wrong sign; a narrower type at one case of the
      direction and dtype at least, because there are outputs that hide it (``logsumexp`` of a thousand numbers near 1).

    Args:
        tf32: whether TF32 is allowed; then no test asks that it be noticed.

    Returns:
        Plain data with ``test`` (slug), ``level`` ``fail``, ``case`` and ``message``; empty: nothing is wrong.

    Raises:
        UsageError: the reference raises.
    """
    examined = [_examined(task, device, case, tf32, further=False) for case in cases]
    shown = {
        (one.case.direction, one.case.dtype, f"computing with {end.name} passes")
        for one in examined
        for end in one.mutants
        if end.kind == "precision_downgrade" and end.fate == "killed"
    }
    return [
        finding
        for one in examined
        for finding in one.findings
        if (one.case.direction, one.case.dtype, finding["message"]) not in shown
    ]


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a self-test found at one case."""

    case: Case
    findings: list[Evidence]
    """What is wrong, as :func:`selftest` has it."""
    mutants: list[Fate]
    """What became of each planted bug, and of each kind that there is none of."""


def examine(task: Task, device: str, cases: Sequence[Case], *, tf32: bool = False) -> Iterator[Examined]:
    """What :func:`selftest` tests, case by case, and every planted bug with what became of it.

    Bugs are planted at standard contiguous cases other than edge cases, those that only inputs with structure show at
    every case. The native reference must pass on three draws,
    on two of them as it comes out of a second run. Arguments and errors as those of :func:`selftest`.
    """
    for case in cases:
        yield _examined(task, device, case, tf32, further=True)


def _examined(task: Task, device: str, case: Case, tf32: bool, *, further: bool) -> Examined:
    probe = Probe.of(task, case, device, _SEED, tf32)
    drawn = task.tolerance.law is not None
    found: list[Evidence] = []
    for test in (_reference_passes,) if drawn else (_reference_passes, _half_in_fp32, _well_conditioned):
        found += [_finding(case, test.__name__, text) for text in test(probe)]
    telling = case.distribution == "standard" and case.layout == "contiguous" and case.shape_category != "edge"
    mutants: Iterable[Planted] = badly_drawn(probe) if drawn else ()
    if telling and not drawn and not probe.small:
        mutants = known(probe)
        found += [_finding(case, "_depends", text) for text in _of_two_draws(task, case, device, tf32, probe)]
        found += [_finding(case, "_contract_kept", text) for text in _contract_kept(probe)]
    elif further and not drawn and not probe.small:
        mutants = [mutant for mutant in structured(probe) if mutant.outputs is not None]
    if further:
        found += [_finding(case, "reference_passes", text) for text in _runs_again(task, case, device, tf32)]
    fates: list[Fate] = []
    passed: dict[tuple[str, str], str] = {}
    for mutant in planted(probe) if telling and further else mutants:
        end = fate(probe, mutant)
        fates.append(end)
        counts = mutant.kind == "badly_drawn" if drawn else not probe.small
        if end.fate in ("survived", "equivalent") and mutant.said and counts:
            passed[end.kind, end.name] = mutant.said
    left = set(passed) | {(end.kind, end.name) for end in fates if end.fate == "survived" and further}
    killed = _killed(Probe.of(task, case, device, _AGAIN, tf32), left) if left else {}
    found += [
        _finding(case, _TEST_OF.get(key[0], "mutants"), said) for key, said in passed.items() if key not in killed
    ]
    fates = [killed.get((end.kind, end.name), end) for end in fates]
    return Examined(case=case, findings=found, mutants=fates if telling or not drawn else [])


def _killed(probe: Probe, left: Collection[tuple[str, str]]) -> dict[tuple[str, str], Fate]:
    """Those of the mutants, by kind and name, that are killed on a second draw, as a candidate gets two at every such
    case. Where PyTorch itself sums a half type's gradients in that type (norms on the CPU: 5 % off over 2,000 rows on
    one thread), a single draw may leave an end that is within its errors.
    """
    law = probe.call.task.tolerance.law is not None
    again = (fate(probe, m) for m in (badly_drawn(probe) if law else planted(probe)) if (m.kind, m.name) in left)
    return {(end.kind, end.name): end for end in again if end.fate == "killed"}


def _finding(case: Case, test: str, text: str) -> Evidence:
    return {"test": test.strip("_"), "level": "fail", "case": case.key, "message": text}


def _reference_passes(probe: Probe) -> Iterator[str]:
    result = compare(probe.expectation.native, probe.expectation)
    if isinstance(result, Mismatch):
        yield f"the native reference fails its own task: {result.message}"


def _runs_again(task: Task, case: Case, device: str, tf32: bool) -> Iterator[str]:
    """Sums by atomic additions, and algorithms chosen by the clock, come out otherwise in a second run."""
    for seed in _FURTHER:
        probe = Probe.of(task, case, device, seed, tf32)
        result = compare(probe.native(probe.call), probe.expectation)
        if isinstance(result, Mismatch):
            yield f"the native reference, run twice under seed {seed}, fails its own task: {result.message}"
        elif task.tolerance.law is None:
            yield from _half_in_fp32(probe)


def _well_conditioned(probe: Probe) -> Iterator[str]:
    """Bounds follow the native error, so a reference that misses its own oracle would pass anything."""
    if probe.call.case.distribution != "standard":
        return
    for position, expected in enumerate(probe.expectation.outputs):
        if expected.bounds is None:
            continue
        scales = expected.bounds.scales
        if scales.rms > scales.floor_rms:  # else its terms cancel: zero, but for their rounding
            relative = scales.native_rms / max(scales.rms, expected.bounds.typical)  # few numbers are small by chance
            if relative > _MOST_NATIVE:
                yield f"output {position} of the native reference is off by {relative:.2g} of its size from the oracle"


def _half_in_fp32(probe: Probe) -> Iterator[str]:
    """Computing in fp32 and rounding once is the best that a half kernel can do."""
    native = probe.expectation.native
    if probe.call.problem is not None or not any(t.dtype in (torch.float16, torch.bfloat16) for t in native):
        return
    with precision(tf32=False):
        outputs = probe.call.converted(lambda t, _: t.float() if t.dtype.itemsize == 2 else t).run("fp32")
    result = compare([o.to(n.dtype) for o, n in zip(outputs, native, strict=True)], probe.expectation)
    if isinstance(result, Mismatch):
        yield f"the reference computed in fp32 and rounded once fails: {result.message}"


def _depends(probe: Probe) -> Iterator[str]:
    """Each tensor in turn is drawn anew; forward all arguments count, backward the upstream gradients."""
    forward = probe.call.case.direction == "forward"
    if probe.call.narrow and any(t.numel() < POOLED for t in probe.expectation.native):
        return  # what few numbers of half types are rounded by hides a weight of a norm in one draw of thousands
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


def _of_two_draws(task: Task, case: Case, device: str, tf32: bool, probe: Probe) -> Iterable[str]:
    """What :func:`_depends` says of two draws: a table of two pages drawn anew may name the same pages."""
    said = tuple(_depends(probe))
    return said and [text for text in _depends(Probe.of(task, case, device, _AGAIN, tf32)) if text in said]


def _contract_kept(probe: Probe) -> Iterator[str]:
    """Of operators that quantise, the oracle must keep to the contract of its own."""
    for position, (expected, native) in enumerate(
        zip(probe.expectation.outputs, probe.expectation.native, strict=True)
    ):
        if expected.plain is not None and expected.contract is None and native.numel() >= POOLED:
            broken = keeps_to(probe.call.task.tolerance.contract, expected.oracle, expected.plain)
            yield f"output {position} of the oracle breaks the contract: {broken}"
