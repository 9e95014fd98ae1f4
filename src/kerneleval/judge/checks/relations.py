"""Metamorphic relations of the task: outputs on transformed inputs must follow from outputs on the original ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes import metamorphic
from kerneleval.judge.probes.calls import Calls
from kerneleval.records import REAL, Case, Finding, Outcome, Passed, new_secret

_SHAPES = ("small", "non_power_of_two")
"""Shape categories whose case is used: one that is quick, one that is awkward. Of models' shapes it is the first."""


@register
def _check(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    if calls.task.module:
        return
    for case in _chosen(cases, outcomes):
        bound = calls.bind(case)
        call_layout = calls.calibration[case].call_layout

        def run(args: Sequence[Any]) -> Sequence[torch.Tensor]:
            return calls.outputs(call_layout, args, case)  # noqa: B023 - called within this turn of the loop

        seed = new_secret()
        how: dict[str, Any] = {"tf32": calls.protocol.tf32, "native_on": bound.native_on}
        findings = metamorphic.check(calls.task, case, run, bound.arguments(seed), seed, **how)
        yield from findings
        if not findings and metamorphic.applicable(calls.task, case):
            names = ", ".join(r.name for r in metamorphic.applicable(calls.task, case))
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
