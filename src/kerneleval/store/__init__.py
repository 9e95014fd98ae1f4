"""Stage 7: where results live. SQLite by default, PostgreSQL by URL (``docs/store.md``).

>>> store = open_store("results.db")  # doctest: +SKIP
>>> run = store.begin_run(NewRun(name="mine", ...))  # doctest: +SKIP
>>> store.put_verdict(run, "archetypes", 0, candidate, verdict)  # doctest: +SKIP
>>> rows = list(store.results(run))  # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kerneleval.records import UsageError
from kerneleval.store.plan import Attempt, NewRun, Planned, RunInfo

if TYPE_CHECKING:
    from kerneleval.store.store import Store

__all__ = ["Attempt", "NewRun", "Planned", "RunInfo", "for_replay", "open_store"]


def for_replay(url: str | os.PathLike[str] | None) -> str:
    """What to give as ``--store`` in a replay line: never a password; empty: nothing, it is the default store."""
    if url is None:
        return ""
    from kerneleval.store.database import without_password

    return without_password(os.fspath(url))


def open_store(url: str | os.PathLike[str] | None = None, *, create: bool = True, write: bool = True) -> Store:
    """Open a store, create it where there is none, and bring an older one to the present version.

    Args:
        url: path of an SQLite file, ``sqlite:///PATH`` or ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``;
            None: ``./kerneleval.db``.
        create: whether a missing store may be created.
        write: whether anything is going to be written; False also opens a file that can't be written.

    Raises:
        UsageError: SQLAlchemy (or psycopg, for PostgreSQL) is not installed; a bad URL, a missing file, a file that
            is no store, is of a newer version, or can't be written; a login that the server refuses.
        InfrastructureError: the disk or the server fails.
    """
    try:
        from kerneleval.store.store import opened
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise UsageError("the store needs SQLAlchemy; install it with: pip install 'sqlalchemy>=2.0'") from error
    return opened(url, create=create and write, write=write)
