"""The tables, version 2. Needs SQLAlchemy.

Plain data is stored as ASCII JSON text, not as a database's JSON type: a candidate's message may hold a NUL or a lone
surrogate, which PostgreSQL refuses in both of its JSON types, and which ASCII JSON merely escapes.
"""

from __future__ import annotations

from sqlalchemy import Boolean, Column, Float, ForeignKey, Index, Integer, MetaData, Table, Text, UniqueConstraint

VERSION = 2
"""Version of the tables below; every rise needs a function in ``migrations.MIGRATIONS``."""

READABLE = 1
"""Oldest version that can be read as it is: later ones only added tables that reading runs does without."""

OUTCOME_FORMAT = 1
"""Version of the JSON in ``outcomes.body``."""

VERDICT_FORMAT = 1
"""Version of the JSON in ``verdicts.body``."""

RESPONSE_FORMAT = 1
"""Version of the JSON in ``responses.body``."""

METADATA = MetaData()


def _texts(*names: str) -> list[Column[str]]:
    """Columns of text that every row has."""
    return [Column(name, Text, nullable=False) for name in names]


schema_version = Table(
    "kerneleval_schema",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("changed_unix_s", Float, nullable=False),
)
"""Exactly one row: the version of the tables."""

machines = Table(
    "machines",
    METADATA,
    Column("fingerprint", Text, primary_key=True),
    *_texts("device", "name", "arch", "body"),
)

protocols = Table(
    "protocols",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

candidates = Table(
    "candidates",
    METADATA,
    Column("hash", Text, primary_key=True),
    *_texts("language", "entry", "backward_entry", "files"),
)
"""Sources by content. The origin is not part of the content (two generators may write the same file): see attempts."""

cases = Table(
    "cases",
    METADATA,
    Column("id", Text, primary_key=True),
    *_texts("task", "direction", "dims", "dtype", "layout", "distribution", "shape_category"),
)

runs = Table(
    "runs",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("created_unix_s", Float, nullable=False),
    Column("protocol", Text, ForeignKey("protocols.key"), nullable=False),
    *_texts("plan", "body"),
)
"""``plan`` is the digest of everything planned, by which an interrupted run is found again."""

attempts = Table(
    "attempts",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", Text, ForeignKey("runs.id"), nullable=False),
    Column("generator", Text, nullable=False),
    Column("sample", Integer, nullable=False),
    *_texts("task", "category"),
    Column("level", Integer, nullable=False),
    Column("machine", Text, ForeignKey("machines.fingerprint"), nullable=False),
    Column("candidate", Text, ForeignKey("candidates.hash"), nullable=True),
    Column("origin", Text, nullable=True),
    UniqueConstraint("run", "generator", "sample", "task", "machine", name="attempts_once"),
    Index("attempts_by_candidate", "candidate", "task", "machine"),
)

run_cells = Table(
    "run_cells",
    METADATA,
    Column("attempt", Integer, ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("case_id", Text, ForeignKey("cases.id"), nullable=False),
    UniqueConstraint("attempt", "case_id", name="run_cells_once"),
)

outcomes = Table(
    "outcomes",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("candidate", Text, ForeignKey("candidates.hash"), nullable=False),
    Column("case_id", Text, ForeignKey("cases.id"), nullable=False),
    Column("machine", Text, ForeignKey("machines.fingerprint"), nullable=False),
    Column("protocol", Text, ForeignKey("protocols.key"), nullable=False),
    Column("passed", Boolean, nullable=False),
    *_texts("stage", "reason"),
    Column("speedup", Float, nullable=True),
    Column("created_unix_s", Float, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("candidate", "case_id", "machine", "protocol", name="outcomes_once"),
)
"""``key`` is :attr:`records.Cell.key`. The columns before ``format`` repeat the body for people who query by SQL."""

verdicts = Table(
    "verdicts",
    METADATA,
    Column("attempt", Integer, ForeignKey("attempts.id"), primary_key=True, autoincrement=False),
    *_texts("candidate", "task", "device", "verdict", "stage", "reason", "track"),
    Column("created_unix_s", Float, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
"""``body`` is the verdict without its cells, which are in run_cells and outcomes."""

responses = Table(
    "responses",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("created_unix_s", Float, nullable=False),
    Column("format", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
"""Answers of models and agents, by a digest of the whole request: what was paid for is not requested again."""
