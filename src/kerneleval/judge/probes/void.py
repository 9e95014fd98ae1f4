"""Whether a problem file's outputs depend on its inputs: where they do not, a pass says nothing.

Asked once for each file, size and device, whatever the candidate, as is whether the
outputs are near fp64, by ``judge/oracle/reference.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kerneleval.judge.probes.calls import BoundCase
from kerneleval.records import Finding, NotJudgedError
from kerneleval.tasks.formats.soundness import depends, least_change
from kerneleval.tasks.formats.traits import same_bits

_SEEDS = (1, 2, 3)
"""Inputs that are compared; public, for they decide nothing about a candidate."""

_KNOWN: dict[tuple[object, ...], str] = {}
"""Task, dims and device -> the first distribution under which the outputs depend on the inputs; empty: none."""


def void(bound: BoundCase) -> list[Finding]:
    """A warning where the outputs of a problem file depend on the inputs under other distributions than its own only;
    and what else it does that is not judged. The file has been called.

    Raises:
        NotJudgedError: they depend on the inputs under none of the task's distributions.
    """
    case = bound.case
    key = (case.task, case.dims, bound.device.judge_device)
    if key not in _KNOWN:
        distributions = dict.fromkeys(("standard", *bound.task.distributions))
        _KNOWN[key] = next((d for d in distributions if _depends(bound, d)), "")
    found = _KNOWN[key]
    if not found:
        raise NotJudgedError(
            f"{bound.problem.file.path} is a void task at {case.key}: {_why(bound)}. Give it inputs, weights or sizes "
            "at which the outputs change, or leave it out of the suite",
            reason="void",
        )
    findings = _unjudged(bound.problem.changes)
    if found == "standard":
        return findings
    text = f"weak task at {case.key}: its outputs do not depend on the inputs that it draws, only under {found}"
    return [*findings, Finding(check="reference", level="warn", message=text)]


def _unjudged(changes: Sequence[str]) -> list[Finding]:
    """What to say of a file whose ``forward`` changes these in ``Model``."""
    if not changes:
        return []
    names = ", ".join(changes[:3]) + (f" and {len(changes) - 3} more" if len(changes) > 3 else "")
    text = (
        f"forward changes {names} of Model, without effect on later outputs: what a candidate does there is not judged"
    )
    return [Finding(check="reference", level="info", message=text)]


def _depends(bound: BoundCase, distribution: str) -> bool:
    problem, weights = bound.problem, bound.weights or {}
    first, given, varied = None, list[Any](), False
    for seed in _SEEDS:
        args = problem.inputs(seed, distribution)
        given = given or args
        varied = varied or not _equal(given, args)
        outputs = problem.oracle(args, weights)
        least = least_change((*args, *weights.values()), problem.inside)
        first = first or outputs
        if any(depends(one, other, least) for one, other in zip(first, outputs, strict=True)):
            return True
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    empty = not _elements(outputs) or bool(tensors and not _elements(tensors))
    return not varied and not empty  # nothing but integers that the file never varies: nothing is known of them


def _elements(tensors: Sequence[torch.Tensor]) -> int:
    return sum(t.numel() for t in tensors)


def _why(bound: BoundCase) -> str:
    """Why nothing can be learned from the outputs."""
    args = bound.problem.inputs(_SEEDS[0])
    outputs = bound.problem.oracle(args, bound.weights or {})
    if not _elements(outputs):
        return "its outputs have no elements, so every candidate is right"
    if all(bool(out.isnan().all()) for out in outputs):
        return "its outputs are nothing but NaN, so its inputs are none that Model is defined for"
    return "its outputs do not depend on its inputs, so whatever a candidate does with them is right"


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(same_bits(a, b) for a, b in zip(one, other, strict=True) if isinstance(a, torch.Tensor))
