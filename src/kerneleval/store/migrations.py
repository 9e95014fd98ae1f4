"""Bringing a store's tables to the present version. Needs SQLAlchemy.

``MIGRATIONS[n - 1]`` takes an open write transaction and turns version n into n + 1. A migration writes its own SQL
and never imports :mod:`schema`, whose tables describe the present only. All steps and the new version number are one
transaction, so a killed migration leaves the old version.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import Connection, inspect, select, text, update

from kerneleval.records import UsageError
from kerneleval.store import schema


def _add_responses(connection: Connection) -> None:
    connection.exec_driver_sql(
        "CREATE TABLE responses (key TEXT NOT NULL PRIMARY KEY, created_unix_s DOUBLE PRECISION NOT NULL, "
        "format INTEGER NOT NULL, body TEXT NOT NULL)"
    )


MIGRATIONS: list[Callable[[Connection], None]] = [_add_responses]
"""One function for each version before the present one, oldest first."""

_ADVISORY_LOCK = 0x6B65726E  # "kern": PostgreSQL lets several sessions create the same tables at once, and one fails


def found_version(connection: Connection, place: str) -> int | None:
    """Version of the store's tables; None: the database is empty. Raises UsageError where it holds other tables, or the
    version table is damaged.
    """
    names = set(inspect(connection).get_table_names())
    if schema.schema_version.name not in names:
        ours = names & set(schema.METADATA.tables)
        # A PostgreSQL database may well be shared with other programs; a file with foreign tables is another's file.
        if ours or (names and connection.dialect.name == "sqlite"):
            shown = ", ".join(sorted(ours or names)[:5])
            raise UsageError(
                f"{place} is a database of another program (it has tables {shown} and no "
                f"{schema.schema_version.name}); give another path, or an empty database or schema"
            )
        return None
    versions = list(connection.execute(select(schema.schema_version.c.version)).scalars())
    if len(versions) != 1 or not isinstance(versions[0], int) or versions[0] < 1:
        raise UsageError(
            f"{place}: table {schema.schema_version.name} must hold one version number, found {versions}; "
            "the store was changed by hand: restore a copy"
        )
    return versions[0]


def check_version(version: int, place: str) -> None:
    """Raise UsageError for a version that is newer than this program's."""
    if version > schema.VERSION:
        raise UsageError(
            f"{place} has schema version {version}, this kerneleval knows up to {schema.VERSION}; "
            "upgrade kerneleval, or give another store"
        )


def bring_up(connection: Connection, place: str) -> None:
    """In an open write transaction, create the tables or migrate them to the present version, if they are not of it.
    Raises UsageError for a newer version, or a database of another program.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    version = found_version(connection, place)
    if version is None:
        schema.METADATA.create_all(connection)
        connection.execute(schema.schema_version.insert().values(version=schema.VERSION, changed_unix_s=time.time()))
        return
    check_version(version, place)
    for step in MIGRATIONS[version - 1 : schema.VERSION - 1]:
        step(connection)
    if version < schema.VERSION:
        connection.execute(update(schema.schema_version).values(version=schema.VERSION, changed_unix_s=time.time()))
