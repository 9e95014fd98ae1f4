"""An audit: the stored verdicts of a run judged again, by new processes, with new secrets, at other shapes.

What it finds is a run of its own in the same store, which names the one it audits; an audit that was interrupted goes
on where it stopped.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.checking import borrowed, open_task, refused, unjudged
from kerneleval.records import (
    PUBLISHED,
    AuditSpec,
    Candidate,
    NotJudgedError,
    OnEvent,
    Protocol,
    ReplaySource,
    Task,
    UsageError,
    Verdict,
    near,
    tell,
    to_plain,
)

if TYPE_CHECKING:
    from kerneleval.judge.judge import Judge
    from kerneleval.store.plan import Attempt, RunInfo
    from kerneleval.store.store import Store

FORMAT = 1
"""Raised whenever a field of the audit's document changes its meaning or goes away."""

_COMPARED = ("verdict", "stage", "reason", "message", "track", "speedup")

_Key = tuple[str, int, str]
"""Generator, sample, task: what names an attempt of a run on one machine."""


def audit(spec: AuditSpec, *, judge: Judge | None = None, on_event: OnEvent | None = None) -> dict[str, Any]:
    """Judge the verdicts of a stored run again, and report what changed.

    Returns plain data: ``format``, ``of`` and ``audit`` (identifiers of the two runs), ``same_shapes``, ``protocol``,
    ``audited``, ``changed``, ``skipped`` (verdicts that had no candidate, or are on tasks that are not judged), and
    ``verdicts``, each with its contents ``before`` and ``after``, ``changes``, ``notes``, ``same_shapes`` and
    ``replay``. Raises UsageError where there is no such store, run or task, a candidate or task is not there any more,
    or there is nothing to audit; InfrastructureError where the machine, the disk or the database failed.
    """
    from kerneleval.store import open_store

    if spec.sample < 0:
        raise UsageError(f"a sample of {spec.sample} verdicts cannot be taken; give 1 or more, or leave it out for all")
    store = open_store(spec.store_url, create=False)
    info = store.run(spec.run)
    kind = spec.device or info.machines[0].device
    only = sorted(set(spec.only))
    request = {"of": info.id, "only": only, "sample": spec.sample, "same_shapes": spec.same_shapes}
    stored, skipped = _stored(store, info, kind, spec.only)
    with borrowed(judge, kind) as owner:
        found = _interrupted(store, owner, request, spec.tier or info.protocol.tier) if spec.resume else None
        protocol = _protocol(info, spec) if found is None else found.protocol
        subjects = _subjects(info, stored, protocol)
        if found is None:
            found = _begin(store, owner, info, request, protocol, _chosen(stored, owner, spec.sample), subjects)
        _judge(store, owner, found, subjects, spec.store_url, on_event)
        return _document(store, info, found, owner.machine.fingerprint, skipped)


def _stored(store: Store, info: RunInfo, kind: str, only: Sequence[str]) -> tuple[list[Attempt], int]:
    """The attempts that have a verdict on a candidate, on that kind of device; how many verdicts had no candidate."""
    attempts = store.attempts(info.id)
    names = {attempt.task for attempt in attempts}
    for name in only:
        if name not in names:
            raise UsageError(f"run {info.id} has no task {name!r}; {near(name, names)}")
    if kind not in {machine.device for machine in info.machines}:
        known = ", ".join(sorted({machine.device for machine in info.machines}))
        raise UsageError(f"run {info.id} judged nothing on {kind!r}; its devices are {known}")
    if kind == PUBLISHED:
        raise UsageError(
            f"run {info.id} was imported, not judged here; judge its sources with 'kerneleval run --generator FOLDER'"
        )
    finished = [a for a in attempts if a.finished and a.device == kind and (not only or a.task in only)]
    stored = [attempt for attempt in finished if attempt.candidate and attempt.task not in info.not_judged]
    if not stored:
        where = f" of {', '.join(only)}" if only else ""
        raise UsageError(f"run {info.id} has nothing to audit: no candidate{where} was judged there on {kind}")
    for attempt in stored:
        store.candidate(attempt.candidate)  # what is missing is an error before anything is judged
    return stored, len(finished) - len(stored)


def _subjects(info: RunInfo, stored: Sequence[Attempt], protocol: Protocol) -> dict[str, Task]:
    """The tasks by name, opened as the run had opened them."""
    subjects = {}
    for name in dict.fromkeys(attempt.task for attempt in stored):
        given = info.tasks.get(name, name)
        task = open_task(given, protocol)
        if task.name != name:
            raise UsageError(
                f"{given} now defines task {task.name!r}, but run {info.id} judged {name!r}; restore the file"
            )
        subjects[name] = task
    return subjects


def _chosen(stored: Sequence[Attempt], judge: Judge, sample: int) -> list[Attempt]:
    """One attempt for each generator, sample and task, this machine's where there are several; of these a sample."""
    by_key: dict[_Key, Attempt] = {}
    for attempt in stored:
        if _key(attempt) not in by_key or attempt.machine == judge.machine.fingerprint:
            by_key[_key(attempt)] = attempt
    chosen = list(by_key.values())
    if not sample or sample >= len(chosen):
        return chosen
    kept = set(secrets.SystemRandom().sample(range(len(chosen)), sample))
    return [attempt for i, attempt in enumerate(chosen) if i in kept]


def _key(attempt: Attempt) -> _Key:
    return attempt.generator, attempt.sample, attempt.task


def _interrupted(store: Store, judge: Judge, request: dict[str, Any], tier: str) -> RunInfo | None:
    """The latest audit with the same request on this machine, unless it is complete."""
    for info in store.runs():
        same = dict(info.audit) == request and info.protocol.tier == tier
        same = same and info.protocol.version == Protocol.version
        if same and info.machines[0].fingerprint == judge.machine.fingerprint:
            return None if info.complete else info
    return None


def _protocol(info: RunInfo, spec: AuditSpec) -> Protocol:
    """How the audit judges: as the run did, but for the tier and the seed of the shapes."""
    seed = info.protocol.suite_seed
    while not spec.same_shapes and seed == info.protocol.suite_seed:
        seed = secrets.randbits(31)  # chosen after the candidates were made: none of them could know these shapes
    return replace(
        info.protocol,
        tier=spec.tier or info.protocol.tier,  # type: ignore[arg-type]
        suite_seed=seed,
        version=Protocol.version,  # it is judged as today, whenever the run was
        audit=secrets.token_hex(8),
    )


def _begin(
    store: Store,
    judge: Judge,
    info: RunInfo,
    request: dict[str, Any],
    protocol: Protocol,
    chosen: Sequence[Attempt],
    subjects: dict[str, Task],
) -> RunInfo:
    """Store the audit with all that it is going to judge."""
    from kerneleval.store import NewRun, Planned

    plan = [
        Planned(
            generator=attempt.generator,
            task=attempt.task,
            category=attempt.category,
            level=attempt.level,
            group=subjects[attempt.task].group,
            cases=attempt.cases if request["same_shapes"] else judge.plan(subjects[attempt.task], protocol),
            sample=attempt.sample,
            candidate=_candidate(store, attempt),
        )
        for attempt in chosen
    ]
    generators = [name for name in info.generators if any(p.generator == name for p in plan)]
    run = store.begin_run(
        NewRun(
            name=f"audit of {info.id}",
            generators=tuple(generators),
            machines=(judge.machine,),
            protocol=protocol,
            plan=tuple(plan),
            tasks={name: info.tasks.get(name, name) for name in subjects},
            audit=request,
        )
    )
    return store.run(run)


def _candidate(store: Store, attempt: Attempt) -> Candidate:
    candidate = store.candidate(attempt.candidate)
    return candidate if attempt.origin is None else replace(candidate, origin=attempt.origin)


def _judge(
    store: Store,
    judge: Judge,
    info: RunInfo,
    subjects: dict[str, Task],
    store_url: str | None,
    on_event: OnEvent | None,
) -> None:
    """Judge what is left of the audit; every verdict is stored as soon as it is there."""
    from kerneleval.store import for_replay

    left, place = store.unfinished(info.id), for_replay(store_url)
    for done, attempt in enumerate(left, info.planned - len(left)):
        tell(on_event, "run", done, info.planned, f"{attempt.generator}: {attempt.task}")
        candidate = _candidate(store, attempt)
        task, given = subjects[attempt.task], info.tasks.get(attempt.task, attempt.task)
        replay = ReplaySource(source=candidate.stored_name, task=given, store=place)
        try:
            verdict = judge.check(candidate, task, info.protocol, cases=attempt.cases, replay=replay, on_event=on_event)
        except NotJudgedError as error:
            verdict = unjudged(judge, task, info.protocol, refused(error), candidate.hash)
        store.put_verdict(info.id, attempt.generator, attempt.sample, candidate, verdict)
    tell(on_event, "run", info.planned, info.planned, "done")


def _document(store: Store, before: RunInfo, after: RunInfo, machine: str, skipped: int) -> dict[str, Any]:
    later = {_key(attempt): verdict for attempt, verdict in store.verdicts(after.id)}
    earlier: dict[_Key, Verdict] = {}
    for attempt, verdict in store.verdicts(before.id):
        known = _key(attempt) in later and verdict.machine.device == later[_key(attempt)].machine.device
        if known and (_key(attempt) not in earlier or attempt.machine == machine):
            earlier[_key(attempt)] = verdict
    found = [_entry(key, earlier[key], verdict) for key, verdict in later.items()]
    return {
        "format": FORMAT,
        "of": before.id,
        "audit": after.id,
        "same_shapes": bool(after.audit["same_shapes"]),
        "protocol": to_plain(after.protocol),
        "audited": len(found),
        "changed": sum(bool(entry["changes"]) for entry in found),
        "skipped": skipped,
        "verdicts": found,
    }


def _entry(key: _Key, before: Verdict, after: Verdict) -> dict[str, Any]:
    from kerneleval.scores.common.changes import compare

    generator, sample, task = key
    comparison = compare(before, after)
    return {
        "generator": generator,
        "sample": sample,
        "task": task,
        "candidate": after.candidate,
        "before": {name: to_plain(getattr(before, name)) for name in _COMPARED},
        "after": {name: to_plain(getattr(after, name)) for name in _COMPARED},
        **to_plain(comparison),
        "replay": after.replay,
    }
