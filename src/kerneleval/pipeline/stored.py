"""Stored runs as one: what scores and analyses of them need."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kerneleval.records import (
    Candidate,
    Case,
    Result,
    Task,
    UsageError,
)

if TYPE_CHECKING:
    from kerneleval.scores import Setting
    from kerneleval.store.plan import RunInfo
    from kerneleval.store.store import Store

__all__ = ["candidates_of", "collects_later", "joined", "setting_of", "tasks_at_hand"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def collects_later(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Runs it without Python's search for cyclic garbage: it reads millions of records, none of them in a cycle, and
    the search through them again and again takes a quarter of the time.
    """

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return run


def joined(store: Store, run: str | Sequence[str]) -> tuple[RunInfo, list[str]]:
    """One or more runs as one, with the machines of all of them, the first one's first; and their identifiers.

    Raises:
        UsageError: no run is named, or one twice, there is none such, or their baselines differ.
    """
    infos = [store.run(one) for one in ([run] if isinstance(run, str) else run)]
    if not infos:
        raise UsageError("no run is named; give one, or 'latest'")
    ids = [info.id for info in infos]
    if len(set(ids)) < len(ids):
        raise UsageError(f"run {max(ids, key=ids.count)} is named twice; name each run once")
    other = next((info for info in infos if info.protocol.baseline != infos[0].protocol.baseline), None)
    if other is not None:
        raise UsageError(
            f"{infos[0].id} is judged against {infos[0].protocol.baseline}, {other.id} against "
            f"{other.protocol.baseline}: their speedups are not of one kind; give runs of one baseline"
        )
    machines = {machine.fingerprint: machine for info in infos for machine in info.machines}
    kinds = {machine.device for machine in machines.values()}
    absent = {kind: why for info in infos for kind, why in info.not_evaluated.items() if kind not in kinds}
    found = replace(
        infos[0],
        id="+".join(ids),
        name=" + ".join(dict.fromkeys(info.name for info in infos)),
        generators=tuple(dict.fromkeys(name for info in infos for name in info.generators)),
        machines=tuple(machines.values()),
        planned=sum(info.planned for info in infos),
        finished=sum(info.finished for info in infos),
        not_evaluated=absent,
        tasks={name: source for info in reversed(infos) for name, source in info.tasks.items()},
        groups={name: group for info in reversed(infos) for name, group in info.groups.items()},
        limits={machine: of for info in reversed(infos) for machine, of in info.limits.items()},
    )
    return found, ids


def setting_of(info: RunInfo) -> Setting:
    """What the scores of a run need to know beyond its results."""
    from kerneleval.scores import Setting

    known = dict(info.tasks)
    work = functools.cache(functools.partial(_work, functools.cache(functools.partial(_task_at_hand, known))))
    return Setting(not_evaluated=dict(info.not_evaluated), limits=info.limits, work=work if info.limits else None)


def _work(task_of: Callable[[str], Task | None], case: Case) -> tuple[float, float] | None:
    """Floating-point operations of a forward call and the fewest bytes that it must move."""
    task = task_of(case.task)
    return None if task is None else (float(task.flops(case.dims_map)), float(task.bytes(case.dims_map, case.dtype)))


def _task_at_hand(sources: dict[str, str], name: str) -> Task | None:
    """The task of a stored run; None: it is not built in, and its file is gone or was changed to another's name."""
    from kerneleval import tasks

    try:
        task = tasks.open_task(sources.get(name, name))
    except UsageError:
        return None
    return task if task.name == name else None


def tasks_at_hand(info: RunInfo, results: Sequence[Result]) -> dict[str, Task]:
    """The tasks of the results by name, as far as they are built in or their files are where they were."""
    places = dict(info.tasks)
    names = dict.fromkeys(r.task for r in results)
    return {name: task for name in names if (task := _task_at_hand(places, name)) is not None}


def candidates_of(store: Store, results: Sequence[Result]) -> dict[str, Candidate]:
    """Every candidate of the results by its hash."""
    return {found: store.candidate(found) for found in dict.fromkeys(r.candidate for r in results) if found}
