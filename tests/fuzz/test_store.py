"""Verdicts with text and numbers that hurt databases, and database files that are damaged, cut or somebody else's.

What a verdict holds comes back as it was, through the store, JSON and the reports. Of a file that cannot be read, the
command line says so in one line with exit code 2, and leaves it as it is. (Writers killed at any moment are
``tests/store/test_crash.py``.)
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from tests.fuzz.hostile import CONTROL, NASTY, effort, json_values, numbers, texts

from kerneleval import cli
from kerneleval.records import (
    Candidate,
    Case,
    CellResult,
    Conditions,
    Failed,
    Finding,
    Machine,
    Origin,
    Passed,
    Protocol,
    Samples,
    Timing,
    Trust,
    Verdict,
    to_plain,
)
from kerneleval.reports.json import dumps, verdict_document
from kerneleval.reports.verdict_view import render_verdict
from kerneleval.store import NewRun, Planned, open_store
from kerneleval.store.store import Store

MACHINE = Machine(
    device="cpu", name="a cpu", arch="x", memory_bytes=1, cache_bytes=1, units=1, driver="d", torch="2", host="h"
)
CASES = tuple(Case(task="gelu", direction="forward", dims=(("M", n), ("N", 7)), dtype="float32") for n in (1, 2))
_runs = itertools.count()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("store") / "s.db") as store:
        yield store


def verdict_of(candidate: Candidate, first: Failed | Passed, **changes: Any) -> Verdict:
    cells = (
        CellResult(case=CASES[0], outcome=first),
        CellResult(case=CASES[1], outcome=Failed(stage="call", reason="x")),
    )
    values: dict[str, Any] = {
        "verdict": "failed",
        "stage": "call",
        "reason": "exception",
        "message": "no",
        "task": "gelu",
        "candidate": candidate.hash,
        "track": "",
        "trust": Trust(level="strong"),
        "machine": MACHINE,
        "protocol": Protocol(),
        "speedup": None,
        "cells": cells,
    }
    return Verdict(**{**values, **changes})


def stored(store: Store, candidate: Candidate, verdict: Verdict) -> Verdict:
    """The verdict as another process would read it."""
    planned = Planned(generator="g", task="gelu", category="gemm", level=1, cases=CASES, sample=0, candidate=candidate)
    run = store.begin_run(
        NewRun(name=f"run {next(_runs)}", generators=("g",), machines=(MACHINE,), protocol=Protocol(), plan=(planned,))
    )
    store.put_verdict(run, "g", 0, candidate, verdict, replace=True)
    assert len(list(store.results(run))) == len(CASES)
    assert store.candidate(candidate.hash).files == candidate.files
    [(_, found)] = store.verdicts(run)
    return found


def source(text: str) -> Candidate:
    """A candidate as it is read from a file, which is UTF-8."""
    clean = text.encode("utf-8", "replace").decode()
    return Candidate(files=(("candidate.py", clean),), language="torch", origin=Origin(path=text, model=text))


def shown(verdict: Verdict) -> str:
    out = io.StringIO()
    render_verdict(verdict, Console(file=out, width=100, highlight=False))
    return out.getvalue()


@pytest.mark.slow
@given(text=texts(), message=texts(), evidence=st.dictionaries(texts(12), json_values(), max_size=4), first=numbers())
@example("x", "x" * 2_000_000, {}, 1.0)
@example("x", "\x00\ud800" * 10_000, {"\ud800": [float("nan")] * 1000}, 10**400)
@effort(30)
def test_hostile_text_comes_back_as_it_was(
    store: Store, text: str, message: str, evidence: dict[str, Any], first: Any
) -> None:
    evidence = to_plain(evidence | {"number": first})
    candidate = source(text)
    failed = Failed(stage="call", reason="exception", message=message, evidence=evidence, replay=text)
    given = verdict_of(
        candidate,
        failed,
        message=message,
        findings=(Finding(check="track", level="info", message=message, evidence={"aten": {text: first}}),),
        trust=Trust(level="weak", missing=(text,)),
        replay=text,
        conditions=Conditions(first={text: message}),
    )
    found = stored(store, candidate, given)
    assert to_plain(found) == to_plain(given)
    for one in (given, found):
        text_of = dumps(verdict_document(one))
        text_of.encode()
        assert json.loads(text_of, parse_constant=pytest.fail) == verdict_document(one)
    printed = shown(found)
    assert printed == shown(given)
    assert not CONTROL & set(printed)
    assert len(printed) < 200_000


FLOATS = st.floats()


@given(values=st.lists(FLOATS, min_size=1, max_size=4), speedup=FLOATS, noise=FLOATS, said=texts())
@example([float("nan"), float("inf")], float("nan"), float("-inf"), "\x00")
@effort(25)
def test_figures_of_any_kind_come_back(
    store: Store, values: list[float], speedup: float, noise: float, said: str
) -> None:
    samples = Samples(candidate_ns=tuple(values), baseline_ns=tuple(values), candidate_event_ns=tuple(values), calls=1)
    timing = Timing(
        samples=samples, speedup=speedup, low=speedup, high=noise, noise=noise, claim="equal", device_time=said
    )
    candidate = source(said + repr(values) + repr((speedup, noise)))
    passed = Passed(timing=timing)
    given = verdict_of(candidate, passed, verdict="passed", stage="timing", reason="ok")
    given = dataclasses.replace(given, cells=(given.cells[0], dataclasses.replace(given.cells[0], case=CASES[1])))
    found = stored(store, candidate, given)
    assert repr(found.cells) == repr(given.cells)
    assert not CONTROL & set(shown(found))
    json.loads(dumps(verdict_document(found)), parse_constant=pytest.fail)


# --------------------------------------------------------------------------------------------------------------------
# Files that are no store, or one no more
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small store, in one file."""
    path = tmp_path_factory.mktemp("whole") / "s.db"
    with open_store(path) as store:
        for i in range(3):
            candidate = source(f"# {i}")
            passed = Passed(evidence={"error": 0.5})
            stored(store, candidate, verdict_of(candidate, passed))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    return path.read_bytes()


def says(arguments: list[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = out, error = io.StringIO(), io.StringIO()
    try:
        code = cli.main(arguments)
    finally:
        sys.stdout, sys.stderr = before
    return code, out.getvalue(), error.getvalue()


def is_read_or_refused(path: Path, *, refused: bool = False) -> None:
    """Scores, or one line that is no bug's; the file is as before."""
    data = path.read_bytes()
    code, out, error = says(["score", "--store", str(path), "--json"])
    assert code in (0, 2)
    assert code or not refused
    document = json.loads(out, parse_constant=pytest.fail)
    if code:
        assert error.startswith("error: ")
        assert error.count("\n") == 1, error
        assert not CONTROL & set(error), error
        assert document["error"]["kind"] in ("usage", "infrastructure"), error
        assert len(error) < 2000
    else:
        assert document["scores"]
    assert path.read_bytes() == data


def test_shifted_pages_are_no_empty_run(whole: bytes, tmp_path: Path) -> None:
    """One byte inserted: SQLite read the rest as a run without attempts."""
    path = tmp_path / "s.db"
    path.write_bytes(whole[:65537] + b"x" + whole[65537:])
    is_read_or_refused(path)


@given(data=st.data())
@effort(60)
def test_a_damaged_file_is_read_or_refused(whole: bytes, tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        kind = data.draw(st.sampled_from(["flip", "zero", "noise", "cut", "insert"]))
        size = data.draw(st.integers(1, 4096))
        if kind == "flip":
            damaged[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "zero":
            damaged[at : at + size] = bytes(len(damaged[at : at + size]))
        elif kind == "noise":
            noise = data.draw(st.binary(min_size=16, max_size=16)) * (size // 16 + 1)
            damaged[at : at + size] = noise[: len(damaged[at : at + size])]
        elif kind == "cut":
            del damaged[at + 1 :]
        else:
            damaged[at:at] = b"x" * size
    path = tmp_path_factory.mktemp("damaged") / "s.db"
    path.write_bytes(damaged)
    is_read_or_refused(path)


TEXT_COLUMNS = (
    ("machines", "body"),
    ("protocols", "body"),
    ("cases", "dims"),
    ("cases", "direction"),
    ("cases", "shape_category"),
    ("cases", "dtype"),
    ("runs", "body"),
    ("runs", "created_unix_s"),
    ("attempts", "category"),
    ("attempts", "level"),
    ("outcomes", "body"),
    ("outcomes", "format"),
    ("verdicts", "body"),
    ("verdicts", "format"),
    ("verdicts", "stage"),
    ("kerneleval_schema", "version"),
)

CONTENTS = st.one_of(
    st.sampled_from(
        ["", "null", "[]", "{}", "1", '"x"', "[1]", '{"a":1}', "{", "[" * 5000, b"\xff\xfe", None, -1, 1e308]
    ),
    json_values().map(json.dumps),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(NASTY).filter(lambda t: t.isprintable()),
)


@given(column=st.sampled_from(TEXT_COLUMNS), content=CONTENTS)
@effort(40)
def test_rows_of_any_content_are_read_or_refused(
    whole: bytes, tmp_path_factory: pytest.TempPathFactory, column: tuple[str, str], content: Any
) -> None:
    """A foreign program, or a failing disk, wrote something else into a column."""
    path = tmp_path_factory.mktemp("rows") / "s.db"
    path.write_bytes(whole)
    table, name = column
    connection = sqlite3.connect(path)
    try:
        connection.execute(f"UPDATE {table} SET {name} = ?", (content,))
        connection.commit()
    except sqlite3.IntegrityError:  # NULL where there must be something
        return
    finally:
        connection.close()
    is_read_or_refused(path)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "runs\x1b[2J" (id TEXT)')
    connection.close()


def _directory(path: Path) -> None:
    path.mkdir()


def _alike(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE kerneleval_schema (version INTEGER, changed_unix_s REAL)")
        connection.execute("INSERT INTO kerneleval_schema VALUES (1, 0)")
    connection.close()


@pytest.mark.parametrize(
    "make", [_empty, _foreign, _directory, _alike, None], ids=lambda f: f.__name__ if f else "none"
)
def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path, make: Callable[[Path], None] | None) -> None:
    path = tmp_path / "s\x1b[31m\n.db"
    if make is not None:
        make(path)
    code, out, error = says(["score", "--store", str(path), "--json"])
    assert code == 2
    assert error.count("\n") == 1, error
    assert not CONTROL & set(error), error
    assert json.loads(out)["error"]["kind"] in ("usage", "infrastructure"), error
