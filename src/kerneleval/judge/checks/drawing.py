"""Operators that draw: equal seeds give equal outputs, and unlike seeds outputs that do not hang on each other."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.oracle.distribution import dependent
from kerneleval.judge.probes.calls import Calls
from kerneleval.records import Case, Finding, Outcome, Passed, TensorSpec, new_secret

_MOST_BYTES = 1 << 22
"""Of each dtype the smallest and the largest ordinary case that are looked at take no more."""


@register
def _check(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    law = calls.task.tolerance.law
    if law is None:
        return
    for case in _chosen(calls, cases, outcomes):
        call_layout = calls.calibration[case].call_layout
        arguments = calls.bind(case).arguments(new_secret())
        place = _place_of_seed(calls, case)
        seed = secrets.randbelow(2**31 - 2)
        given = [_with(arguments, place, value) for value in (seed, seed + 1, secrets.randbelow(2**31), seed)]
        drawn = [[t.clone() for t in calls.outputs(call_layout, args, case)] for args in given]
        if not all(torch.equal(one, again) for one, again in zip(drawn[0], drawn[3], strict=True)):
            message = f"{case.key}: seed {seed} gave other numbers when it came again"
            yield Finding(level="fail", stage="correctness", reason="not_reproducible", message=message)
            return
        for first, second in ((0, 1), (0, 2), (1, 2)):
            pair = [(drawn[i][0], given[i]) for i in (first, second)]
            words = dependent(law, *pair)
            if words:
                message = f"{case.key}: {words}"
                yield Finding(level="fail", stage="correctness", reason="dependent_draws", message=message)
                return
        message = f"{case.key}: a seed that comes again gives the same numbers, and other seeds independent ones"
        yield Finding(level="info", message=message)


def _chosen(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> list[Case]:
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


def _place_of_seed(calls: Calls, case: Case) -> int:
    specs = calls.task.arguments(case.dims_map, case.dtype)
    return next(i for i, spec in enumerate(specs) if isinstance(spec, TensorSpec) and spec.name == "seed")


def _with(arguments: Sequence[Any], place: int, seed: int) -> list[Any]:
    changed = list(arguments)
    changed[place] = torch.full_like(arguments[place], seed)
    return changed
