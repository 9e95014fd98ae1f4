"""Generators over a suite: plan, judge, store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kerneleval.pipeline.asking import Kept, answers_of
from kerneleval.pipeline.checking import OnEvent, borrowed, open_task, tell
from kerneleval.records import (
    Answer,
    CellResult,
    Failed,
    Limits,
    Machine,
    Protocol,
    Task,
    Trust,
    Verdict,
)

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge
    from kerneleval.store.plan import Attempt, Planned
    from kerneleval.store.store import Store

__all__ = ["run"]

ARCHETYPES = ("baseline", "fragile", "robust")
"""What ``run`` judges when no generator is named."""


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

    kept = Kept(store_url)
    services = makers.Services(cache=kept, read=read_candidate)
    makers_found = [makers.find(g, services) for g in generators or ARCHETYPES]
    given = list(tasks or makers.SUITE)
    suite = [open_task(t, shapes, suite_seed=0) for t in given]
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
    with borrowed(judge, device) as owner:
        limits = _limits(store, owner, protocol)
        answers = {maker.name: answers_of(maker, suite, owner.machine, limits, on_event) for maker in makers_found}
        plan = _plan(answers, suite, owner, protocol)
        for task in suite:
            for line in owner.left_out(task, protocol):
                tell(on_event, "note", 0, 0, f"{task.name}: {line}")
        names = [maker.name for maker in makers_found]
        sources = {task.name: source for task, source in zip(suite, given, strict=True)}
        run_id = store.begin_run(
            name or "+".join(names),
            names,
            owner.machine,
            protocol,
            plan,
            tasks=sources,
            limits={owner.machine.fingerprint: limits},
            resume=resume,
        )
        open_attempts = store.unfinished(run_id)
        subjects = {task.name: task for task in suite}
        total = len(plan)
        coming = [answers[a.generator][a.task][a.sample].candidate for a in open_attempts]
        owner.build_ahead([candidate for candidate in coming if candidate is not None], on_event)
        for attempt in open_attempts:
            done = total - len(open_attempts) + open_attempts.index(attempt)
            text = f"{attempt.generator}: {attempt.task}"
            tell(on_event, "run", done, total, text)
            answer = answers[attempt.generator][attempt.task][attempt.sample]
            verdict = _attempt(
                store,
                owner,
                attempt,
                answer,
                subjects[attempt.task],
                protocol,
                sources[attempt.task],
                for_replay(store_url),
                on_event,
            )
            store.put_verdict(run_id, attempt.generator, attempt.sample, answer.candidate, verdict)
        tell(on_event, "run", total, total, "done")
    return run_id


def _plan(
    answers: Mapping[str, Mapping[str, Sequence[Answer]]], suite: Sequence[Task], judge: Judge, protocol: Protocol
) -> list[Planned]:
    """Every attempt with its cases: answers by generator and task."""
    from kerneleval.store import Planned

    return [
        Planned(
            generator=generator,
            task=task.name,
            category=task.category,
            level=task.level,
            group=task.group,
            cases=cases,
            sample=sample,
            candidate=answer.candidate,
            origin=answer.origin if answer.problem else None,
        )
        for task in suite
        for cases in [judge.plan(task, protocol)]
        for generator, found in answers.items()
        for sample, answer in enumerate(found[task.name])
    ]


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
    answer: Answer,
    task: Task,
    protocol: Protocol,
    task_source: str,
    place: str,
    on_event: OnEvent | None,
) -> Verdict:
    """The verdict on one attempt: from the store where it is known, else judged now."""
    candidate = answer.candidate
    if candidate is None:
        return _missing(attempt, answer, protocol, judge.machine, judge.bench.trust)
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


def _missing(attempt: Attempt, answer: Answer, protocol: Protocol, machine: Machine, trust: Trust) -> Verdict:
    message = answer.message or f"{attempt.generator} gave no candidate for {attempt.task}"
    failed = Failed(stage="generate", reason=answer.problem or "missing", message=message)
    return Verdict(
        verdict="failed",
        stage=failed.stage,
        reason=failed.reason,
        message=message,
        task=attempt.task,
        candidate="",
        track="",
        trust=trust,
        machine=machine,
        protocol=protocol,
        speedup=None,
        cells=tuple(CellResult(case=case, outcome=failed) for case in attempt.cases),
    )
