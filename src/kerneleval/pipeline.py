"""Joins the stages: tasks -> generators -> judge -> store -> scores. Reads top to bottom.

Only ``audit.py`` joins them too: store -> judge -> store.
"""

from __future__ import annotations

import functools
import gc
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kerneleval.records import (
    STORED,
    Candidate,
    Case,
    CellResult,
    Event,
    Failed,
    Limits,
    Machine,
    Protocol,
    Result,
    Task,
    Trust,
    UsageError,
    Verdict,
    near,
    to_plain,
)

if TYPE_CHECKING:
    from kerneleval.analysis.rubric import Profile
    from kerneleval.generators import Generator
    from kerneleval.judge.judge import Judge
    from kerneleval.scores import Setting
    from kerneleval.scores.limit import Point
    from kerneleval.store.plan import Attempt, Planned, RunInfo
    from kerneleval.store.store import Store

__all__ = ["analyse", "check", "compare", "export", "report", "run", "score", "selftest", "transitions"]

OnEvent = Callable[[Event], None]

_P = ParamSpec("_P")
_R = TypeVar("_R")

ARCHETYPES = ("baseline", "fragile", "robust")
"""What ``run`` judges when no generator is named."""


# --------------------------------------------------------------------------------------------------------------------
# One candidate
# --------------------------------------------------------------------------------------------------------------------


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
        path: the candidate: ``.py`` (Triton, Numba, torch), ``.cpp`` or ``.cu``; or ``store:HASH``, the beginning of
            its hash in the store.
        task: name of a built-in task, path of a problem file, or a task.
        device: device kind; None: CUDA where there is one, else the CPU.
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
    subject = task if isinstance(task, Task) else _open_task(task, shapes, suite_seed)
    named = {"entry": entry, "backward_entry": backward_entry, "language": language}
    candidate, source, store = _read(path, subject.name, named, store_url)
    protocol = Protocol(
        tier=tier,  # type: ignore[arg-type]
        baseline=baseline,
        shapes=shapes,  # type: ignore[arg-type]
        dtypes=_known_dtypes(subject, dtypes),
        directions=tuple(directions),
        distributions=tuple(distributions),
        categories=tuple(categories),
        timed=timed,
        allow=tuple(allow),
        tf32=tf32,
        suite_seed=suite_seed,
    )
    with _borrowed(judge, device) as owner:
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


def _open_task(name_or_path: str, shapes: str, suite_seed: int) -> Task:
    from kerneleval import tasks

    if shapes not in ("default", "sweep", "real"):
        raise UsageError(f"shapes {shapes!r} is unknown; known are default, real, sweep")
    return tasks.open_task(name_or_path, sweep=shapes == "sweep", suite_seed=suite_seed)


def _known_dtypes(task: Task, dtypes: Sequence[str]) -> tuple[str, ...]:
    for dtype in dtypes:
        if dtype not in task.dtypes:
            raise UsageError(f"task {task.name!r} is not judged in {dtype!r}; its dtypes are {', '.join(task.dtypes)}")
    return tuple(dtypes)


def _read_case(key: str, task: Task, protocol: Protocol, judge: Judge) -> Case:
    from kerneleval.tasks.case_keys import read_case

    return read_case(key, task, protocol, judge.plan(task, protocol), judge.device.largest_case_bytes())


class _borrowed:  # noqa: N801 - used as a function
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


# --------------------------------------------------------------------------------------------------------------------
# A run: generators over a suite
# --------------------------------------------------------------------------------------------------------------------


def run(
    generators: Sequence[str] = ARCHETYPES,
    tasks: Sequence[str] = (),
    *,
    device: str | None = None,
    shapes: str = "default",
    store_url: str | None = None,
    tier: str = "standard",
    dtypes: Sequence[str] = (),
    directions: Sequence[str] = (),
    distributions: Sequence[str] = (),
    allow: Sequence[str] = ("custom", "mixed", "library"),
    baseline: str = "eager",
    name: str = "",
    resume: bool = True,
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> str:
    """Judge generators over a suite of tasks and store every outcome.

    An interrupted run of the same plan is resumed; what is in the store for the same candidate, case, machine and
    protocol is not judged again.

    Args:
        generators: names, or paths of directories with candidates.
        tasks: names or paths; empty: the archetypes' suite.
        device: device kind; None: CUDA where there is one, else the CPU.
        shapes: as in :func:`check`.
        store_url: path or URL of the store; None: ``./kerneleval.db``.
        tier: as in :func:`check`; so are ``dtypes``, ``directions``, ``distributions``, ``allow`` and ``baseline``.
        name: a name for the run.
        resume: whether an interrupted run of the same plan goes on.
        judge: a warm judge to use.
        on_event: called as the work proceeds.

    Returns:
        The run's identifier.

    Raises:
        UsageError: an unknown generator, task or device, or a store that cannot be used.
        InfrastructureError: the machine, the disk or the database failed.
    """
    from kerneleval import generators as makers
    from kerneleval.languages import read_candidate
    from kerneleval.store import for_replay, open_store

    makers_found = [makers.find(g, read=read_candidate) for g in generators or ARCHETYPES]
    given = list(tasks or makers.SUITE)
    suite = [_open_task(t, shapes, suite_seed=0) for t in given]
    protocol = Protocol(
        tier=tier,  # type: ignore[arg-type]
        baseline=baseline,
        shapes=shapes,  # type: ignore[arg-type]
        dtypes=tuple(dtypes) or ("float32",),
        directions=tuple(directions),
        distributions=tuple(distributions),
        allow=tuple(allow),
    )
    store = open_store(store_url)
    with _borrowed(judge, device) as owner:
        plan, candidates = _plan(makers_found, suite, owner, protocol)
        for task in suite:
            for line in owner.left_out(task, protocol):
                _tell(on_event, "note", 0, 0, f"{task.name}: {line}")
        names = [maker.name for maker in makers_found]
        sources = {task.name: source for task, source in zip(suite, given, strict=True)}
        run_id = store.begin_run(
            name or "+".join(names),
            names,
            owner.machine,
            protocol,
            plan,
            tasks=sources,
            limits={owner.machine.fingerprint: _limits(store, owner, protocol)},
            resume=resume,
        )
        open_attempts = store.unfinished(run_id)
        subjects = {task.name: task for task in suite}
        total = len(plan)
        coming = [candidates.get((a.generator, a.task, a.sample)) for a in open_attempts]
        owner.build_ahead([candidate for candidate in coming if candidate is not None], on_event)
        for attempt in open_attempts:
            done = total - len(open_attempts) + open_attempts.index(attempt)
            text = f"{attempt.generator}: {attempt.task}"
            _tell(on_event, "run", done, total, text)
            candidate = candidates.get((attempt.generator, attempt.task, attempt.sample))
            verdict = _attempt(
                store,
                owner,
                attempt,
                candidate,
                subjects[attempt.task],
                protocol,
                sources[attempt.task],
                for_replay(store_url),
                on_event,
            )
            store.put_verdict(run_id, attempt.generator, attempt.sample, candidate, verdict)
        _tell(on_event, "run", total, total, "done")
    return run_id


def _plan(
    makers: Sequence[Generator], suite: Sequence[Task], judge: Judge, protocol: Protocol
) -> tuple[list[Planned], dict[tuple[str, str, int], Candidate]]:
    """Every attempt with its cases, and the candidates by (generator, task, sample)."""
    from kerneleval.store import Planned

    plan: list[Planned] = []
    found: dict[tuple[str, str, int], Candidate] = {}
    for task in suite:
        cases = judge.plan(task, protocol)
        for maker in makers:
            made: list[Candidate | None] = [*maker.candidates(task, judge.device.name)] or [None]
            for sample, candidate in enumerate(made):
                if candidate is not None:
                    found[maker.name, task.name, sample] = candidate
                plan.append(
                    Planned(
                        generator=maker.name,
                        task=task.name,
                        category=task.category,
                        level=task.level,
                        group=task.group,
                        cases=cases,
                        sample=sample,
                        candidate=candidate,
                    )
                )
    return plan, found


def _limits(store: Store, judge: Judge, protocol: Protocol) -> Limits:
    """The machine's limits: those that an earlier run of the store measured, so that runs have the same scale."""
    from kerneleval.judge import limits

    wanted = limits.computed(protocol.dtypes)
    for info in store.runs():
        known = info.limits.get(judge.machine.fingerprint)
        if known is not None and wanted <= {dtype for dtype, _ in known.flop_per_s}:
            return known
    return limits.measure(judge.device, protocol.dtypes)


def _attempt(
    store: Store,
    judge: Judge,
    attempt: Attempt,
    candidate: Candidate | None,
    task: Task,
    protocol: Protocol,
    task_source: str,
    place: str,
    on_event: OnEvent | None,
) -> Verdict:
    """The verdict on one attempt: from the store where it is known, else judged now."""
    if candidate is None:
        return _missing(attempt, task, protocol, judge.machine, judge.bench.trust)
    known = store.cached_verdict(candidate.hash, task.name, judge.machine.fingerprint, protocol.key, attempt.cases)
    if known is not None:
        return known
    return judge.check(
        candidate,
        task,
        protocol,
        cases=attempt.cases,
        source=candidate.origin.path or candidate.stored_name,
        task_source=task_source,
        store=place,
        on_event=on_event,
    )


def _missing(attempt: Attempt, task: Task, protocol: Protocol, machine: Machine, trust: Trust) -> Verdict:
    message = f"{attempt.generator} gave no candidate for {task.name}"
    failed = Failed(stage="generate", reason="missing", message=message)
    return Verdict(
        verdict="failed",
        stage=failed.stage,
        reason=failed.reason,
        message=message,
        task=task.name,
        candidate="",
        track="",
        trust=trust,
        machine=machine,
        protocol=protocol,
        speedup=None,
        cells=tuple(CellResult(case=case, outcome=failed) for case in attempt.cases),
    )


# --------------------------------------------------------------------------------------------------------------------
# Self-test: the tasks and the judge, by the tasks' own references
# --------------------------------------------------------------------------------------------------------------------


def selftest(
    tasks: Sequence[str] = (),
    *,
    device: str | None = None,
    dtypes: Sequence[str] = (),
    directions: Sequence[str] = (),
    judge: Judge | None = None,
    on_event: OnEvent | None = None,
) -> list[dict[str, Any]]:
    """Test tasks on a device: every reference must pass its own task, and no trivial or damaged output may.

    Each task is tested twice: by itself (:func:`kerneleval.judge.selftest.selftest`: bounds, dependence on inputs,
    trivial answers, planted bugs), and with its reference as candidate through the whole judge, untimed.

    Args:
        tasks: names or paths; empty: every built-in task.
        device: device kind; None: CUDA where there is one, else the CPU.
        dtypes: only these dtypes; empty: the task's.
        directions: only these directions; empty: the task's.
        judge: a warm judge to use.
        on_event: called as the work proceeds.

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
    with _borrowed(judge, device) as owner:
        for done, task in enumerate(subjects):
            _tell(on_event, "run", done, len(subjects), task.name)
            found.append(_selftest(owner, task, protocol, on_event))
        _tell(on_event, "run", len(subjects), len(subjects), "done")
    return found


def _selftest(judge: Judge, task: Task, protocol: Protocol, on_event: OnEvent | None) -> dict[str, Any]:
    from kerneleval.judge.baselines import baseline_candidate
    from kerneleval.judge.selftest import selftest as examine

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
            for finding in examine(task, judge.device.torch_device, cases)
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


# --------------------------------------------------------------------------------------------------------------------
# Scores
# --------------------------------------------------------------------------------------------------------------------


def _collects_later(function: Callable[_P, _R]) -> Callable[_P, _R]:
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


@_collects_later
def score(store_url: str | None = None, run: str | Sequence[str] = "latest") -> dict[str, Any]:
    """Every score of the generators of one or more runs, as plain data.

    Args:
        store_url: path or URL of the store; None: ``./kerneleval.db``.
        run: identifier, its beginning, name or ``latest``; several merge their machines.

    Raises:
        UsageError: no such store or run.
    """
    from kerneleval import scores
    from kerneleval.store import open_store

    store = open_store(store_url, create=False, write=False)
    info, ids = _joined(store, run)
    results = list(store.results(ids))
    return {"run": to_plain(info), "scores": to_plain(scores.score_all(results, _setting(info)))}


def _joined(store: Store, run: str | Sequence[str]) -> tuple[RunInfo, list[str]]:
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
    joined = replace(
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
    return joined, ids


def _setting(info: RunInfo) -> Setting:
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


@_collects_later
def export(
    folder: str | Path,
    run: str | Sequence[str] = "latest",
    *,
    store_url: str | None = None,
    file_format: str = "parquet",
) -> dict[str, int]:
    """Write one or more runs as tables: ``cells``, ``attempts``, ``candidates`` and ``scores``, a file each.

    Args:
        folder: where the files go; made where it is not there. Files of these names are replaced, each by a whole one.
        run: identifier, its beginning, name or ``latest``.
        store_url: path or URL of the store; None: ``./kerneleval.db``.
        file_format: ``parquet`` or ``jsonl``.

    Returns:
        path of each file -> its number of rows.

    Raises:
        UsageError: no such store or run; a folder that cannot be written; a package that is missing.
    """
    from kerneleval import scores
    from kerneleval.reports import export as tables
    from kerneleval.store import open_store

    store = open_store(store_url, create=False, write=False)
    info, ids = _joined(store, run)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{place} can't be made: {error.strerror}; give another folder") from error
    results = list(store.results(ids))
    rows: dict[str, Iterable[dict[str, Any]]] = {
        "cells": tables.cell_rows(results),
        "attempts": tables.attempt_rows(both for one in ids for both in store.verdicts(one, cells=False)),
        "candidates": tables.candidate_rows(
            store.candidate(found) for found in dict.fromkeys(r.candidate for r in results) if found
        ),
        "scores": tables.score_rows(scores.score_all(results, _setting(info))),
    }
    paths = {name: place / f"{name}.{file_format}" for name in rows}
    return {str(paths[name]): tables.write_table(paths[name], tables.TABLES[name], of) for name, of in rows.items()}


@_collects_later
def compare(first: str, second: str, *, store_url: str | None = None) -> dict[str, Any]:
    """The second of two runs, or of two generators, against the first, as plain data.

    Args:
        first: ``RUN``, ``RUN:GENERATOR``, or a generator of the latest run. A run is an identifier, its beginning or a
            name.
        second: the same. Of two runs, the generators that both have are compared, each with itself; where each run
            has just one generator, these two.
        store_url: path or URL of the store; None: ``./kerneleval.db``.

    Returns:
        ``comparisons``, each with ``before`` and ``after`` (run, name, generator), ``by`` (``cell``; ``task`` where the
        two have no cell in common), ``comparison`` (a :class:`kerneleval.scores.paired.Comparison`, or a
        :class:`kerneleval.scores.by_task.TaskComparison`) and ``counts`` (change -> cells; empty by task);
        ``not_compared``: generators that one of the runs lacks.

    Raises:
        UsageError: no such store, run or generator; both are the same; nothing in common.
    """
    from kerneleval.scores import by_generator, by_task, paired
    from kerneleval.store import open_store

    store = open_store(store_url, create=False, write=False)
    sides = [_side(store, text) for text in (first, second)]
    (run, chosen), (other_run, other_chosen) = sides
    names = [(a, b) for a in chosen for b in other_chosen if a == b]
    if len(chosen) == len(other_chosen) == 1:
        names = [(chosen[0], other_chosen[0])]
    if not names:
        have = f"{first} has {', '.join(chosen)}, {second} has {', '.join(other_chosen)}"
        raise UsageError(f"{have}: name one of each, as {run.id}:{chosen[0]}")
    if (run.id, names[0][0]) == (other_run.id, names[0][1]):
        raise UsageError(f"{first} and {second} are the same; give another run, or two generators of it")
    rows = by_generator(store.results(run.id, generators=[name for name, _ in names]))
    other_rows = by_generator(store.results(other_run.id, generators=[name for _, name in names]))
    comparisons = []
    for name, other in names:
        plain: dict[str, Any] = {
            "before": {"run": run.id, "name": run.name, "generator": name},
            "after": {"run": other_run.id, "name": other_run.name, "generator": other},
        }
        mine, theirs = rows.get(name, []), other_rows.get(other, [])
        if paired.in_common(mine, theirs):
            found = paired.compare(mine, theirs)
            plain |= {"by": "cell", "counts": found.counts(), "comparison": to_plain(found)}
        else:
            plain |= {"by": "task", "counts": {}, "comparison": to_plain(by_task.compare_tasks(mine, theirs))}
        comparisons.append(plain)
    compared = {name for both in names for name in both}
    left = [name for name in dict.fromkeys((*chosen, *other_chosen)) if name not in compared]
    return {"comparisons": comparisons, "not_compared": left}


@_collects_later
def report(
    run: str | Sequence[str] = "latest",
    *,
    store_url: str | None = None,
    html_to: str | Path = "",
    markdown_to: str | Path = "",
) -> dict[str, Any]:
    """A run to look at: one HTML file that needs no network, a Markdown summary, and the scores as plain data.

    Args:
        run: identifier, its beginning, name or ``latest``; several are shown as one, with the machines of all.
        store_url: path or URL of the store; None: ``./kerneleval.db``.
        html_to: file for the HTML report; empty: none is written.
        markdown_to: file for the summary, of at most sixty lines; empty: none is written.

    Returns:
        ``run`` and ``scores`` as :func:`score` gives them, and ``written``: the files.

    Raises:
        UsageError: no such store or run; a file that cannot be written; a package that is missing.
    """
    from kerneleval import scores
    from kerneleval.reports import html, markdown
    from kerneleval.reports.files import write_text
    from kerneleval.scores.limit import roofline
    from kerneleval.store import open_store

    store = open_store(store_url, create=False, write=False)
    info, ids = _joined(store, run)
    results, setting = list(store.results(ids)), _setting(info)
    found = scores.score_all(results, setting)
    written = []
    if html_to or markdown_to:
        verdicts = [both for one in ids for both in store.verdicts(one, cells=False)]
        profiles = _rubric(verdicts, results, _tasks_at_hand(info, results), _candidates(store, results))
        extras = {
            "roofline": [_in_roofline(point) for point in roofline(results, setting)],
            "rubric": _as_levels(profiles),
        }
        document = html.build(info, found, results, verdicts, _Stored(store), extras)
        if html_to:
            html.write(document, html_to)
        if markdown_to:
            write_text(markdown_to, markdown.render(document))
        written = [str(path) for path in (html_to, markdown_to) if path]
    return {"run": to_plain(info), "scores": to_plain(found), "written": written}


def _in_roofline(point: Point) -> dict[str, Any]:
    return {
        "generator": point.result.generator,
        "task": point.result.task,
        "case": point.result.case.key,
        "intensity": point.flop / point.nbytes if point.nbytes else math.inf,
        "achieved_flop_s": point.flop / point.time_s,
        "fraction": point.fraction,
    }


def _as_levels(profiles: Sequence[Profile]) -> dict[str, dict[str, dict[str, Any]]]:
    """Generator -> axis -> level -> attempts; ``none``: not evaluated, ``why``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in profiles:
        levels: dict[str, Any] = {str(level): count for level, count in one.counts.items()}
        levels |= {"none": sum(one.not_evaluated.values()), "why": "; ".join(one.not_evaluated)}
        found.setdefault(one.generator, {})[one.axis] = levels
    return found


class _Stored:
    """Candidates of a store, looked up as in a dict."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(self, key: str, /) -> Candidate | None:
        """The candidate with this content hash; None: none was made."""
        return self._store.candidate(key) if key else None


@_collects_later
def analyse(run: str | Sequence[str] = "latest", *, store_url: str | None = None) -> dict[str, Any]:
    """What correctness depends on, what makes tasks hard, how readable the code is, how machines differ; plain data.

    Args:
        run: identifier, its beginning, name or ``latest``; several merge their machines.
        store_url: path or URL of the store; None: ``./kerneleval.db``.

    Raises:
        UsageError: no such store or run; a package that is missing.
    """
    from kerneleval.analysis import attribution, difficulty, hardware, sources
    from kerneleval.store import open_store

    store = open_store(store_url, create=False, write=False)
    info, ids = _joined(store, run)
    results = list(store.results(ids))
    tasks = _tasks_at_hand(info, results)
    candidates = _candidates(store, results)
    measured = {found: sources.measure(candidate) for found, candidate in candidates.items()}
    verdicts = [both for one in ids for both in store.verdicts(one, cells=False)]
    keys = (attribution.of_category, attribution.of_group)
    return {
        "runs": ids,
        "attribution": [to_plain(attribution.attribute(results, key=key)) for key in keys],
        "difficulty": to_plain(difficulty.difficulty(results, tasks)),
        "sources": to_plain(sources.by_generators(measured, results)),
        "rubric": to_plain(_rubric(verdicts, results, tasks, candidates)),
        "hardware": to_plain(hardware.hardware(results)),
    }


def _tasks_at_hand(info: RunInfo, results: Sequence[Result]) -> dict[str, Task]:
    places = dict(info.tasks)
    names = dict.fromkeys(r.task for r in results)
    return {name: task for name in names if (task := _task_at_hand(places, name)) is not None}


def _candidates(store: Store, results: Sequence[Result]) -> dict[str, Candidate]:
    """Every candidate of the results by its hash."""
    return {found: store.candidate(found) for found in dict.fromkeys(r.candidate for r in results) if found}


def _rubric(
    verdicts: Sequence[tuple[Attempt, Verdict]],
    results: Sequence[Result],
    tasks: dict[str, Task],
    candidates: dict[str, Candidate],
) -> list[Profile]:
    """Each generator on each axis of the Standard Kernel Rubric."""
    from kerneleval.analysis import rubric

    saw = {
        (attempt.generator, attempt.task, attempt.sample): rubric.seen(verdict)
        for attempt, verdict in verdicts
        if attempt.machine == results[0].machine
    }
    return rubric.profiles(rubric.rate(results, tasks, candidates, saw))


def transitions(
    source: str = "latest", *, store_url: str | None = None, noise: float | None = None, pairs_to: str | Path = ""
) -> dict[str, Any]:
    """What became of candidates from one iteration to the next, as plain data.

    Args:
        source: a run (identifier, its beginning, name or ``latest``), or a file of KernelBench-X's corpus (``.jsonl``).
        store_url: path or URL of the store; None: ``./kerneleval.db``.
        noise: what a change of speed without an interval must exceed, as a ratio minus 1; None: the default.
        pairs_to: file for error-correction and optimisation pairs, ``.parquet`` or ``.jsonl``; empty: none is written.

    Raises:
        UsageError: no such store, run or file; no such corpus; a file that cannot be written.
    """
    from kerneleval.analysis import pairs as learning
    from kerneleval.analysis import steps
    from kerneleval.analysis import transitions as between
    from kerneleval.analysis.formats import kernelbenchx

    if source.endswith(".jsonl"):
        chains = [[record.before, record.after] for record in kernelbenchx.read(source)]
    else:
        from kerneleval.store import open_store

        store = open_store(store_url, create=False, write=False)
        info = store.run(source)
        hashes = dict.fromkeys(attempt.candidate for attempt in store.attempts(info.id))
        chains = steps.steps_of_run(store.verdicts(info.id), {h: store.candidate(h) for h in hashes if h})
    found = between.transitions(chains, noise=between.NOISE if noise is None else noise)
    rows = list(learning.pairs(found))
    if pairs_to:
        from kerneleval.reports import export as tables

        tables.write_table(pairs_to, learning.COLUMNS, rows)
    return {
        "transitions": len(found),
        "tasks": len({one.before.task for one in found}),
        "counts": between.counts(found),
        "shares": to_plain(between.shares(found)),
        "repair_bias": to_plain(between.repair_bias(found)),
        "pairs": {
            kind: sum(row["kind"] == kind for row in rows) for kind in dict.fromkeys(row["kind"] for row in rows)
        },
        "left_out": learning.left_out(found),
        "written": str(pairs_to),
    }


def _side(store: Store, text: str) -> tuple[RunInfo, list[str]]:
    """The run meant, and which of its generators."""
    run, _, generator = text.rpartition(":") if ":" in text else (text, "", "")
    latest = store.run()
    if not generator and text in latest.generators:
        return latest, [text]
    info = store.run(run)
    if generator and generator not in info.generators:
        raise UsageError(f"run {run} has no generator {generator!r}; {near(generator, info.generators)}")
    return info, [generator] if generator else list(info.generators)


def _tell(on_event: OnEvent | None, kind: str, done: int, total: int, text: str) -> None:
    if on_event is not None:
        on_event(Event(kind=kind, done=done, total=total, text=text))
