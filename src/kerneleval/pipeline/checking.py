"""One candidate, judged: file -> candidate, name -> task, verdict; and the tasks, tested by their own references."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.records import (
    STORED,
    Candidate,
    CandidateSpec,
    Case,
    Failed,
    NotJudgedError,
    OnEvent,
    Protocol,
    ReplaySource,
    Task,
    UsageError,
    Verdict,
    asked,
    tell,
)
from kerneleval.worker.host import ahead

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge


def check(
    path: str | Path, task: str | Task, *, judge: Judge | None = None, on_event: OnEvent | None = None, **options: Any
) -> Verdict:
    """Judge one candidate: a file, or one that a run has stored; ``verdict.verdict`` is ``passed`` or ``failed``.

    Args:
        path: the candidate: ``.py`` (Triton, Numba, torch), ``.cpp``, ``.cu`` or ``.cl``; or ``store:HASH``, the
            beginning of its hash in the store.
        task: name of a built-in task, path of a problem file, or a task.
        judge: a warm judge to use (its device counts); None: one is started for this call.
        on_event: called as the work proceeds.
        options: any field of :class:`~kerneleval.records.CandidateSpec` and :class:`~kerneleval.records.Protocol`.

    Raises UsageError where the input is wrong (no such file, task, device, case or option; shapes that do not fit),
    InfrastructureError where the machine failed, not the candidate.
    """
    spec, protocol = asked(CandidateSpec, {**options, "source": str(path), "task": task})
    return check_candidate(spec, protocol, judge=judge, on_event=on_event)


def check_candidate(
    spec: CandidateSpec, protocol: Protocol, *, judge: Judge | None = None, on_event: OnEvent | None = None
) -> Verdict:
    """Judge one candidate: a file, or one that a run has stored. See :func:`kerneleval.check`."""
    with nullcontext() if judge is not None else ahead(spec.device):
        return _checked(spec, protocol, judge, on_event)


def _checked(spec: CandidateSpec, protocol: Protocol, judge: Judge | None, on_event: OnEvent | None) -> Verdict:
    task = open_task(spec.task, protocol)
    candidate, source, store = _read(spec, task)
    check_dtypes(task, protocol)
    with borrowed(judge, spec.device) as owner:
        cases = None
        if spec.case:
            from kerneleval.tasks.case_keys import read_case

            planned, most = owner.plan(task, protocol), owner.device.largest_case_bytes()
            cases = (read_case(spec.case, task, protocol, planned, most),)
        return owner.check(
            candidate,
            task,
            protocol,
            cases=cases,
            replay=ReplaySource(source=source, task=spec.task_source, store=store),
            fail_fast=spec.fail_fast,
            on_event=on_event,
        )


def _read(spec: CandidateSpec, task: Task) -> tuple[Candidate, str, str]:
    """The candidate; its name in replay lines; what these give as ``--store``."""
    if not spec.source.startswith(STORED):
        return read_source(spec, task), spec.source, ""
    named = {"--entry": spec.entry, "--backward-entry": spec.backward_entry, "--language": spec.language}
    if given := [option for option, value in named.items() if value]:
        raise UsageError(f"{spec.source} is stored with its language and entry points; leave out {', '.join(given)}")
    from kerneleval.store import for_replay, open_store

    candidate = open_store(spec.store_url, create=False, write=False).candidate(spec.source.removeprefix(STORED))
    return candidate, candidate.stored_name, for_replay(spec.store_url)


def read_source(spec: CandidateSpec, task: Task) -> Candidate:
    """The candidate in a file; raises UsageError where the file, its language or its entry point is wrong."""
    from kerneleval.languages import read_candidate

    return read_candidate(
        spec.source, task_name=task.name, entry=spec.entry, backward_entry=spec.backward_entry, language=spec.language
    )


def open_task(task: str | Task, protocol: Protocol) -> Task:
    """The task of that name, or of that file; a task itself as it is."""
    from kerneleval import tasks

    if protocol.shapes not in ("default", "sweep", "real"):
        raise UsageError(f"shapes {protocol.shapes!r} is unknown; known are default, real, sweep")
    if isinstance(task, Task):
        return task
    return tasks.open_task(task, sweep=protocol.shapes == "sweep", suite_seed=protocol.suite_seed)


def check_dtypes(task: Task, protocol: Protocol) -> None:
    """Raises UsageError unless the task has every dtype of the protocol."""
    for dtype in protocol.dtypes:
        if dtype not in task.dtypes:
            raise UsageError(f"task {task.name!r} is not judged in {dtype!r}; its dtypes are {', '.join(task.dtypes)}")


@contextmanager
def borrowed(judge: Judge | None, device: str | None) -> Iterator[Judge]:
    """The judge given, left open, or one of our own, closed at the end."""
    from kerneleval.judge import Judge

    with nullcontext(judge) if judge is not None else Judge(device) as owner:
        yield owner


def refused(error: NotJudgedError) -> Failed:
    """What a task that does not settle what is right says of every candidate."""
    return Failed(stage="correctness", reason=error.reason, message=str(error))


def unjudged(judge: Judge, task: Task, protocol: Protocol, why: Failed, candidate: str = "") -> Verdict:
    """A verdict where nothing was judged, without cells; ``candidate``: its content hash, where there is one."""
    return Verdict(
        verdict="not_judged",
        stage=why.stage,
        reason=why.reason,
        message=why.message,
        task=task.name,
        candidate=candidate,
        track="",
        trust=judge.pool.trust,
        machine=judge.machine,
        protocol=protocol,
        speedup=None,
        cells=(),
    )


def selftest(
    tasks: Sequence[str] = (),
    *,
    device: str | None = None,
    dtypes: Sequence[str] = (),
    directions: Sequence[str] = (),
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> list[dict[str, Any]]:
    """Test tasks (names or paths; empty: every built-in one) on a device: every reference must pass its own task,
    and no trivial or damaged output may.

    Each task is tested twice: by itself (:func:`kerneleval.judge.selftest.task_selftest.selftest`: bounds, dependence
    on inputs, trivial answers, planted bugs), and with its reference as candidate through the whole judge, untimed.

    Returns for each task ``task``, ``passed``, ``cases``, ``seconds`` and ``findings`` (each with ``test``, ``case``
    and ``message``). Raises UsageError for an unknown task or device, or a reference that raises; InfrastructureError
    where the machine failed.
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


def _judged(
    judge: Judge, task: Task, protocol: Protocol, cases: Sequence[Case], on_event: OnEvent | None
) -> list[dict[str, Any]]:
    """What is wrong with the baseline's verdict."""
    from kerneleval.judge.windows.worker_pool import baseline_candidate

    candidate = baseline_candidate(task, protocol)
    try:
        verdict = judge.check(candidate, task, protocol, cases=cases, trusted=True, on_event=on_event)
    except NotJudgedError as error:
        return [{"test": "judged", "case": "", "message": str(error)}]
    findings = [
        {"test": "judged", "case": cell.case.key, "message": f"{cell.outcome.reason}: {cell.outcome.message}"}
        for cell in verdict.cells
        if isinstance(cell.outcome, Failed)
    ]
    if verdict.verdict != "passed" and not findings:
        findings.append({"test": "judged", "case": "", "message": f"{verdict.reason}: {verdict.message}"})
    return findings


def _selftest(judge: Judge, task: Task, protocol: Protocol, on_event: OnEvent | None) -> dict[str, Any]:
    from kerneleval.judge.selftest.task_selftest import selftest as examine

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
        findings += _judged(judge, task, protocol, cases, on_event)
    return {
        "task": task.name,
        "passed": not findings,
        "cases": len(cases),
        "seconds": time.perf_counter() - started,
        "findings": findings,
    }
