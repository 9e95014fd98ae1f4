"""Connections to SQLite and PostgreSQL, and what their errors mean. Needs SQLAlchemy.

No connection stays open between two transactions. A judge forks: a connection carried through a fork corrupts an
SQLite database, and would hand a descriptor of the store to a worker that runs untrusted code.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import NullPool

from kerneleval.records import InfrastructureError, KernelEvalError, UsageError, near
from kerneleval.records.errors import optional

BUSY_TIMEOUT_S = 60.0
"""How long a transaction waits for another process's write transaction on the same SQLite file."""

CONNECT_TIMEOUT_S = 10
"""How long a PostgreSQL server may take to answer, unless the URL has ``connect_timeout``."""

DEFAULT_PATH = "kerneleval.db"

_SERVERS = ("postgresql", "postgres", "postgresql+psycopg")
_HEADER = b"SQLite format 3\x00"

_MALFORMED = (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError)
"""What reading a row raises if its content was not written by this program."""


def masked(url: str) -> str:
    """The URL with every password in it replaced by ``***``."""
    url = re.sub(r"(://[^:/@]*):.*@", r"\1:***@", url)
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", url)


def without_password(url: str) -> str:
    """The URL for a command line that others may read; the password is given elsewhere."""
    url = re.sub(r"(://[^:/@]*):.*@", r"\1@", url)
    return re.sub(r"(?i)(?<=[?&])password=[^&]*&?", "", url).rstrip("?&")


@dataclass(frozen=True, kw_only=True)
class Database:
    """An engine and the name of the place for messages."""

    engine: Engine
    """SQLAlchemy engine without a pool."""
    place: str
    """Path, or URL without password."""
    path: Path | None
    """The SQLite file; None: a server."""

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction: a consistent snapshot. What is in no form that a store writes is the store's fault."""
        try:
            with self._transaction(write=False) as connection:
                yield connection
        except (*_MALFORMED, sqlalchemy.exc.SQLAlchemyError) as error:
            raise InfrastructureError(
                f"store {self.place} is damaged or was changed by hand ({type(error).__name__}: {str(error)[:200]}); "
                "restore a copy"
            ) from error

    def verify(self) -> None:
        """For a reader that finds nothing where something should be: raises InfrastructureError where the pages of a
        file do not fit together.
        """
        if self.path is None:
            return
        with self.reading() as connection:
            said = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar())
        if said != "ok":
            said = " ".join(said.split())[:200]
            raise InfrastructureError(f"store {self.place} is damaged ({said}); restore a copy")

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One write transaction, committed at the end, rolled back on any error."""
        with self._transaction(write=True) as connection:
            yield connection

    @contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Connection]:
        try:
            with self.engine.connect() as connection:
                connection.execution_options(kerneleval_write=write)
                with connection.begin():
                    yield connection
        except sqlalchemy.exc.DBAPIError as error:
            raise self.explained(error.orig or error) from error
        except (UnicodeEncodeError, OverflowError) as error:
            raise UsageError(f"{self.place} can't store a value: {error}") from error

    def same(self, other: Database) -> bool:
        """Whether both are one file, or one database and schema of one server by the same URL but for the user."""
        if self.path is not None and other.path is not None:
            return self.path.exists() and other.path.exists() and self.path.samefile(other.path)
        return self.path is other.path and _place(self.engine.url) == _place(other.engine.url)

    def explained(self, error: BaseException) -> KernelEvalError:
        """What a driver's error means, with the place and the way out."""
        if isinstance(error, sqlite3.Error) and self.path is not None:
            return _sqlite_error(error, self.path)
        return _server_error(error, self.place)


def connect(url: str | os.PathLike[str] | None, *, create: bool, write: bool) -> Database:
    """Open a database file or server, not its tables; arguments and errors as :func:`kerneleval.store.open_store`."""
    text = DEFAULT_PATH if url is None else os.fspath(url)
    scheme, mark, rest = text.partition("://")
    if not mark or scheme == "sqlite":
        return _connect_file(Path(rest.removeprefix("/") if mark else text), create=create, write=write)
    if scheme not in _SERVERS:
        hint = near(scheme, ("sqlite", *_SERVERS))
        raise UsageError(
            f"store URL {masked(text)!r}: unknown scheme {scheme!r} ({hint}); "
            "give a path, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
        )
    return _connect_server(text)


# -- SQLite -----------------------------------------------------------------------------------------------------------


def _connect_file(path: Path, *, create: bool, write: bool) -> Database:
    if str(path) in ("", ".", ":memory:"):
        raise UsageError("a store in memory is lost when the process ends; give the path of a file")
    _check_file(path, create=create, write=write)
    engine = sqlalchemy.create_engine("sqlite://", creator=_opener(path, write=write), poolclass=NullPool)
    event.listen(engine, "begin", _begin_sqlite)
    database = Database(engine=engine, place=str(path), path=path)
    if write:
        _use_wal(path)
    return database


def _check_file(path: Path, *, create: bool, write: bool) -> None:
    folder = path.parent
    if path.is_dir():
        raise UsageError(f"store {path} is a directory; give the path of a file, e.g. {path / DEFAULT_PATH}")
    if not folder.is_dir():
        raise UsageError(f"store {path}: directory {folder} does not exist; create it or give another path")
    if not path.exists():
        if not create:
            raise UsageError(f"no store at {path}; give the path of an existing one, or make one with 'kerneleval run'")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UsageError(f"store {path}: directory {folder} can't be written; give a path in another directory")
        return
    try:
        with path.open("rb") as file:
            head = file.read(len(_HEADER))
    except OSError as error:
        raise UsageError(f"store {path} can't be read: {error.strerror}; change its permissions") from error
    if head and head != _HEADER:
        raise UsageError(f"store {path} is not an SQLite database; give another path, or move this file away")
    if write and not (os.access(path, os.W_OK) and os.access(folder, os.W_OK | os.X_OK)):
        raise UsageError(
            f"store {path} can't be written (the file or its directory is read-only); "
            "change the permissions, or copy it to a place that can be written"
        )


def _opener(path: Path, *, write: bool) -> Callable[[], sqlite3.Connection]:
    """A function that opens the file; a file that can't be written is read as an archive."""
    sealed = not write and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK | os.X_OK))
    wal = path.with_name(path.name + "-wal")

    def opened() -> sqlite3.Connection:
        target = f"file:{urllib.parse.quote(str(path.absolute()))}"
        if sealed:
            # Reading in WAL mode needs a shared-memory file next to the database; where none can be made and no
            # write-ahead log is left to read, the file can't change under us.
            target += "?mode=ro" if wal.exists() and wal.stat().st_size else "?mode=ro&immutable=1"
        connection = sqlite3.connect(target, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        if not sealed:
            # In WAL mode NORMAL would survive a killed process, but lose the last commits with the power.
            connection.execute("PRAGMA synchronous = FULL")
        return connection

    return opened


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE takes the write lock at the start, where waiting for it is possible; a transaction that begins by
    # reading and turns to writing fails at once if anyone else wrote in between.
    write = connection.get_execution_options().get("kerneleval_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _use_wal(path: Path) -> None:
    """Switch the file to write-ahead logging, so that readers and one writer don't block each other.

    SQLite doesn't wait for locks on this switch as it does elsewhere, hence the loop. On file systems without shared
    memory the mode stays as it was: as safe, but readers wait for writers.
    """
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.Error as error:
            busy = _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not busy or time.monotonic() > deadline:
                raise _sqlite_error(error, path) from error
            time.sleep(0.01)


def _primary(error: sqlite3.Error) -> int:
    """The primary SQLite result code (its low 8 bits), 0 where the driver gave none."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _sqlite_error(error: sqlite3.Error, path: Path) -> KernelEvalError:
    code = _primary(error)
    free_mib = shutil.disk_usage(path.parent).free / 2**20
    kept = "everything committed before is kept"
    if code == sqlite3.SQLITE_FULL:
        return InfrastructureError(
            f"store {path}: the disk is full ({free_mib:.1f} MiB free); {kept}: free some space and run the same "
            "command again"
        )
    if code == sqlite3.SQLITE_IOERR:
        return InfrastructureError(
            f"store {path}: writing or reading failed ({error}; {free_mib:.1f} MiB free on the disk; a file-size limit "
            f"or a failing disk gives the same error); {kept}: remove the cause and run the same command again"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return InfrastructureError(
            f"store {path}: another process held it locked for {BUSY_TIMEOUT_S:.0f} s; end that process and run the "
            "same command again"
        )
    if code == sqlite3.SQLITE_READONLY:
        return UsageError(f"store {path} can't be written ({error}); change its permissions or give another path")
    if code == sqlite3.SQLITE_NOTADB:
        return UsageError(f"store {path} is not an SQLite database; give another path, or move this file away")
    if code == sqlite3.SQLITE_CORRUPT:
        return InfrastructureError(
            f"store {path} is damaged ({error}); restore a copy, or save what can be read with: "
            f"sqlite3 {path} .recover | sqlite3 {path}.recovered"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return InfrastructureError(
            f"store {path} can't be opened ({error}; {free_mib:.1f} MiB free on the disk); check the permissions of "
            "the file and its directory"
        )
    return InfrastructureError(f"store {path}: {error}")


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


def _place(url: sqlalchemy.URL) -> tuple[object, ...]:
    return url.host, url.port, url.database, url.query.get("options")


def _connect_server(text: str) -> Database:
    place = masked(text)
    try:
        url = sqlalchemy.make_url(text).set(drivername="postgresql+psycopg")
    except (sqlalchemy.exc.ArgumentError, ValueError):
        raise UsageError(
            f"store URL {place!r} can't be parsed; the form is postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None  # the driver's error repeats the text, password and all
    options: dict[str, Any] = {} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S}
    with optional(f"store {place}: PostgreSQL needs"):
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=options)
    return Database(engine=engine, place=place, path=None)


_LOGIN = re.compile(r"authentication failed|no password supplied|does not exist|no pg_hba\.conf entry", re.I)


def _server_error(error: BaseException, place: str) -> KernelEvalError:
    said = masked(" ".join(str(error).split()))
    state = str(getattr(error, "sqlstate", None) or "")
    # libpq gives no SQLSTATE for a connection that was never made, only the server's sentence
    if state[:2] in ("28", "3D") or (not state and _LOGIN.search(said)):
        return UsageError(f"store {place}: the server refused the login or has no such database ({said})")
    if not state and "invalid connection option" in said:
        return UsageError(f"store URL {place!r}: {said}; leave that option out")
    if not state or state[:2] in ("08", "57"):
        return InfrastructureError(
            f"store {place}: the server can't be reached, or the connection broke ({said}); check that it runs, then "
            "run the same command again: everything committed before is kept"
        )
    if state in ("53100", "53200", "53300"):
        return InfrastructureError(
            f"store {place}: the server is out of disk, memory or connections ({said}); everything committed before "
            "is kept: free some and run the same command again"
        )
    if state in ("25006", "42501"):
        return UsageError(
            f"store {place}: this user may not write there ({said}); grant CREATE on the schema and INSERT, UPDATE and "
            "SELECT on its tables, or give another URL"
        )
    if state[:2] == "22":
        return UsageError(f"store {place} can't store a value: {said}")
    return InfrastructureError(f"store {place}: {said}")
