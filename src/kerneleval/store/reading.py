"""What is read: runs, attempts, outcomes, verdicts. Needs SQLAlchemy."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select

from kerneleval.records import (
    Candidate,
    Case,
    Cell,
    CellResult,
    Failed,
    InfrastructureError,
    Limits,
    Machine,
    Origin,
    Outcome,
    Protocol,
    Result,
    UsageError,
    Verdict,
    from_plain,
    near,
)
from kerneleval.store import schema
from kerneleval.store.plan import Attempt, RunInfo

OUTCOME_UPGRADES: list[Callable[[dict[str, Any]], dict[str, Any]]] = []
"""``[n - 1]`` turns the plain form of an outcome of format n into that of n + 1."""

VERDICT_UPGRADES: list[Callable[[dict[str, Any]], dict[str, Any]]] = []
"""The same for verdicts."""

_T = TypeVar("_T")

_CHUNK = 500  # parameters of one IN list
_YEAR_10000 = 253402300800  # in seconds since 1970: later ones are no dates
_ROWS = 1000  # rows fetched at once, so that a large run is never in memory as a whole


def _read(what: str, make: Callable[[Any], _T], text: str) -> _T:
    """A record of a stored text."""
    try:
        return make(json.loads(text))
    except (UsageError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"[:200]
        raise InfrastructureError(f"{what} is damaged ({said}); restore a copy of the store") from error


def _record(kind: type[_T], what: str, text: str) -> _T:
    """A record of this type from a stored text."""
    return _read(what, lambda plain: from_plain(kind, plain), text)


def _load(
    body: str,
    format_: int,
    present: int,
    upgrades: Sequence[Callable[[dict[str, Any]], dict[str, Any]]],
    what: str,
    make: Callable[[dict[str, Any]], _T],
) -> _T:
    """A record of a stored text, brought to the present format."""
    if format_ > present:
        raise UsageError(f"{what} has format {format_}, this kerneleval knows up to {present}; upgrade kerneleval")

    def made(plain: dict[str, Any]) -> _T:
        for step in upgrades[format_ - 1 : present - 1]:
            plain = step(plain)
        return make(plain)

    return _read(what, made, body)


def _case(row: Any) -> Case:
    names = ("task", "direction", "dtype", "layout", "distribution", "shape_category")
    plain = {name: str(getattr(row, name)) for name in names}

    def made(dims: Any) -> Case:
        folds = [[name, sizes] for name, sizes in dims if isinstance(sizes, list)]
        sizes = [[name, math.prod(size) if isinstance(size, list) else size] for name, size in dims]
        return from_plain(Case, {**plain, "dims": sizes, "folds": folds})

    return _read(f"case {row.id}", made, row.dims)


def _outcome(row: Any) -> Outcome:
    what = f"outcome {row.key}"
    read = partial(from_plain, Outcome)
    found: Outcome = _load(row.body, row.format, schema.OUTCOME_FORMAT, OUTCOME_UPGRADES, what, read)
    return found


# -- Runs -------------------------------------------------------------------------------------------------------------


def runs(connection: Connection, only: Sequence[str] | None = None) -> tuple[RunInfo, ...]:
    """All runs (or those with these identifiers), the latest first."""
    machines = {
        row.fingerprint: _record(Machine, f"machine {row.fingerprint}", row.body)
        for row in connection.execute(select(schema.machines.c.fingerprint, schema.machines.c.body))
    }
    table, judged = schema.attempts, schema.verdicts.c.attempt
    counting = select(table.c.run, func.count(), func.count(judged)).outerjoin(schema.verdicts, judged == table.c.id)
    counts = {run: (planned, finished) for run, planned, finished in connection.execute(counting.group_by(table.c.run))}
    aside: dict[str, dict[str, str]] = {}
    of = select(table.c.run, table.c.task, schema.verdicts.c.body).join(schema.verdicts, judged == table.c.id)
    for run, task, text in connection.execute(of.where(schema.verdicts.c.verdict == "not_judged").order_by(table.c.id)):
        message = _read(f"verdict of {task}", lambda plain: str(plain.get("message", "")), text)
        aside.setdefault(run, {}).setdefault(task, message)
    query = select(schema.runs, schema.protocols.c.body.label("protocol_body")).join(
        schema.protocols, schema.protocols.c.key == schema.runs.c.protocol
    )
    if only is not None:
        query = query.where(schema.runs.c.id.in_(only))
    found = []
    for row in connection.execute(query.order_by(schema.runs.c.created_unix_s.desc(), schema.runs.c.id.desc())):
        info = _read(f"run {row.id}", partial(_run, row, machines, counts.get(row.id, (0, 0))), row.body)
        found.append(dataclasses.replace(info, not_judged=aside.get(row.id, {})))
    return tuple(found)


def _run(row: Any, machines: Mapping[str, Machine], counts: tuple[int, int], body: Mapping[str, Any]) -> RunInfo:
    if not 0 <= row.created_unix_s < _YEAR_10000:
        raise ValueError(f"it began at {row.created_unix_s!r} s")
    return RunInfo(
        id=row.id,
        name=row.name,
        created_unix_s=row.created_unix_s,
        generators=tuple(str(name) for name in body["generators"]),
        machines=tuple(machines[f] for f in body["machines"]),
        protocol=from_plain(Protocol, json.loads(row.protocol_body)),
        planned=counts[0],
        finished=counts[1],
        not_evaluated={str(device): str(why) for device, why in body["not_evaluated"].items()},
        tasks={str(name): str(where) for name, where in body.get("tasks", {}).items()},
        audit=dict(body.get("audit", {})),
        rounds_of=str(body.get("rounds_of", "")),
        groups={str(name): str(group) for name, group in body.get("groups", {}).items()},
        limits={str(machine): from_plain(Limits, of) for machine, of in body.get("limits", {}).items()},
    )


def find_run(connection: Connection, text: str, place: str) -> str:
    """Identifier of the run meant: an identifier, the beginning of just one, or a name (the latest run of it)."""
    rows = connection.execute(
        select(schema.runs.c.id, schema.runs.c.name, schema.runs.c.body).order_by(
            schema.runs.c.created_unix_s.desc(), schema.runs.c.id.desc()
        )
    ).all()
    if not rows:
        raise UsageError(f"{place} holds no run yet; make one with 'kerneleval run'")
    if text == "latest":
        return str(next((row for row in rows if not {"audit", "rounds_of"} & json.loads(row.body).keys()), rows[0]).id)
    for row in rows:
        if text in (row.id, row.name):
            return str(row.id)
    starting = [row.id for row in rows if text and row.id.startswith(text)]
    if len(starting) > 1:
        raise UsageError(f"run {text!r} is ambiguous in {place}: {', '.join(starting[:5])}")
    if not starting:
        raise UsageError(f"no run {text!r} in {place}; {near(text, {row.name for row in rows} | {rows[0].id})}")
    return str(starting[0])


def attempts(connection: Connection, run: str, *, unfinished: bool = False) -> tuple[Attempt, ...]:
    """The attempts of a run in the order of its plan, with their cases."""
    conditions = [schema.attempts.c.run == run]
    if unfinished:
        conditions.append(schema.verdicts.c.attempt.is_(None))
    return tuple(_attempts_where(connection, *conditions).values())


def _attempts_where(connection: Connection, *conditions: ColumnElement[bool], cases: bool = True) -> dict[int, Attempt]:
    """Attempts by row number, the earliest planned first; the conditions may use attempts, runs and verdicts."""
    table, verdict = schema.attempts, schema.verdicts
    query = (
        select(table, schema.machines.c.device, verdict.c.attempt.label("verdict_of"))
        .join(schema.machines, schema.machines.c.fingerprint == table.c.machine)
        .join(schema.runs, schema.runs.c.id == table.c.run)
        .outerjoin(verdict, verdict.c.attempt == table.c.id)
        .where(*conditions)
        .order_by(table.c.id)
    )
    rows = connection.execute(query).all()
    found = _cases_of(connection, [row.id for row in rows]) if cases else {}
    return {row.id: _attempt(row, found.get(row.id, ())) for row in rows}


def _cases_of(connection: Connection, ids: Sequence[int]) -> dict[int, tuple[Case, ...]]:
    cells = schema.run_cells
    known: dict[str, Case] = {}
    cases: dict[int, list[Case]] = {}
    for start in range(0, len(ids), _CHUNK):
        query = (
            select(cells.c.attempt, schema.cases)
            .join(schema.cases, schema.cases.c.id == cells.c.case_id)
            .where(cells.c.attempt.in_(ids[start : start + _CHUNK]))
            .order_by(cells.c.attempt, cells.c.position)
        )
        for row in connection.execute(query):
            case = known.get(row.id) or known.setdefault(row.id, _case(row))
            cases.setdefault(row.attempt, []).append(case)
    return {attempt: tuple(of) for attempt, of in cases.items()}


def _planned(row: Any) -> dict[str, Any]:
    names = ("run", "generator", "sample", "task", "category", "level", "device", "machine")
    return {name: getattr(row, name) for name in names}


def _attempt(row: Any, cases: tuple[Case, ...]) -> Attempt:
    return Attempt(
        **_planned(row),
        candidate=row.candidate or "",
        origin=None if row.origin is None else _record(Origin, f"origin of {row.task}", row.origin),
        finished=row.verdict_of is not None,
        cases=cases,
    )


def candidate(connection: Connection, text: str, place: str) -> Candidate:
    """The source whose hash is, or alone begins with, the text; without origin. Raises UsageError where it is not."""
    known = schema.candidates.c.hash
    starting = known.startswith(text.lower(), autoescape=True)
    rows = connection.execute(select(schema.candidates).where(starting).order_by(known).limit(5)).all() if text else []
    if not rows:
        raise UsageError(f"no candidate {text} in {place}; give the beginning of its hash, and its store by --store")
    if len(rows) > 1:
        raise UsageError(f"candidate {text!r} is ambiguous in {place}: {', '.join(row.hash[:16] for row in rows)}")
    return candidate_of(rows[0], place)


def candidate_of(row: Any, place: str) -> Candidate:
    """The source of a row, without origin. Raises UsageError where it does not match its hash."""
    found = Candidate(
        files=_read(f"candidate {row.hash}", lambda files: tuple((str(p), str(t)) for p, t in files), row.files),
        language=row.language,
        entry=row.entry,
        backward_entry=row.backward_entry,
    )
    if found.hash != row.hash:
        raise UsageError(f"candidate {row.hash[:16]} in {place} was changed after it was stored: restore a copy")
    return found


# -- Outcomes ---------------------------------------------------------------------------------------------------------


def lookup(connection: Connection, cells: Iterable[Cell]) -> dict[str, Outcome]:
    """Outcomes known of these cells, by :attr:`Cell.key`: same candidate, case, machine and protocol."""
    keys = [cell.key for cell in cells]
    table = schema.outcomes
    known: dict[str, Outcome] = {}
    for start in range(0, len(keys), _CHUNK):
        query = select(table.c.key, table.c.format, table.c.body).where(table.c.key.in_(keys[start : start + _CHUNK]))
        known.update((row.key, _outcome(row)) for row in connection.execute(query))
    return known


def responses(connection: Connection) -> Iterator[dict[str, Any]]:
    """Everything that :func:`writing.put_response` kept, the oldest first."""
    table = schema.responses
    query = select(table.c.key, table.c.format, table.c.body).order_by(table.c.created_unix_s)
    for row in connection.execution_options(yield_per=_CHUNK).execute(query):
        yield _load(row.body, row.format, schema.RESPONSE_FORMAT, [], f"response {row.key}", dict)


def response(connection: Connection, key: str) -> dict[str, Any] | None:
    """What :func:`writing.put_response` kept under that key; None: nothing."""
    table = schema.responses
    row = connection.execute(select(table.c.format, table.c.body).where(table.c.key == key)).one_or_none()
    if row is None:
        return None
    return _load(row.body, row.format, schema.RESPONSE_FORMAT, [], f"response {key}", dict)


FILTERS: Mapping[str, ColumnElement[Any]] = {
    "generators": schema.attempts.c.generator,
    "tasks": schema.attempts.c.task,
    "categories": schema.attempts.c.category,
    "levels": schema.attempts.c.level,
    "devices": schema.machines.c.device,
    "directions": schema.cases.c.direction,
    "dtypes": schema.cases.c.dtype,
    "shape_categories": schema.cases.c.shape_category,
}
"""What :func:`results` can be restricted by: name -> column."""


def results(connection: Connection, run_ids: Sequence[str], filters: Mapping[str, Sequence[Any]]) -> Iterator[Result]:
    """One row for every planned cell of the runs, in the order of the runs and their plans; none of tasks that do not
    settle what is right there, nor of cells that a candidate which passed was not judged at.
    """
    for run in run_ids:
        query = _cells_query().where(schema.attempts.c.run == run)
        for name, allowed in filters.items():
            if name not in FILTERS:
                raise UsageError(f"unknown filter {name!r}; {near(name, FILTERS)}")
            if allowed:
                query = query.where(FILTERS[name].in_(list(allowed)))
        known: dict[str, Case] = {}
        groups, version = _of_run(connection, run)
        aside = _not_settled(connection, run)
        at, origin, judged_s = -1, Origin(), math.nan
        for row in connection.execute(query.execution_options(yield_per=_ROWS)):
            left_out = row.verdict == "passed" and row.body is None
            if left_out or (row.task, row.machine) in aside:
                continue
            case = known.get(row.id) or known.setdefault(row.id, _case(row))
            if row.attempt != at:  # an attempt's cells follow one another
                at, (origin, judged_s) = row.attempt, _of_attempt(row)
            yield Result(
                **_planned(row),
                candidate=row.candidate or "",
                case=case,
                outcome=_outcome(row) if row.body is not None else _not_judged(row),
                group=groups.get(row.task, ""),
                origin=origin,
                judged_s=judged_s,
                protocol_version=version,
            )


def _not_settled(connection: Connection, run: str) -> set[tuple[str, str]]:
    """(task, machine) of what is not judged there, whatever the candidate."""
    table, verdict = schema.attempts, schema.verdicts.c
    query = select(table.c.task, table.c.machine).join(schema.verdicts, verdict.attempt == table.c.id)
    return {(t, m) for t, m in connection.execute(query.where(table.c.run == run, verdict.verdict == "not_judged"))}


def _of_run(connection: Connection, run: str) -> tuple[Mapping[str, str], int]:
    """Groups of its tasks, and the version of its protocol."""
    query = select(schema.runs.c.body, schema.protocols.c.body.label("protocol"))
    found = query.join(schema.protocols, schema.protocols.c.key == schema.runs.c.protocol)
    row = connection.execute(found.where(schema.runs.c.id == run)).one_or_none()
    if row is None:
        return {}, Protocol.version
    version = _record(Protocol, f"protocol of run {run}", row.protocol).version
    return _read(f"run {run}", lambda plain: dict(plain.get("groups", {})), row.body), version


def _of_attempt(row: Any) -> tuple[Origin, float]:
    """Where the candidate of a row's attempt came from, and how long judging it took."""
    origin = Origin() if row.origin is None else _record(Origin, f"origin of {row.task}", row.origin)
    if row.verdict_body is None:
        return origin, math.nan
    seconds = _read(f"verdict of {row.task}", lambda plain: float(plain.get("seconds", math.nan)), row.verdict_body)
    return origin, seconds


def _cells_query() -> Select[Any]:
    a, o, v = schema.attempts, schema.outcomes, schema.verdicts
    same_cell = and_(
        o.c.candidate == a.c.candidate,
        o.c.case_id == schema.run_cells.c.case_id,
        o.c.machine == a.c.machine,
        o.c.protocol == schema.runs.c.protocol,
    )
    return (
        select(
            *(a.c[n] for n in ("run", "generator", "sample", "task", "category", "level", "machine", "candidate")),
            a.c.id.label("attempt"),
            a.c.origin,
            schema.machines.c.device,
            *(c for c in schema.cases.c if c is not schema.cases.c.task),
            o.c.key,
            o.c.format,
            o.c.body,
            v.c.verdict,
            v.c.stage,
            v.c.reason,
            v.c.body.label("verdict_body"),
        )
        .select_from(schema.run_cells)
        .join(a, a.c.id == schema.run_cells.c.attempt)
        .join(schema.runs, schema.runs.c.id == a.c.run)
        .join(schema.machines, schema.machines.c.fingerprint == a.c.machine)
        .join(schema.cases, schema.cases.c.id == schema.run_cells.c.case_id)
        .outerjoin(o, same_cell)
        .outerjoin(v, v.c.attempt == a.c.id)
        .order_by(a.c.id, schema.run_cells.c.position)
    )


def _not_judged(row: Any) -> Failed:
    """The outcome of a planned cell that was never judged: it failed, with the reason."""
    what = f"{row.generator}, task {row.task}, sample {row.sample}"
    evidence = {"judged": False}
    if row.verdict == "failed":
        message = _read(f"verdict of {what}", lambda plain: str(plain.get("message", "")), row.verdict_body)
        return Failed(stage=row.stage, reason=row.reason, message=message, evidence=evidence)
    if not row.candidate:
        return Failed(stage="generate", reason="missing", message=f"{what}: no candidate", evidence=evidence)
    message = f"{what}: planned and not judged; resume run {row.run}"
    return Failed(stage="build", reason="unfinished", message=message, evidence=evidence)


# -- Verdicts ---------------------------------------------------------------------------------------------------------


def verdicts(connection: Connection, run: str, *, cells: bool = True) -> Iterator[tuple[Attempt, Verdict]]:
    """Every finished attempt of a run with its verdict, in the order of the plan."""
    conditions = schema.attempts.c.run == run, schema.verdicts.c.attempt.is_not(None)
    finished = _attempts_where(connection, *conditions, cases=cells)
    for number, attempt in finished.items():
        yield attempt, _verdict(connection, number, attempt, cells=cells)


def _verdict(connection: Connection, number: int, attempt: Attempt, *, cells: bool = True) -> Verdict:
    table = schema.verdicts
    row = connection.execute(select(table).where(table.c.attempt == number)).one()
    # the columns count, which scores and people's queries see, not a body that differs
    columns = {name: getattr(row, name) for name in ("verdict", "stage", "reason", "track")}
    what = f"verdict of {attempt.task}"

    def read(plain: dict[str, Any]) -> Any:
        return from_plain(Verdict, {**plain, **columns, "cells": []})

    verdict: Verdict = _load(row.body, row.format, schema.VERDICT_FORMAT, VERDICT_UPGRADES, what, read)
    if not cells or verdict.verdict == "not_judged":
        return verdict
    rows = connection.execute(_cells_query().where(schema.attempts.c.id == number)).all()
    judged = tuple(CellResult(case=_case(c), outcome=_outcome(c)) for c in rows if c.body is not None)
    return dataclasses.replace(verdict, cells=judged)


def cached_verdict(
    connection: Connection, candidate: str, task: str, machine: str, protocol: str, cases: Sequence[Case]
) -> Verdict | None:
    """The latest verdict on this content hash, task, machine fingerprint, protocol key and set of cases, of any run.

    It must cover every case unless it failed, since judging may stop at a failure. None: judge it.
    """
    table = schema.attempts
    same = (
        select(table.c.id)
        .join(schema.runs, schema.runs.c.id == table.c.run)
        .join(schema.verdicts, schema.verdicts.c.attempt == table.c.id)
        .where(
            table.c.candidate == candidate,
            table.c.task == task,
            table.c.machine == machine,
            schema.runs.c.protocol == protocol,
        )
        .order_by(table.c.id.desc())
    )
    wanted = set(cases)
    for number in connection.execute(same).scalars().all():
        ((_, attempt),) = _attempts_where(connection, table.c.id == number).items()
        if set(attempt.cases) == wanted:
            verdict = _verdict(connection, number, attempt)
            if verdict.verdict == "failed" or len(verdict.cells) == len(wanted):
                return verdict
    return None
