"""What is written: plans, candidates and verdicts, each in one transaction. Needs SQLAlchemy."""

from __future__ import annotations

import dataclasses
import json
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from kerneleval.records import (
    Candidate,
    Case,
    Cell,
    Failed,
    Origin,
    Outcome,
    Passed,
    UsageError,
    Verdict,
    digest,
    to_plain,
)
from kerneleval.store import schema
from kerneleval.store.plan import NewRun, Planned

WHOLE_CANDIDATE_STAGES = ("generate", "build", "load", "honesty")
"""A verdict that failed at one of these is about the candidate, not about one cell."""


def dump(value: Any) -> str:
    """Plain ASCII JSON text of a record or of plain data; raises TypeError for a value without a plain form."""
    return json.dumps(to_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def case_id(case: Case) -> str:
    """Identity of a case in the store (32 hex digits); the shape category belongs to it, as in :attr:`Cell.key`."""
    return digest(case.key, case.shape_category)[:32]


def add_new(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]], key: str) -> None:
    """Insert the rows whose key is not there yet, in the order of the keys: two writers then never deadlock."""
    unique = {row[key]: row for row in rows}
    if not unique:
        return
    maker = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    connection.execute(maker(table).on_conflict_do_nothing(), [dict(unique[k]) for k in sorted(unique)])


def _row(table: Table, record: object, **given: Any) -> dict[str, Any]:
    """A row of the table: what is given, and for its other columns the record's fields of their names."""
    return {c.name: given[c.name] if c.name in given else getattr(record, c.name) for c in table.c}


def _case_row(case: Case) -> dict[str, Any]:
    folds = dict(case.folds)
    return _row(schema.cases, case, id=case_id(case), dims=dump([(n, folds.get(n, v)) for n, v in case.dims]))


def _candidate_row(candidate: Candidate) -> dict[str, Any]:
    return _row(schema.candidates, candidate, files=dump(candidate.files))


# -- Runs -------------------------------------------------------------------------------------------------------------


def begin_run(connection: Connection, new: NewRun, *, resume: bool = False) -> str:
    """Store a run with everything that it is going to judge; returns its identifier, or (``resume``) that of the latest
    run of the same name, generators, machines, protocol, plan and identity, if it was interrupted. Raises UsageError
    for an empty plan, an attempt without cases, planned twice, or on an unknown machine.
    """
    fingerprints = [machine.fingerprint for machine in new.machines]
    plan = _resolved(new.plan, new.generators, fingerprints)
    plan_key = _plan_key(new, plan)
    if resume and (found := _interrupted(connection, plan_key)) is not None:
        return found
    now = time.time()
    run = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}-{secrets.token_hex(3)}"
    add_new(connection, schema.machines, [_row(schema.machines, m, body=dump(m)) for m in new.machines], "fingerprint")
    add_new(connection, schema.protocols, [{"key": new.protocol.key, "body": dump(new.protocol)}], "key")
    body = {name: getattr(new, name) for name in ("generators", "not_evaluated", "tasks", "limits")}
    body |= {"machines": fingerprints, "groups": {p.task: p.group for p in plan if p.group}}
    body |= {name: of for name in ("audit", "rounds_of") if (of := getattr(new, name))}
    values = {"id": run, "name": new.name, "created_unix_s": now, "protocol": new.protocol.key, "plan": plan_key}
    connection.execute(insert(schema.runs).values(values | {"body": dump(body)}))
    _add_attempts(connection, run, plan)
    return run


def _resolved(plan: Sequence[Planned], generators: Sequence[str], fingerprints: Sequence[str]) -> list[Planned]:
    """The plan with every machine filled in and every entry checked."""
    if not fingerprints:
        raise UsageError("a run needs a machine to judge on")
    if not plan:
        raise UsageError(
            "the plan of the run is empty: no task has a candidate to judge here; give other tasks or generators"
        )
    seen: set[tuple[str, int, str, str]] = set()
    resolved = []
    for p in plan:
        what = f"plan: {p.generator}, task {p.task}, sample {p.sample}"
        if not p.machine and len(fingerprints) > 1:
            raise UsageError(f"{what}: the run has {len(fingerprints)} machines; name one of them")
        machine = p.machine or fingerprints[0]
        if machine not in fingerprints:
            raise UsageError(f"{what}: machine {machine!r} is not one of the run's ({', '.join(fingerprints)})")
        if p.generator not in generators:
            raise UsageError(f"{what}: not one of the run's generators ({', '.join(generators)})")
        if not p.cases:
            raise UsageError(f"{what}: no case to judge; leave the task out or raise the memory budget")
        if wrong := [case for case in p.cases if case.task != p.task]:
            raise UsageError(f"{what}: case {wrong[0].key} is of task {wrong[0].task}")
        identity = (p.generator, p.sample, p.task, machine)
        if identity in seen:
            raise UsageError(f"{what}: planned twice on machine {machine}")
        seen.add(identity)
        cases = tuple({case_id(case): case for case in p.cases}.values())
        resolved.append(dataclasses.replace(p, machine=machine, cases=cases))
    return resolved


def _plan_key(new: NewRun, plan: Sequence[Planned]) -> str:
    """Digest of all that makes two runs the same; a candidate counts where the plan knows it already."""
    parts = [new.name, *new.generators, new.protocol.key]
    for p in plan:
        candidate = "" if p.candidate is None else p.candidate.hash
        parts += [p.generator, str(p.sample), p.task, p.machine, candidate, *(case_id(case) for case in p.cases)]
    return digest(digest(*parts), *new.identity) if new.identity else digest(*parts)


def _interrupted(connection: Connection, plan_key: str) -> str | None:
    """The latest run of this plan, unless it is complete."""
    run = connection.execute(
        select(schema.runs.c.id)
        .where(schema.runs.c.plan == plan_key)
        .order_by(schema.runs.c.created_unix_s.desc(), schema.runs.c.id.desc())
        .limit(1)
    ).scalar_one_or_none()
    if run is None:
        return None
    open_attempts = connection.execute(
        select(func.count())
        .select_from(schema.attempts.outerjoin(schema.verdicts, schema.verdicts.c.attempt == schema.attempts.c.id))
        .where(schema.attempts.c.run == run, schema.verdicts.c.attempt.is_(None))
    ).scalar_one()
    return str(run) if open_attempts else None


def add_attempts(connection: Connection, run: str, plan: Sequence[Planned]) -> None:
    """Plan more attempts of a run that has begun; those that it has already stay as they are. Raises UsageError where
    there is no such run; else as :func:`begin_run`.
    """
    found = connection.execute(select(schema.runs.c.body).where(schema.runs.c.id == run)).scalar_one_or_none()
    if found is None:
        raise UsageError(f"there is no run {run}")
    body = json.loads(found)
    resolved = _resolved(plan, body["generators"], body["machines"])
    table = schema.attempts
    columns = (table.c.generator, table.c.sample, table.c.task, table.c.machine)
    known = {tuple(row) for row in connection.execute(select(*columns).where(table.c.run == run))}
    _add_attempts(connection, run, [p for p in resolved if (p.generator, p.sample, p.task, p.machine) not in known])


def _add_attempts(connection: Connection, run: str, plan: Sequence[Planned]) -> None:
    sources = [_candidate_row(p.candidate) for p in plan if p.candidate is not None]
    add_new(connection, schema.candidates, sources, "hash")
    add_new(connection, schema.cases, [_case_row(case) for p in plan for case in p.cases], "id")
    for p in plan:
        origin = p.origin if p.candidate is None else p.candidate.origin
        attempt = connection.execute(
            insert(schema.attempts)
            .values(
                **{name: getattr(p, name) for name in ("generator", "sample", "task", "category", "level", "machine")},
                run=run,
                candidate=None if p.candidate is None else p.candidate.hash,
                origin=None if origin is None else dump(origin),
            )
            .returning(schema.attempts.c.id)
        ).scalar_one()
        _add_cells(connection, attempt, p.cases, 0)


def _add_cells(connection: Connection, attempt: int, cases: Sequence[Case], start: int) -> None:
    if cases:
        connection.execute(
            insert(schema.run_cells),
            [{"attempt": attempt, "position": start + i, "case_id": case_id(case)} for i, case in enumerate(cases)],
        )


# -- Candidates and verdicts ------------------------------------------------------------------------------------------


def put_candidate(
    connection: Connection, run: str, generator: str, sample: int, task: str, candidate: Candidate
) -> None:
    """Store what a generator made before it is judged, for all machines on which the attempt is unfinished. Raises
    UsageError where the run has no such attempt.
    """
    add_new(connection, schema.candidates, [_candidate_row(candidate)], "hash")
    table = schema.attempts
    changed = connection.execute(
        update(table)
        .where(table.c.run == run, table.c.generator == generator, table.c.sample == sample, table.c.task == task)
        .where(table.c.id.not_in(select(schema.verdicts.c.attempt)))
        .values(candidate=candidate.hash, origin=dump(candidate.origin))
    )
    if not changed.rowcount:
        raise UsageError(f"run {run} has no unfinished attempt of {generator} at task {task}, sample {sample}")


def put_verdict(
    connection: Connection,
    run: str,
    generator: str,
    sample: int,
    candidate: Candidate | None,
    verdict: Verdict,
    *,
    origin: Origin | None = None,
    replace: bool = False,
) -> bool:
    """Store a verdict with all its cells, in one writing transaction; returns whether it was stored.

    A verdict on an attempt that has one already is dropped, and outcomes known of a cell stay, unless ``replace``.
    A candidate that failed as a whole (:func:`effective_outcomes`) has its passed cells stored as failed, whatever was
    known of them. Cases beyond the plan are added to it.

    Args:
        connection, run, generator, sample: the attempt, with the verdict's task, machine and protocol; UsageError where
            the run has no such attempt, or another protocol.
        candidate: what was judged; None: the generator gave nothing (stage ``generate``).
        verdict: the verdict.
        origin: as :class:`Planned` has it.
        replace: whether verdict and outcomes take the place of older ones.
    """
    attempt = _attempt(connection, run, generator, sample, verdict)
    earlier = schema.verdicts.c.attempt == attempt.id
    present = connection.execute(select(schema.verdicts.c.attempt).where(earlier)).scalar_one_or_none()
    if present is not None and not replace:
        return False
    change = update(schema.attempts).where(schema.attempts.c.id == attempt.id)
    if candidate is not None:
        _put_outcomes(connection, candidate, verdict, replace=replace)
        connection.execute(change.values(candidate=candidate.hash, origin=dump(candidate.origin)))
        _add_unplanned(connection, attempt.id, [c.case for c in verdict.cells])
    elif origin is not None:
        connection.execute(change.values(origin=dump(origin)))
    if present is not None:
        connection.execute(delete(schema.verdicts).where(earlier))
    plain = to_plain(verdict)
    del plain["cells"]
    row = _row(
        schema.verdicts,
        verdict,
        attempt=attempt.id,
        candidate="" if candidate is None else candidate.hash,
        device=verdict.machine.device,
        created_unix_s=time.time(),
        format=schema.VERDICT_FORMAT,
        body=dump(plain),
    )
    connection.execute(insert(schema.verdicts).values(row))
    return True


def put_response(connection: Connection, key: str, body: Mapping[str, Any]) -> None:
    """Keep what a model or an agent answered, plain data, under a digest of its question; what is there stays."""
    row = {"key": key, "created_unix_s": time.time(), "format": schema.RESPONSE_FORMAT, "body": dump(dict(body))}
    add_new(connection, schema.responses, [row], "key")


def _attempt(connection: Connection, run: str, generator: str, sample: int, verdict: Verdict) -> Any:
    """The planned attempt that the verdict is about; its row is locked until the transaction ends."""
    table = schema.attempts
    found = connection.execute(
        select(table.c.id, schema.runs.c.protocol)
        .join(schema.runs, schema.runs.c.id == table.c.run)
        .where(
            table.c.run == run,
            table.c.generator == generator,
            table.c.sample == sample,
            table.c.task == verdict.task,
            table.c.machine == verdict.machine.fingerprint,
        )
        .with_for_update(of=table)  # SQLite has no row locks and ignores it: the transaction holds the file's lock
    ).one_or_none()
    what = f"{generator}, task {verdict.task}, sample {sample}"
    if found is None:
        raise UsageError(
            f"run {run} has no attempt for {what} on {verdict.machine.name} (machine {verdict.machine.fingerprint})"
        )
    if found.protocol != verdict.protocol.key:
        raise UsageError(f"run {run}: {what} was judged under protocol {verdict.protocol.key}, not {found.protocol}")
    return found


def effective_outcomes(verdict: Verdict) -> list[tuple[Case, Outcome]]:
    """The outcomes as they count: a candidate that failed as a whole has passed nowhere.

    A candidate found dishonest may have right outputs and fast times in every cell; those must neither count nor be
    served from the cache later. What was seen stays in the evidence under ``cell``.
    """
    judged: list[tuple[Case, Outcome]] = [(c.case, c.outcome) for c in verdict.cells]
    if not _failed_as_a_whole(verdict):
        return judged
    said = {name: getattr(verdict, name) for name in ("stage", "reason", "message", "replay")}
    return [
        (case, Failed(**said, evidence={"cell": to_plain(outcome)}) if isinstance(outcome, Passed) else outcome)
        for case, outcome in judged
    ]


def _failed_as_a_whole(verdict: Verdict) -> bool:
    if verdict.verdict == "passed":
        return False
    failed = [c for c in verdict.cells if isinstance(c.outcome, Failed) and c.outcome.reason != "unsupported"]
    return verdict.stage in WHOLE_CANDIDATE_STAGES or not failed


def _put_outcomes(connection: Connection, candidate: Candidate, verdict: Verdict, *, replace: bool) -> None:
    add_new(connection, schema.candidates, [_candidate_row(candidate)], "hash")
    add_new(connection, schema.cases, [_case_row(c.case) for c in verdict.cells], "id")
    rows = [_outcome_row(candidate, verdict, case, outcome) for case, outcome in effective_outcomes(verdict)]
    if replace or _failed_as_a_whole(verdict):
        keys = sorted(row["key"] for row in rows)
        for start in range(0, len(keys), 500):
            connection.execute(delete(schema.outcomes).where(schema.outcomes.c.key.in_(keys[start : start + 500])))
    add_new(connection, schema.outcomes, rows, "key")


def _outcome_row(candidate: Candidate, verdict: Verdict, case: Case, outcome: Outcome) -> dict[str, Any]:
    cell = Cell(candidate=candidate.hash, case=case, machine=verdict.machine.fingerprint, protocol=verdict.protocol.key)
    timing = outcome.timing if isinstance(outcome, Passed) else None
    return _row(
        schema.outcomes,
        cell,
        case_id=case_id(case),
        passed=isinstance(outcome, Passed),
        stage=outcome.stage if isinstance(outcome, Failed) else "",
        reason=outcome.reason if isinstance(outcome, Failed) else "ok",
        speedup=None if timing is None else timing.speedup,
        created_unix_s=time.time(),
        format=schema.OUTCOME_FORMAT,
        body=dump(outcome),
    )


def _add_unplanned(connection: Connection, attempt: int, judged: Sequence[Case]) -> None:
    """Add to the attempt the cases that were judged beyond its plan, after the planned ones."""
    table = schema.run_cells
    rows = connection.execute(select(table.c.case_id, table.c.position).where(table.c.attempt == attempt)).all()
    planned = {row.case_id for row in rows}
    extra = {case_id(case): case for case in judged if case_id(case) not in planned}
    _add_cells(connection, attempt, list(extra.values()), 1 + max((row.position for row in rows), default=-1))
