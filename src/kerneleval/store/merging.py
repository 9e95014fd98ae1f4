"""What one store has and another lacks: runs with all that they need. Needs SQLAlchemy; see ``docs/store.md``.

Rows travel as they are, a thousand at a time; only the numbers of attempts change, which every store counts for itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import sqlalchemy
from sqlalchemy import Connection, Row, Select, Table, func, insert, inspect, select, text, update

from kerneleval.records import Machine, Protocol, UsageError, from_plain
from kerneleval.store import reading, schema, writing
from kerneleval.store.database import Database

_ROWS = 1000
_ATTEMPTS = 100  # each with up to hundreds of cells
_LOCK = 0x6B65726F  # of merges on a PostgreSQL server: two of them at once would meet halfway

Change = Literal["added", "extended", "unchanged"]
OnRows = Callable[[int, int], None]
"""Called with the rows done and their number."""


@dataclass(frozen=True, kw_only=True)
class MergedRun:
    """One run of a source; its fields are those of :class:`~kerneleval.store.RunInfo` in the source, but for
    ``change``: what became of it in the target.
    """

    id: str
    name: str
    created_unix_s: float
    machines: tuple[Machine, ...]
    planned: int
    finished: int
    change: Change
    """``added``; ``extended``: it was there, with fewer attempts or verdicts; ``unchanged``: it was all there."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """The result of merging one source."""

    source: str
    """Path, or URL without password."""
    runs: tuple[MergedRun, ...]
    """Every run of the source, the latest first."""
    rows: Mapping[str, int]
    """Table -> rows that were added or replaced; empty: the target had everything."""
    kept: int = 0
    """Cells that both stores had judged, with other figures or another failure: the target's stay."""
    refuted: int = 0
    """Cells that had passed in one store and failed in the other: they have failed."""
    examples: tuple[str, ...] = ()
    """Some of those, a line each."""


@dataclass
class _Work:
    """One source on its way into the target."""

    source: Database
    reader: Connection
    target: Database
    writer: Connection
    tell: OnRows
    total: int = 0
    done: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    changed: dict[str, Change] = field(default_factory=dict)
    """Run -> what became of it."""

    def chunks(self, query: Select[Any], rows: int = _ROWS) -> Iterator[Sequence[Row[Any]]]:
        """The rows of a query to the source, so many at a time; what fails there is the source's fault."""
        try:
            yield from self.reader.execute(query.execution_options(yield_per=rows)).partitions()
        except sqlalchemy.exc.DBAPIError as error:
            raise self.source.explained(error.orig or error) from error

    def add(self, table: Table, rows: Sequence[Mapping[str, Any]], key: str) -> None:
        """Rows that the target lacks."""
        writing.add_new(self.writer, table, rows, key)
        self.count(table, len(rows))

    def count(self, table: Table, rows: int) -> None:
        """So many rows of a table are new."""
        if rows:
            self.rows[table.name] = self.rows.get(table.name, 0) + rows

    def step(self, rows: int) -> None:
        """So many rows are done."""
        self.done += rows
        self.tell(self.done, self.total)

    def conflict(self, what: str) -> UsageError:
        """Both stores have it, and not alike."""
        return UsageError(
            f"{what} is in {self.source.place} and in {self.target.place} with other contents; nothing of "
            f"{self.source.place} was merged: give it a store of its own, or restore the copy that is right"
        )


def merge(source: Database, target: Database, tell: OnRows = lambda done, total: None) -> Merged:
    """Copy every run of a store into another of the present schema version, in one transaction there; see
    :meth:`kerneleval.store.store.Store.merge`.
    """
    with target.reading() as connection:
        reading.runs(connection)  # what is damaged there is not the source's fault
    with source.reading() as reader:
        if reader.dialect.name == "postgresql":  # one snapshot for all that is read, whatever is written meanwhile
            reader.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        infos = reading.runs(reader)  # a run that cannot be read would keep every other run of the target from being
        with target.writing() as writer:
            if writer.dialect.name == "postgresql":
                writer.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            work = _Work(source, reader, target, writer, tell)
            work.total = _count(work, schema.outcomes) + _count(work, schema.attempts)
            _shared(work, schema.machines, "fingerprint", ("body",), lambda body: from_plain(Machine, json.loads(body)))
            _shared(work, schema.protocols, "key", ("body",), lambda body: from_plain(Protocol, json.loads(body)))
            _shared(work, schema.candidates, "hash", ("language", "entry", "backward_entry", "files"), str)
            columns = tuple(c.name for c in schema.cases.c if c.name != "id")
            _shared(work, schema.cases, "id", columns, str)
            _runs(work)
            _attempts(work)
            kept, refuted, examples = _outcomes(work)
            _responses(work)
    names = ("id", "name", "created_unix_s", "machines", "planned", "finished")
    runs = tuple(
        MergedRun(**{name: getattr(info, name) for name in names}, change=work.changed[info.id]) for info in infos
    )
    return Merged(
        source=source.place, runs=runs, rows=dict(work.rows), kept=kept, refuted=refuted, examples=tuple(examples)
    )


def _count(work: _Work, table: Table) -> int:
    ((number,),) = next(work.chunks(select(func.count()).select_from(table)))
    return int(number)


def _plain(row: Row[Any]) -> dict[str, Any]:
    return dict(row._mapping)


def _there(work: _Work, table: Table, key: str, values: Sequence[Any]) -> dict[Any, Row[Any]]:
    """The target's rows with these keys."""
    column = table.c[key]
    return {getattr(row, key): row for row in work.writer.execute(select(table).where(column.in_(values)))}


def _shared(work: _Work, table: Table, key: str, columns: Sequence[str], read: Callable[[str], Any]) -> None:
    """Rows that runs share. Those with the same key must be the same: it is a digest of their contents."""
    for chunk in work.chunks(select(table).order_by(table.c[key])):
        if table is schema.candidates:
            for row in chunk:  # a source that does not match its hash would be judged under another's name
                reading.candidate_of(row, work.source.place)
        there = _there(work, table, key, [getattr(row, key) for row in chunk])
        new = []
        for row in chunk:
            name = getattr(row, key)
            if name not in there:
                new.append(_plain(row))
                continue
            ours, theirs = (tuple(read(getattr(of, column)) for column in columns) for of in (there[name], row))
            if ours != theirs:
                raise work.conflict(f"{table.name[:-1]} {name}")
        work.add(table, new, key)


def _runs(work: _Work) -> None:
    table = schema.runs
    for chunk in work.chunks(select(table).order_by(table.c.id)):
        there = _there(work, table, "id", [row.id for row in chunk])
        for row in chunk:
            ours = there.get(row.id)
            if ours is not None and _said(ours) != _said(row):
                raise work.conflict(f"run {row.id} ({row.name})")
            work.changed[row.id] = "added" if ours is None else "unchanged"
        work.add(table, [_plain(row) for row in chunk if row.id not in there], "id")


def _said(row: Row[Any]) -> tuple[Any, ...]:
    return row.name, row.created_unix_s, row.protocol, row.plan, json.loads(row.body)


# -- Attempts ---------------------------------------------------------------------------------------------------------


def _attempts(work: _Work) -> None:
    """Attempts with their cells and verdicts, in the order of the source's plans."""
    table, cells, verdicts = schema.attempts, schema.run_cells, schema.verdicts
    for chunk in work.chunks(select(table).order_by(table.c.id), _ATTEMPTS):
        ids = [row.id for row in chunk]
        planned: dict[int, dict[int, str]] = {}
        query = select(cells).where(cells.c.attempt.in_(ids)).order_by(cells.c.attempt, cells.c.position)
        for part in work.chunks(query):
            for cell in part:
                planned.setdefault(cell.attempt, {})[cell.position] = cell.case_id
        judged: dict[int, Row[Any]] = {}
        for part in work.chunks(select(verdicts).where(verdicts.c.attempt.in_(ids))):
            judged |= {row.attempt: row for row in part}
        for row in chunk:
            _attempt(work, row, planned.get(row.id, {}), judged.get(row.id))
        work.step(len(chunk))


def _attempt(work: _Work, row: Row[Any], cells: Mapping[int, str], verdict: Row[Any] | None) -> None:
    table = schema.attempts
    before = sum(work.rows.values())
    ours = None
    if work.changed[row.run] != "added":
        same = [table.c[name] == getattr(row, name) for name in ("run", "generator", "sample", "task", "machine")]
        ours = work.writer.execute(select(table).where(*same)).one_or_none()
    if ours is None:
        values = {name: value for name, value in _plain(row).items() if name != "id"}
        number = work.writer.execute(insert(table).values(values).returning(table.c.id)).scalar_one()
        work.count(table, 1)
        known: Mapping[int, str] = {}
        judged = False
    else:
        number = ours.id
        known, judged = _agreed(work, row, ours, cells, verdict)
        if not judged and (verdict is not None or (ours.candidate is None and row.candidate is not None)):
            made = update(table).where(table.c.id == number).values(candidate=row.candidate, origin=row.origin)
            work.writer.execute(made)
            work.count(table, 1)
    new = [
        {"attempt": number, "position": at, "case_id": case} for at, case in sorted(cells.items()) if at not in known
    ]
    if new:
        work.writer.execute(insert(schema.run_cells), new)
        work.count(schema.run_cells, len(new))
    if verdict is not None and not judged:
        work.writer.execute(insert(schema.verdicts).values(_plain(verdict) | {"attempt": number}))
        work.count(schema.verdicts, 1)
    if work.changed[row.run] == "unchanged" and sum(work.rows.values()) > before:
        work.changed[row.run] = "extended"


def _agreed(
    work: _Work, row: Row[Any], ours: Row[Any], cells: Mapping[int, str], verdict: Row[Any] | None
) -> tuple[Mapping[int, str], bool]:
    """The target's cells of an attempt that both have, and whether it has a verdict there; raises where they differ."""
    what = f"run {row.run}: the attempt of {row.generator} at task {row.task}, sample {row.sample}"
    if (row.category, row.level) != (ours.category, ours.level):
        raise work.conflict(what)
    table = schema.run_cells
    found = work.writer.execute(select(table.c.position, table.c.case_id).where(table.c.attempt == ours.id))
    known = {cell.position: cell.case_id for cell in found}
    places = {case: at for at, case in known.items()}
    if any(known.get(at, case) != case or places.get(case, at) != at for at, case in cells.items()):
        raise work.conflict(what)
    there = work.writer.execute(select(schema.verdicts).where(schema.verdicts.c.attempt == ours.id)).one_or_none()
    if there is not None and verdict is not None:
        both = [{name: value for name, value in _plain(one).items() if name != "attempt"} for one in (there, verdict)]
        if both[0] != both[1] or (row.candidate, row.origin) != (ours.candidate, ours.origin):
            raise work.conflict(f"{what}, with its verdict,")
    return known, there is not None


# -- Outcomes and answers ---------------------------------------------------------------------------------------------

_EXAMPLES = 3


def _outcomes(work: _Work) -> tuple[int, int, list[str]]:
    """Outcomes of cells; how many differ and stay, how many had passed in one store alone, and some of these."""
    table = schema.outcomes
    kept = refuted = 0
    examples: list[str] = []
    for chunk in work.chunks(select(table).order_by(table.c.key)):
        there = _there(work, table, "key", [row.key for row in chunk])
        work.add(table, [_plain(row) for row in chunk if row.key not in there], "key")
        for row in chunk:
            ours = there.get(row.key)
            if ours is None or _outcome(ours) == _outcome(row):
                continue
            if ours.passed == row.passed:
                kept += 1
                continue
            refuted += 1  # one failure is enough, whatever was seen elsewhere
            stands = row if ours.passed else ours
            if stands is row:
                work.writer.execute(update(table).where(table.c.key == row.key).values(_plain(row)))
                work.count(table, 1)
            if len(examples) < _EXAMPLES:
                examples.append(f"candidate {row.candidate[:16]}, {_case(work, row.case_id)}: {stands.reason}")
        work.step(len(chunk))
    return kept, refuted, examples


def _outcome(row: Row[Any]) -> tuple[Any, ...]:
    return row.passed, row.stage, row.reason, row.speedup, row.format, row.body


def _case(work: _Work, number: str) -> str:
    table = schema.cases
    row = work.writer.execute(select(table).where(table.c.id == number)).one()
    return f"task {row.task}, {row.direction}, {row.dtype}, {row.dims}"


def _responses(work: _Work) -> None:
    """Answers that were paid for; of two to the same question the target's stays."""
    table = schema.responses
    if table.name not in inspect(work.reader).get_table_names():  # version 1
        return
    for chunk in work.chunks(select(table).order_by(table.c.key)):
        there = _there(work, table, "key", [row.key for row in chunk])
        work.add(table, [_plain(row) for row in chunk if row.key not in there], "key")
