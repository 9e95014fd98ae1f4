"""Cases at secret sizes and plain arguments: the plan's are public, so a candidate could have a table of them.

They are drawn anew for every check and are no cells of its verdict, because all candidates of a run share their cells.
A wrong one fails the verdict, with a replay line that names its sizes. ``tasks/secret_sizes.py`` draws the sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from kerneleval.judge.probes.bound_case import other_scalars
from kerneleval.judge.probes.cells import CellJudge
from kerneleval.judge.probes.variations import OTHERWISE
from kerneleval.judge.replay import Replay
from kerneleval.records import Case, Failed, Finding, Outcome, Reason
from kerneleval.tasks.secret_sizes import secret_cases
from kerneleval.tasks.shapes import Budget

__all__ = ["secret_shapes"]

_CHECK = "secret_shapes"


def secret_shapes(judge: CellJudge, planned: Mapping[Case, Outcome], budget: Budget, replay: Replay) -> list[Finding]:
    """Findings at secret sizes; none where a planned case is already wrong or where sizes are not free.

    A candidate may leave sizes out, but then it does so among the planned ones too.
    """
    if any(_wrong(outcome) for outcome in planned.values()):
        return []
    calls = judge.calls
    right: list[str] = []
    for number, case in enumerate(secret_cases(calls.task, tuple(planned), budget)):
        calls.scalars = other_scalars(calls.task, case, larger=bool(number % 2))
        others = "".join(f", {name}={value:g}" for name, value in calls.scalars.items())
        try:
            outcome = judge.judge(case)
        finally:
            calls.scalars = {}
        calls.calibration.pop(case, None)
        if not isinstance(outcome, Failed):
            right.append(case.key)
            continue
        planned_here = [o for c, o in planned.items() if (c.direction, c.dtype) == (case.direction, case.dtype)]
        if _wrong(outcome):
            return [_failure(case, others, outcome.stage, cast("Reason", outcome.reason), outcome.message, replay)]
        if outcome.evidence.get("strides") == OTHERWISE:
            continue  # which part is contiguous is drawn: the planned cases may have met no pair that it refuses
        if not any(isinstance(o, Failed) for o in planned_here) and _among_taken(case, planned):
            message = f"supports every planned size but not this one: {outcome.message}"
            return [_failure(case, others, outcome.stage, "hard_coded_shapes", message, replay)]
    return [Finding(check=_CHECK, level="info", message=f"right at {', '.join(right)}")] if right else []


def _among_taken(case: Case, planned: Mapping[Case, Outcome]) -> bool:
    """Whether every dim is within what the candidate was seen to take in that direction: above that, and below, it may
    have limits that no planned size met.
    """
    taken = [c.dims_map for c, o in planned.items() if c.direction == case.direction and not isinstance(o, Failed)]
    sizes = {name: [dims[name] for dims in taken] or [0] for name, _ in case.dims}
    return all(min(sizes[name]) <= size <= max(sizes[name]) for name, size in case.dims)


def _wrong(outcome: Outcome) -> bool:
    return isinstance(outcome, Failed) and outcome.reason != "unsupported"


def _failure(case: Case, others: str, stage: str, reason: Reason, message: str, replay: Replay) -> Finding:
    return Finding(
        check=_CHECK,
        level="fail",
        stage=stage,
        reason=reason,
        message=f"at sizes that are not in the plan, {case.key}{others}: {message}",
        replay=replay.line_of(case, stage),
    )
