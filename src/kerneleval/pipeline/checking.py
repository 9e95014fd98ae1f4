"""One candidate, judged: file -> candidate, name -> task, verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.records import (
    STORED,
    Candidate,
    CandidateSpec,
    Case,
    OnEvent,
    Protocol,
    ReplaySource,
    Task,
    UsageError,
    Verdict,
    asked,
)

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge


def check(
    path: str | Path, task: str | Task, *, judge: Judge | None = None, on_event: OnEvent | None = None, **options: Any
) -> Verdict:
    """Judge one candidate: a file, or one that a run has stored.

    Args:
        path: the candidate: ``.py`` (Triton, Numba, torch), ``.cpp``, ``.cu`` or ``.cl``; or ``store:HASH``, the
            beginning of its hash in the store.
        task: name of a built-in task, path of a problem file, or a task.
        judge: a warm judge to use (its device counts); None: one is started for this call.
        on_event: called as the work proceeds.
        options: any field of :class:`~kerneleval.records.CandidateSpec` and :class:`~kerneleval.records.Protocol`.

    Returns:
        The verdict; ``verdict.verdict`` is ``passed`` or ``failed``.

    Raises:
        UsageError: the input is wrong: no such file, task, device, case or option; shapes that do not fit.
        InfrastructureError: the machine failed, not the candidate.
    """
    spec, protocol = asked(CandidateSpec, {**options, "source": str(path), "task": task})
    return check_candidate(spec, protocol, judge=judge, on_event=on_event)


def check_candidate(
    spec: CandidateSpec, protocol: Protocol, *, judge: Judge | None = None, on_event: OnEvent | None = None
) -> Verdict:
    """Judge one candidate: a file, or one that a run has stored. See :func:`kerneleval.check`."""
    task = open_task(spec.task, protocol)
    candidate, source, store = _read(spec, task)
    check_dtypes(task, protocol)
    with borrowed(judge, spec.device) as owner:
        cases = (_read_case(spec.case, task, protocol, owner),) if spec.case else None
        return owner.check(
            candidate,
            task,
            protocol,
            cases=cases,
            replay=ReplaySource(source=source, task=spec.task_source, store=store),
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
        spec.source,
        task_name=task.name,
        entry=spec.entry,
        backward_entry=spec.backward_entry,
        language=spec.language,
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


def _read_case(key: str, task: Task, protocol: Protocol, judge: Judge) -> Case:
    from kerneleval.tasks.case_keys import read_case

    return read_case(key, task, protocol, judge.plan(task, protocol), judge.device.largest_case_bytes())


class borrowed:  # noqa: N801 - used as a function
    """The judge given, left open, or one of our own, closed at the end."""

    def __init__(self, judge: Judge | None, device: str | None) -> None:
        self._given, self._device = judge, device
        self._own: Judge | None = None

    def __enter__(self) -> Judge:
        if self._given is not None:
            return self._given
        from kerneleval.judge import Judge

        self._own = Judge(self._device)
        return self._own

    def __exit__(self, *_exc: object) -> None:
        if self._own is not None:
            self._own.close()
