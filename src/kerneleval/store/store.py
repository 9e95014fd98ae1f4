"""The store: runs, plans, candidates, outcomes and verdicts. Needs SQLAlchemy; see ``docs/store.md``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kerneleval.records import (
    Candidate,
    Case,
    Cell,
    Limits,
    Machine,
    Origin,
    Outcome,
    Protocol,
    Result,
    UsageError,
    Verdict,
)
from kerneleval.store import merging, migrations, reading, schema, writing
from kerneleval.store.database import Database, connect
from kerneleval.store.plan import Attempt, Planned, RunInfo

__all__ = ["Store", "opened"]


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


class Store:
    """Results in a database. Safe to use from several threads and processes, and across a fork.

    Every method is one transaction on a connection of its own, so a process killed at any moment leaves what it had
    committed and nothing else. Methods raise UsageError where the caller or the store's contents are wrong, and
    InfrastructureError where disk or server fail; both name the store and the way out.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def place(self) -> str:
        """Path, or URL without password."""
        return self._database.place

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the engine holds; no connection stays open between calls anyway."""
        self._database.engine.dispose()

    # ---------------------------------------------------------------------------------------------------- writing

    def begin_run(
        self,
        name: str,
        generators: Sequence[str],
        machine: Machine | Sequence[Machine],
        protocol: Protocol,
        plan: Sequence[Planned],
        *,
        not_evaluated: Mapping[str, str] | None = None,
        tasks: Mapping[str, str] | None = None,
        audit: Mapping[str, Any] | None = None,
        limits: Mapping[str, Limits] | None = None,
        identity: Sequence[str] = (),
        rounds_of: str = "",
        resume: bool = False,
    ) -> str:
        """Store a run with everything that it is going to judge; returns its identifier.

        Args:
            name: for people; need not be unique.
            generators: names of the generators, in the order of reports.
            machine: where it judges; of several, the first is the primary one.
            protocol: how it judges.
            plan: every attempt with its cases.
            not_evaluated: devices asked for and not available: kind -> why.
            tasks: where tasks were found: name -> what was given as ``--task``.
            audit: what an audit was asked for, its ``of`` the run that it judges again; None: this is no audit.
            limits: what the machines can do at best: fingerprint -> limits.
            identity: what else makes two runs the same: settings of generators whose candidates are not known yet.
            rounds_of: identifier of the run that this one's attempts are rounds of refinement for; empty: of none.
            resume: return the latest run of the same name, generators, machines, protocol, plan and identity instead,
                if it was interrupted.

        Raises:
            UsageError: an empty plan, an attempt without cases, planned twice, or on an unknown machine.
        """
        machines = (machine,) if isinstance(machine, Machine) else tuple(machine)
        with self._database.writing() as connection:
            return writing.begin_run(
                connection,
                name=name,
                generators=generators,
                machines=machines,
                protocol=protocol,
                plan=plan,
                not_evaluated=not_evaluated or {},
                tasks=tasks or {},
                audit=audit or {},
                limits=limits or {},
                identity=identity,
                rounds_of=rounds_of,
                resume=resume,
            )

    def add_attempts(self, run: str, plan: Sequence[Planned]) -> None:
        """Plan more attempts of a run that has begun; those that it has already stay as they are.

        Raises:
            UsageError: there is no such run; or as :meth:`begin_run`.
        """
        with self._database.writing() as connection:
            writing.add_attempts(connection, run, plan)

    def put_candidate(self, run: str, generator: str, sample: int, task: str, candidate: Candidate) -> None:
        """Store what a generator made before it is judged, for all machines on which the attempt is unfinished.

        Raises:
            UsageError: the run has no such unfinished attempt.
        """
        with self._database.writing() as connection:
            writing.put_candidate(
                connection, run=run, generator=generator, sample=sample, task=task, candidate=candidate
            )

    def put_verdict(
        self,
        run: str,
        generator: str,
        sample: int,
        candidate: Candidate | None,
        verdict: Verdict,
        *,
        origin: Origin | None = None,
        replace: bool = False,
    ) -> bool:
        """Store a verdict with all its cells, at once; returns whether it was stored.

        A verdict on an attempt that has one already is dropped, and outcomes known of a cell stay, unless ``replace``.
        A candidate that failed as a whole (:func:`writing.effective_outcomes`) has its passed cells stored as failed,
        whatever was known of them. Cases beyond the plan are added to it.

        Args:
            run: identifier.
            generator: generator name.
            sample: sample index.
            candidate: what was judged; None: the generator gave nothing (stage ``generate``).
            verdict: task, machine and protocol say which attempt it is of.
            origin: who was asked and what it cost, where there is no candidate; else the candidate's counts.
            replace: whether verdict and outcomes take the place of older ones.

        Raises:
            UsageError: the run has no such attempt, or another protocol.
        """
        with self._database.writing() as connection:
            return writing.put_verdict(
                connection,
                run=run,
                generator=generator,
                sample=sample,
                candidate=candidate,
                verdict=verdict,
                origin=origin,
                replace=replace,
            )

    def put_response(self, key: str, body: Mapping[str, Any]) -> None:
        """Keep what a model or an agent answered, plain data, under a digest of all that it was asked. What is there
        already stays.
        """
        with self._database.writing() as connection:
            writing.put_response(connection, key, body)

    def merge(self, source: Store, tell: merging.OnRows = lambda done, total: None) -> merging.Merged:
        """Copy every run of another store into this one, with all that they need, in one transaction.

        Runs keep their identifiers, so that merging again changes nothing; what a run has more than it had is added.
        Of a cell that both stores judged, this one's outcome stays, unless only the other one failed: then it has
        failed.

        Args:
            source: only read.
            tell: called with the rows done and their number.

        Raises:
            UsageError: both are one store; a run, or what it needs, is in both with other contents.
            InfrastructureError: the source is damaged; disk or server fail. This store is then as it was.
        """
        if source._database.same(self._database):
            raise UsageError(f"{source.place} is both source and target; give another --store")
        return merging.merge(source._database, self._database, tell)

    # ---------------------------------------------------------------------------------------------------- reading

    def response(self, key: str) -> dict[str, Any] | None:
        """What :meth:`put_response` kept under that key; None: nothing."""
        with self._database.reading() as connection:
            return reading.response(connection, key)

    def responses(self) -> Iterator[dict[str, Any]]:
        """Everything that :meth:`put_response` kept, the oldest first."""
        with self._database.reading() as connection:
            yield from reading.responses(connection)

    def runs(self) -> tuple[RunInfo, ...]:
        """All runs, the latest first."""
        with self._database.reading() as connection:
            return reading.runs(connection)

    def run(self, text: str = "latest") -> RunInfo:
        """The run meant: an identifier, the beginning of just one, a name (its latest run), or ``latest``: the latest
        that is neither an audit nor a run's rounds.

        Raises:
            UsageError: there is no such run, or more than one.
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
        """The source with this content hash, or whose hash alone begins so; its origin is the attempt's.

        Raises:
            UsageError: it is not in the store, more than one begins so, or its files are not what they were.
        """
        with self._database.reading() as connection:
            return reading.candidate(connection, hash_, self.place)

    def lookup(self, cells: Iterable[Cell]) -> dict[str, Outcome]:
        """Outcomes known of these cells, by :attr:`Cell.key`: same candidate, case, machine and protocol."""
        with self._database.reading() as connection:
            return reading.lookup(connection, cells)

    def cached_verdict(
        self, candidate: str, task: str, machine: str, protocol: str, cases: Sequence[Case]
    ) -> Verdict | None:
        """The latest verdict on this content hash, task, machine fingerprint, protocol key and set of cases.

        It must cover every case unless it failed, since judging may stop at a failure. None: judge it.
        """
        with self._database.reading() as connection:
            return reading.cached_verdict(
                connection, candidate_hash=candidate, task=task, machine=machine, protocol=protocol, cases=cases
            )

    def verdicts(self, run: str = "latest", *, cells: bool = True) -> Iterator[tuple[Attempt, Verdict]]:
        """Every finished attempt of a run with its verdict.

        Args:
            run: as in :meth:`run`.
            cells: whether the attempts come with their cases, and the verdicts with their cells; both are empty
                otherwise, which reads far less.
        """
        with self._database.reading() as connection:
            yield from reading.verdicts(connection, reading.find_run(connection, run, self.place), cells=cells)

    def results(self, runs: Sequence[str] | str = "latest", **filters: Sequence[Any]) -> Iterator[Result]:
        """One row for every planned cell of the runs, in the order of the plan; what scores are computed from.

        A cell that was planned and never judged comes as ``Failed``: with its verdict's stage and reason where the
        candidate failed before; ``generate``/``missing`` where there is no candidate; else ``build``/``unfinished``.

        Args:
            runs: one or more runs, as in :meth:`run`.
            filters: ``generators``, ``tasks``, ``categories``, ``levels``, ``devices``, ``directions``, ``dtypes``,
                ``shape_categories``: allowed values; an empty sequence allows all.

        Raises:
            UsageError: no such run, or no such filter.
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
