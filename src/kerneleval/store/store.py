"""The store: runs, plans, candidates, outcomes and verdicts. Needs SQLAlchemy; see ``docs/store.md``."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from sqlalchemy import Connection

from kerneleval.records import Candidate, Result, UsageError, Verdict
from kerneleval.store import merging, migrations, reading, schema, writing
from kerneleval.store.database import Database, connect
from kerneleval.store.plan import Attempt, RunInfo

_P = ParamSpec("_P")
_R = TypeVar("_R")


def opened(url: str | os.PathLike[str] | None, *, create: bool, write: bool) -> Store:
    """See :func:`kerneleval.store.open_store`."""
    database = connect(url, create=create, write=write)
    with database.reading() as connection:
        version = migrations.found_version(connection, database.place)
    if version is None and not create:
        raise UsageError(f"{database.place} holds no store yet; make one with 'kerneleval run'")
    if version is not None:
        migrations.check_version(version, database.place)
    if version != schema.VERSION:
        if not write and version is not None and version >= schema.READABLE:
            return Store(database)
        if not write:
            raise UsageError(
                f"{database.place} has schema version {version}, the present one is {schema.VERSION}; "
                "open it once for writing (any 'kerneleval run' on it does), which migrates it"
            )
        with database.writing() as connection:
            migrations.bring_up(connection, database.place)
    return Store(database)


def _method(
    function: Callable[Concatenate[Connection, _P], _R], *, write: bool = False
) -> Callable[Concatenate[Store, _P], _R]:
    """A method that calls the function in one transaction."""

    @functools.wraps(function)
    def method(store: Store, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with store._database.writing() if write else store._database.reading() as connection:
            return function(connection, *args, **kwargs)

    return method


class Store:
    """Results in a database. Safe to use from several threads and processes, and across a fork.

    Every method is one transaction on a connection of its own, so a process killed at any moment leaves what it had
    committed and nothing else. Methods raise UsageError where the caller or the store's contents are wrong, and
    InfrastructureError where disk or server fail; both name the store and the way out. Methods that are functions of
    ``reading.py`` and ``writing.py`` are described there; the connection is the store's own.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def place(self) -> str:
        """Path, or URL without password."""
        return self._database.place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the engine holds; no connection stays open between calls anyway."""
        self._database.engine.dispose()

    begin_run = _method(writing.begin_run, write=True)
    add_attempts = _method(writing.add_attempts, write=True)
    put_candidate = _method(writing.put_candidate, write=True)
    put_verdict = _method(writing.put_verdict, write=True)
    put_response = _method(writing.put_response, write=True)
    response = _method(reading.response)
    runs = _method(reading.runs)
    lookup = _method(reading.lookup)
    cached_verdict = _method(reading.cached_verdict)

    def merge(self, source: Store, tell: merging.OnRows = lambda done, total: None) -> merging.Merged:
        """Copy every run of another store into this one, with all that they need, in one transaction.

        Runs keep their identifiers, so that merging again changes nothing; what a run has more than it had is added.
        Of a cell that both stores judged, this one's outcome stays, unless only the other one failed: then it has
        failed. The source is only read; ``tell`` is called with the rows done and their number.

        Raises UsageError where both are one store, or a run, or what it needs, is in both with other contents;
        InfrastructureError where the source is damaged, disk or server fail. This store is then as it was.
        """
        if source._database.same(self._database):
            raise UsageError(f"{source.place} is both source and target; give another --store")
        return merging.merge(source._database, self._database, tell)

    def responses(self) -> Iterator[dict[str, Any]]:
        """Everything that :meth:`put_response` kept, the oldest first."""
        with self._database.reading() as connection:
            yield from reading.responses(connection)

    def run(self, text: str = "latest") -> RunInfo:
        """The run meant: an identifier, the beginning of just one, a name (its latest run), or ``latest``: the latest
        that is neither an audit nor a run's rounds. Raises UsageError where there is no such run, or more than one.
        """
        with self._database.reading() as connection:
            return reading.runs(connection, [reading.find_run(connection, text, self.place)])[0]

    def attempts(self, run: str = "latest") -> tuple[Attempt, ...]:
        """All attempts of a run, in the order of its plan."""
        with self._database.reading() as connection:
            return reading.attempts(connection, reading.find_run(connection, run, self.place))

    def unfinished(self, run: str = "latest") -> tuple[Attempt, ...]:
        """The attempts of a run that have no verdict, in the order of its plan."""
        with self._database.reading() as connection:
            return reading.attempts(connection, reading.find_run(connection, run, self.place), unfinished=True)

    def candidate(self, hash_: str) -> Candidate:
        """The source with this content hash, or whose hash alone begins so; its origin is the attempt's. Raises
        UsageError where it is not in the store, more than one begins so, or its files are not what they were.
        """
        with self._database.reading() as connection:
            return reading.candidate(connection, hash_, self.place)

    def verdicts(self, run: str = "latest", *, cells: bool = True) -> Iterator[tuple[Attempt, Verdict]]:
        """Every finished attempt of a run with its verdict. Without ``cells`` the attempts come without their cases and
        the verdicts without their cells, which reads far less.
        """
        with self._database.reading() as connection:
            yield from reading.verdicts(connection, reading.find_run(connection, run, self.place), cells=cells)

    def results(self, runs: Sequence[str] | str = "latest", **filters: Sequence[Any]) -> Iterator[Result]:
        """One row for every planned cell of the runs, in the order of the plan; what scores are computed from.

        A cell that was planned and never judged comes as ``Failed``: with its verdict's stage and reason where the
        candidate failed before; ``generate``/``missing`` where there is no candidate; else ``build``/``unfinished``.
        Tasks that do not settle what is right have no rows, nor have cells at which they do not, where the rest passed.
        Filters are the allowed values of each of :data:`reading.FILTERS`; an empty sequence allows all. Raises
        UsageError for no such run, or no such filter.
        """
        names = (runs,) if isinstance(runs, str) else runs
        with self._database.reading() as connection:
            ids = [reading.find_run(connection, text, self.place) for text in names]
            empty = True
            for result in reading.results(connection, ids, filters):
                empty = False
                yield result
        if empty:
            self._database.verify()
