"""The tasks and the judge, by the tasks' own references."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import borrowed
from kerneleval.records import Failed, OnEvent, Protocol, Task, tell

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge


def selftest(
    tasks: Sequence[str] = (),
    *,
    device: str | None = None,
    dtypes: Sequence[str] = (),
    directions: Sequence[str] = (),
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> list[dict[str, Any]]:
    """Test tasks (names or paths; empty: every built-in one) on a device: every reference must pass its own task, and
    no trivial or damaged output may.

    Each task is tested twice: by itself (:func:`kerneleval.judge.selftest.task_selftest.selftest`: bounds, dependence
    on inputs, trivial answers, planted bugs), and with its reference as candidate through the whole judge, untimed.

    Returns:
        for each task ``task``, ``passed``, ``cases``, ``seconds`` and ``findings`` (each with ``test``, ``case`` and
        ``message``; empty where nothing is wrong).

    Raises:
        UsageError: an unknown task or device, or a reference that raises.
        InfrastructureError: the machine failed.
    """
    from kerneleval import tasks as library

    subjects = [library.open_task(name) for name in tasks] or list(library.all_tasks().values())
    protocol = Protocol(
        tier="standard",
        dtypes=tuple(dtypes),
        directions=tuple(directions),
        timed=False,
        allow=("custom", "mixed", "library"),
    )
    found = []
    with borrowed(judge, device) as owner:
        for done, task in enumerate(subjects):
            tell(on_event, "run", done, len(subjects), task.name)
            found.append(_selftest(owner, task, protocol, on_event))
        tell(on_event, "run", len(subjects), len(subjects), "done")
    return found


def _selftest(judge: Judge, task: Task, protocol: Protocol, on_event: OnEvent | None) -> dict[str, Any]:
    from kerneleval.judge.selftest.task_selftest import selftest as examine
    from kerneleval.judge.windows.worker_pool import baseline_candidate

    started = time.perf_counter()
    protocol = replace(
        protocol,
        dtypes=tuple(d for d in protocol.dtypes or task.dtypes if d in task.dtypes),
        directions=tuple(d for d in protocol.directions or task.directions if d in task.directions),
    )
    cases = judge.plan(task, protocol) if protocol.dtypes and protocol.directions else ()
    findings: list[dict[str, Any]] = []
    if cases:
        findings = [
            {name: finding[name] for name in ("test", "case", "message")}
            for finding in examine(task, judge.device.judge_device, cases)
        ]
        verdict = judge.check(
            baseline_candidate(task, protocol), task, protocol, cases=cases, trusted=True, on_event=on_event
        )
        findings += [
            {"test": "judged", "case": cell.case.key, "message": f"{cell.outcome.reason}: {cell.outcome.message}"}
            for cell in verdict.cells
            if isinstance(cell.outcome, Failed)
        ]
        if verdict.verdict != "passed" and not findings:
            findings.append({"test": "judged", "case": "", "message": f"{verdict.reason}: {verdict.message}"})
    return {
        "task": task.name,
        "passed": not findings,
        "cases": len(cases),
        "seconds": time.perf_counter() - started,
        "findings": findings,
    }
