"""The Python API: options by name become records, on which ``checking.py`` and ``running.py`` act."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import check_candidate
from kerneleval.pipeline.running import run_suite
from kerneleval.records import TRACKS, CandidateSpec, OnEvent, RunSpec, Task, Verdict, asked

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
        options: any field of :class:`~kerneleval.records.CandidateSpec` (``device``, ``language``, ``entry``,
            ``backward_entry``, ``case``, ``store_url``) and of :class:`~kerneleval.records.Protocol` (``tier``,
            ``shapes``, ``dtypes``, ``directions``, ``distributions``, ``categories``, ``timed``, ``baseline``,
            ``allow``, ``tf32``, ``suite_seed``).

    Returns:
        The verdict; ``verdict.verdict`` is ``passed`` or ``failed``.

    Raises:
        UsageError: the input is wrong: no such file, task, device, case or option; shapes that do not fit.
        InfrastructureError: the machine failed, not the candidate.
    """
    spec, protocol = asked(CandidateSpec, {**options, "source": str(path), "task": task})
    return check_candidate(spec, protocol, judge=judge, on_event=on_event)


def run(
    generators: Sequence[str] = (),
    tasks: Sequence[str] = (),
    *,
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> str:
    """Judge generators over a suite of tasks and store every outcome.

    An interrupted run of the same plan is resumed; what is in the store for the same candidate, case, machine and
    protocol is not judged again, and what a model answered is not asked again. What a cap keeps from being asked or
    judged stays open: the run goes on when it is begun again.

    Args:
        generators: names, or paths: of directories with candidates, of files with settings; empty: the archetypes.
        tasks: names or paths; empty: the archetypes' suite.
        judge: a warm judge to use.
        on_event: called as the work proceeds.
        options: any field of :class:`~kerneleval.records.RunSpec` (``device``, ``store_url``, ``name``, ``resume``,
            ``target``, ``max_usd``, ``max_tokens``, ``max_hours``) and of :class:`~kerneleval.records.Protocol`; all
            tracks may pass, and it is judged in float32, unless ``allow`` and ``dtypes`` say otherwise.

    Returns:
        The run's identifier.

    Raises:
        UsageError: an unknown generator, task, device or option, a cap that cannot be kept, or a store that cannot be
            used.
        InfrastructureError: the machine, the disk, the database or an endpoint failed; what came is stored.
    """
    given = {"allow": TRACKS, **options, "generators": tuple(generators), "tasks": tuple(tasks)}
    spec, protocol = asked(RunSpec, given)
    return run_suite(spec, protocol, judge=judge, on_event=on_event)
