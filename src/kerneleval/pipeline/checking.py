"""One candidate, judged: file -> candidate, name -> task, verdict."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kerneleval.records import (
    STORED,
    Candidate,
    Case,
    Event,
    Protocol,
    Task,
    UsageError,
    Verdict,
)

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge

__all__ = ["OnEvent", "borrowed", "check", "known_dtypes", "open_task", "tell"]

OnEvent = Callable[[Event], None]


def check(
    path: str | Path,
    task: str | Task,
    *,
    device: str | None = None,
    shapes: str = "default",
    allow: Sequence[str] = ("custom", "mixed"),
    tier: str = "standard",
    dtypes: Sequence[str] = (),
    directions: Sequence[str] = (),
    distributions: Sequence[str] = (),
    categories: Sequence[str] = (),
    timed: bool = True,
    baseline: str = "eager",
    entry: str = "",
    backward_entry: str = "",
    language: str = "",
    case: str = "",
    tf32: bool = False,
    suite_seed: int = 0,
    store_url: str | None = None,
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> Verdict:
    """Judge one candidate: a file, or one that a run has stored.

    Args:
        path: the candidate: ``.py`` (Triton, Numba, torch), ``.cpp``, ``.cu`` or ``.cl``; or ``store:HASH``, the
            beginning of its hash in the store.
        task: name of a built-in task, path of a problem file, or a task.
        device: device kind; None: the GPU where there is one, else the CPU.
        shapes: ``default``; ``sweep`` to vary a problem file's own sizes too; ``real`` for the shapes of models instead
            of sampled ones.
        allow: tracks that may pass.
        tier: ``quick``, ``standard`` or ``precise``.
        dtypes: only these dtypes; empty: the task's.
        directions: only these directions; empty: the task's.
        distributions: only these input distributions; empty: the planner's choice.
        categories: only these shape categories; empty: all.
        timed: whether a right candidate is timed.
        baseline: what speedup is measured against: ``eager`` or ``compile``.
        entry: name of the entry point; empty: by convention.
        backward_entry: name of the explicit backward entry point; empty: by convention.
        language: language of the file; empty: from its content.
        case: judge only this case, given by its key; empty: the plan.
        tf32: whether TF32 is allowed in fp32 tasks.
        suite_seed: public seed of the shapes.
        store_url: path or URL of the store of a stored candidate; None: ``./kerneleval.db``.
        judge: a warm judge to use (its device counts); None: one is started for this call.
        on_event: called as the work proceeds.

    Returns:
        The verdict; ``verdict.verdict`` is ``passed`` or ``failed``.

    Raises:
        UsageError: the input is wrong: no such file, task, device, case; shapes that do not fit.
        InfrastructureError: the machine failed, not the candidate.
    """
    task_source = task.name if isinstance(task, Task) else task
    subject = task if isinstance(task, Task) else open_task(task, shapes, suite_seed)
    named = {"entry": entry, "backward_entry": backward_entry, "language": language}
    candidate, source, store = _read(path, subject.name, named, store_url)
    protocol = Protocol(
        tier=tier,  # type: ignore[arg-type]
        baseline=baseline,
        shapes=shapes,  # type: ignore[arg-type]
        dtypes=known_dtypes(subject, dtypes),
        directions=tuple(directions),
        distributions=tuple(distributions),
        categories=tuple(categories),
        timed=timed,
        allow=tuple(allow),
        tf32=tf32,
        suite_seed=suite_seed,
    )
    with borrowed(judge, device) as owner:
        cases = (_read_case(case, subject, protocol, owner),) if case else None
        return owner.check(
            candidate,
            subject,
            protocol,
            cases=cases,
            source=source,
            task_source=task_source,
            store=store,
            on_event=on_event,
        )


def _read(path: str | Path, task_name: str, named: dict[str, str], store_url: str | None) -> tuple[Candidate, str, str]:
    """The candidate; its name in replay lines; what these give as ``--store``."""
    from kerneleval.languages import read_candidate

    if not str(path).startswith(STORED):
        return read_candidate(path, task_name=task_name, **named), str(path), ""
    if given := [f"--{name.replace('_', '-')}" for name, value in named.items() if value]:
        raise UsageError(f"{path} brings its language and entry points with it; leave out {', '.join(given)}")
    from kerneleval.store import for_replay, open_store

    candidate = open_store(store_url, create=False, write=False).candidate(str(path).removeprefix(STORED))
    return candidate, candidate.stored_name, for_replay(store_url)


def open_task(name_or_path: str, shapes: str, suite_seed: int) -> Task:
    """The task of that name, or of that file."""
    from kerneleval import tasks

    if shapes not in ("default", "sweep", "real"):
        raise UsageError(f"shapes {shapes!r} is unknown; known are default, real, sweep")
    return tasks.open_task(name_or_path, sweep=shapes == "sweep", suite_seed=suite_seed)


def known_dtypes(task: Task, dtypes: Sequence[str]) -> tuple[str, ...]:
    """The dtypes, if the task has every one of them; raises UsageError otherwise."""
    for dtype in dtypes:
        if dtype not in task.dtypes:
            raise UsageError(f"task {task.name!r} is not judged in {dtype!r}; its dtypes are {', '.join(task.dtypes)}")
    return tuple(dtypes)


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


def tell(on_event: OnEvent | None, kind: str, done: int, total: int, text: str) -> None:
    """Report progress, if anyone listens."""
    if on_event is not None:
        on_event(Event(kind=kind, done=done, total=total, text=text))
