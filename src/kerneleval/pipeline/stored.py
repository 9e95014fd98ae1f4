"""Stored runs as one: what scores and analyses of them need."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from kerneleval.records import (
    Candidate,
    Case,
    Result,
    Task,
    UsageError,
    Verdict,
)

if TYPE_CHECKING:
    from kerneleval.analysis.compiled import CompiledMetrics
    from kerneleval.analysis.rubric import Rating
    from kerneleval.analysis.sources import SourceMetrics
    from kerneleval.scores import Setting
    from kerneleval.scores.common.registry import AttemptKey
    from kerneleval.store.plan import Attempt, RunInfo
    from kerneleval.store.store import Store

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
            f"{other.protocol.baseline}: their speedups cannot be compared; give runs with the same baseline"
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


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of the attempts of stored runs beyond their outcomes."""

    verdicts: tuple[tuple[Attempt, Verdict], ...]
    """Attempts with their verdicts, both without cells."""
    candidates: Mapping[str, Candidate]
    """Content hash -> source."""
    tasks: Mapping[str, Task]
    """Name -> task, as far as it is at hand."""
    ratings: tuple[Rating, ...]
    """Each attempt on the axes of the Standard Kernel Rubric."""
    metrics: Mapping[str, SourceMetrics]
    """Content hash -> measures of the source; empty: see ``why_no_metrics``."""
    why_no_metrics: str
    """The package that is missing; empty: none is."""
    compiled: Mapping[AttemptKey, CompiledMetrics] = field(default_factory=dict)
    """Attempt -> what its compiled code is like, on the first machine of the results."""


def facts_of(store: Store, info: RunInfo, ids: Sequence[str], results: Sequence[Result]) -> Facts:
    """Read, measured and rated."""
    from kerneleval.analysis import compiled, rubric, sources

    verdicts = tuple(both for one in ids for both in store.verdicts(one, cells=False))
    candidates = {found: store.candidate(found) for found in dict.fromkeys(r.candidate for r in results) if found}
    tasks = _tasks_at_hand(info, results)
    machine = results[0].machine if results else ""
    here = {(a.generator, a.task, a.sample): verdict for a, verdict in verdicts if a.machine == machine}
    saw = {key: rubric.seen(verdict) for key, verdict in here.items()}
    metrics, why = {}, ""
    try:
        metrics = {found: sources.measure(candidate) for found, candidate in candidates.items()}
    except UsageError as error:  # a package is missing, which scores do not need otherwise
        why = str(error)
    return Facts(
        verdicts=verdicts,
        candidates=candidates,
        tasks=tasks,
        ratings=tuple(rubric.rate(results, tasks, candidates, saw)) if results else (),
        metrics=metrics,
        why_no_metrics=why,
        compiled={key: compiled.measure(verdict) for key, verdict in here.items()},
    )


_METRICS = ("maintainability", "complexity_sum", "complexity_mean", "complexity_max")


def setting_of(info: RunInfo, facts: Facts, results: Sequence[Result]) -> Setting:
    """What the scores of a run need to know beyond its results."""
    from kerneleval.scores import Setting
    from kerneleval.scores.common.cells import devices_of, primary

    measured: dict[str, dict[AttemptKey, float]] = {}
    attempts = {(r.generator, r.task, r.sample): r.candidate for r in primary(results, Setting()) if r.candidate}
    for name in _METRICS if facts.metrics else ():
        measured[name] = {key: float(getattr(facts.metrics[found], name)) for key, found in attempts.items()}
    for rating in facts.ratings:
        for axis, grade in rating.grades.items():
            if grade.level is not None:
                measured.setdefault(axis, {})[rating.generator, rating.task, rating.sample] = float(grade.level)
    known = dict(info.tasks)
    work = functools.cache(functools.partial(_work, functools.cache(functools.partial(_task_at_hand, known))))
    return Setting(
        not_evaluated=dict(info.not_evaluated),
        devices=devices_of(info.machines),
        limits=info.limits,
        work=work if info.limits else None,
        measured=measured,
        unmeasured=dict.fromkeys(_METRICS, facts.why_no_metrics) if facts.why_no_metrics else {},
    )


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


def _tasks_at_hand(info: RunInfo, results: Sequence[Result]) -> dict[str, Task]:
    """The tasks of the results by name, as far as they are built in or their files are where they were."""
    places = dict(info.tasks)
    names = dict.fromkeys(r.task for r in results)
    return {name: task for name in names if (task := _task_at_hand(places, name)) is not None}
