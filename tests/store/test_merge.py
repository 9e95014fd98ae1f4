"""Stores merged: every run reads as it did, again changes nothing, all of a source or nothing of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import store_builders as make
from sqlalchemy import select

from kerneleval import cli, pipeline
from kerneleval.records import InfrastructureError, Machine, UsageError
from kerneleval.store import NewRun, merging, open_store, schema, writing
from kerneleval.store.store import Store


def stored(
    url: str | Path, name: str, device: str = "cpu", tasks: int = 3, finished: int = 3, speedup: float = 1.5
) -> str:
    """A run on that device of which so many attempts are judged; its identifier."""
    on = make.machine(device)
    with open_store(url) as store:
        plan = make.plan(tasks, 4)
        run = store.begin_run(
            NewRun(
                name=name,
                generators=("g",),
                machines=(on,),
                protocol=make.PROTOCOL,
                plan=tuple(plan),
                not_evaluated={"metal": "absent"},
            ),
            resume=True,
        )
        finish(store, run, finished, speedup, on)
    return run


def finish(store: Store, run: str, finished: int, speedup: float = 1.5, on: Machine | None = None) -> None:
    done = sum(attempt.finished for attempt in store.attempts(run))
    for attempt in store.unfinished(run)[: finished - done]:
        made = make.candidate(attempt.task)
        cells = (*(make.passed(c, speedup) for c in attempt.cases[:-1]), make.failed(attempt.cases[-1]))
        told = make.verdict(attempt.task, made, cells, on=on, stage="correctness", reason="wrong_output")
        store.put_verdict(run, "g", 0, made, told)


def contents(url: str | Path) -> dict[str, list[Any]]:
    """Every row of every table but the version's."""
    with open_store(url) as store, store._database.reading() as connection:
        tables = [table for table in schema.METADATA.sorted_tables if table is not schema.schema_version]
        return {table.name: sorted(map(repr, connection.execute(select(table)).all())) for table in tables}


def reads(url: str | Path, run: str) -> tuple[Any, ...]:
    """Everything that a store tells of a run."""
    with open_store(url, write=False) as store:
        return (
            store.run(run),
            store.attempts(run),
            list(store.verdicts(run)),
            list(store.results(run)),
            store.unfinished(run),
        )


def plain(found: Sequence[Any]) -> str:
    return repr(found)  # NaN is not equal to itself


def changes(found: dict[str, Any]) -> list[str]:
    return [run["change"] for source in found["sources"] for run in source["runs"]]


@pytest.mark.slow
def test_every_run_reads_as_in_its_own_store(url: str, tmp_path: Path) -> None:
    a, b = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    runs = {stored(a, "first"): a, stored(a, "second", tasks=5, finished=2): a, stored(b, "first", "cuda"): b}
    with open_store(b) as store:
        store.put_response("asked", {"answer": 42})
    before = {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (a, b)}
    stored(url, "own", "rocm")
    own = plain(reads(url, "own"))
    found = pipeline.merge([a, b], store_url=url)
    assert changes(found) == ["added"] * 3
    assert found["machines"] == 2
    for run, place in runs.items():
        assert plain(reads(url, run)) == plain(reads(place, run))
    assert plain(reads(url, "own")) == own
    with open_store(url) as store:
        assert store.response("asked") == {"answer": 42}
        assert len(store.runs()) == 4
    assert {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in (a, b)} == before


def test_from_any_kind_of_store(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "_ROWS", 3)
    monkeypatch.setattr(merging, "_ATTEMPTS", 2)
    run = stored(url, "first", tasks=5, finished=4)
    before = contents(url)
    target = str(tmp_path / "t.db")
    assert changes(pipeline.merge([url], store_url=target)) == ["added"]
    assert plain(reads(target, run)) == plain(reads(url, run))
    assert contents(target) == contents(url) == before
    assert changes(pipeline.merge([url], store_url=target)) == ["unchanged"]
    with pytest.raises(UsageError, match="both source and target"):
        pipeline.merge([url], store_url=url)


def test_again_changes_nothing_and_says_so(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = str(tmp_path / "a.db")
    stored(a, "first", finished=2)
    pipeline.merge([a], store_url=url)
    before = contents(url)
    found = pipeline.merge([a, a], store_url=url)
    assert contents(url) == before
    assert changes(found) == ["unchanged", "unchanged"]
    assert [source["rows"] for source in found["sources"]] == [{}, {}]
    assert cli.main(["merge", a, "--store", url]) == 0
    assert "Nothing new" in capsys.readouterr().out


def test_a_run_that_went_on_is_extended(url: str, tmp_path: Path) -> None:
    a = str(tmp_path / "a.db")
    run = stored(a, "first", tasks=4, finished=1)
    pipeline.merge([a], store_url=url)
    with open_store(a) as store:
        finish(store, run, 3)
        store.add_attempts(run, make.plan(6, 4))
    assert changes(pipeline.merge([a], store_url=url)) == ["extended"]
    assert plain(reads(url, run)) == plain(reads(a, run))
    with open_store(url) as store:  # and it goes on in the target
        finish(store, run, 6)
        assert store.run(run).complete
    whole = plain(reads(url, run))
    assert changes(pipeline.merge([a], store_url=url)) == ["unchanged"]  # which has more than the source
    assert plain(reads(url, run)) == whole


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two stores, and of a third one that is the first with a run more."""
    folder = tmp_path_factory.mktemp("three")
    stored(folder / "a.db", "first")
    stored(folder / "b.db", "fine", "cuda")
    (folder / "c.db").write_bytes((folder / "a.db").read_bytes())
    stored(folder / "c.db", "another", "rocm")
    return folder


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE runs SET name = 'other'", r"run \S+ \(other\)"),
        ("UPDATE verdicts SET reason = 'ok'", "attempt of g at task task000, sample 0, with its verdict,"),
        ("UPDATE attempts SET level = 3", "attempt of g at task task000, sample 0"),
        ("UPDATE machines SET body = replace(body, 'a cpu', 'b cpu')", "machine [0-9a-f]{16}"),
        ("UPDATE cases SET dtype = 'float16'", "case [0-9a-f]{32}"),
    ],
)
def test_what_differs_is_named_and_nothing_is_merged(
    change: str, named: str, url: str, three: Path, tmp_path: Path
) -> None:
    own = shutil.copytree(three, tmp_path / "own")
    a, b, c = (str(own / f"{name}.db") for name in "abc")
    pipeline.merge([a], store_url=url)
    with sqlite3.connect(c) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(UsageError, match=rf"{named} is in .*c\.db and in .* with other contents; nothing of .*c\.db"):
        pipeline.merge([b, c], store_url=url)
    with open_store(url) as store:
        assert sorted(info.name for info in store.runs()) == ["fine", "first"]  # b stands, nothing of c came
        assert "a rocm" not in repr(contents(url)["machines"])


def test_a_failure_leaves_the_target_as_it_was(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = str(tmp_path / "a.db"), str(tmp_path / "b.db")
    stored(a, "first")
    stored(b, "second", "cuda")
    pipeline.merge([a], store_url=url)
    before = contents(url)
    add_new = writing.add_new

    def fails(connection: Any, table: Any, rows: Any, key: str) -> None:
        add_new(connection, table, rows, key)
        if table is schema.outcomes:
            raise KeyboardInterrupt

    monkeypatch.setattr(writing, "add_new", fails)
    with pytest.raises(KeyboardInterrupt):
        pipeline.merge([b], store_url=url)
    assert contents(url) == before
    monkeypatch.undo()
    assert changes(pipeline.merge([a, b], store_url=url)) == ["unchanged", "added"]


KILLED = """
import os, signal, sys
from kerneleval import pipeline
from kerneleval.store import merging, schema, writing
if sys.argv[3] == "limit":
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[4]), resource.RLIM_INFINITY))
else:
    add_new = writing.add_new
    def killed(connection, table, rows, key):
        add_new(connection, table, rows, key)
        if table is schema.outcomes:
            os.kill(os.getpid(), signal.SIGKILL)
    writing.add_new = killed
try:
    pipeline.merge([sys.argv[1]], store_url=sys.argv[2])
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "limit"])
def test_a_kill_or_a_full_disk_leaves_the_target_as_it_was(how: str, tmp_path: Path) -> None:
    a, target = str(tmp_path / "a.db"), str(tmp_path / "t.db")
    stored(a, "first", tasks=40, finished=40)
    stored(target, "own", "cuda")
    before = contents(target)
    limit = str(Path(target).stat().st_size + 30_000)
    run = subprocess.run(
        [sys.executable, "-c", KILLED, a, target, how, limit],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    if how == "kill":
        assert run.returncode == -signal.SIGKILL, run.stderr
    else:
        assert re.match(r"InfrastructureError store .*t\.db: writing or reading failed.*file-size limit", run.stdout)
    assert contents(target) == before
    assert changes(pipeline.merge([a], store_url=target)) == ["added"]
    assert plain(reads(target, "first")) == plain(reads(a, "first"))


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_a_cell_that_failed_anywhere_has_failed(order: str, tmp_path: Path) -> None:
    task, made = "task000", make.candidate("task000")
    for name in "ab":
        with open_store(tmp_path / f"{name}.db") as store:
            plan = make.plan(1, 2)
            run = store.begin_run(
                NewRun(
                    name=name, generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan)
                )
            )
            first, second = plan[0].cases
            cells = (make.passed(first, 1.5 if name == "a" else 1.6), make.passed(second))
            if name == "b":
                cells = (cells[0], make.failed(second))
            bad = {"stage": "correctness", "reason": "wrong_output"} if name == "b" else {}
            store.put_verdict(run, "g", 0, made, make.verdict(task, made, cells, **bad))
    url = str(tmp_path / "t.db")
    found = pipeline.merge([str(tmp_path / f"{name}.db") for name in order], store_url=url)
    last = found["sources"][-1]
    assert (last["kept"], last["refuted"]) == (1, 1)
    assert re.match(rf"candidate {made.hash[:16]}, task task000, forward, .*: wrong_output", last["examples"][0])
    with open_store(url) as store:
        for name in "ab":
            first_cell, second_cell = store.results(name)
            assert first_cell.outcome.timing.speedup == (1.5 if order == "ab" else 1.6)  # type: ignore[union-attr]
            assert second_cell.outcome.reason == "wrong_output"  # type: ignore[union-attr]
    before = contents(url)
    pipeline.merge([str(tmp_path / f"{name}.db") for name in order], store_url=url)
    assert contents(url) == before


def test_versions(tmp_path: Path) -> None:
    old, new, url = tmp_path / "old.db", tmp_path / "new.db", str(tmp_path / "t.db")
    with sqlite3.connect(old) as connection:
        connection.executescript((Path(__file__).parent / "version1.sql").read_text())
    connection.close()
    before = old.read_bytes()
    found = pipeline.merge([str(old)], store_url=url)
    assert set(changes(found)) == {"added"}
    assert old.read_bytes() == before  # not migrated
    for run in found["sources"][0]["runs"]:
        assert plain(reads(url, run["id"])) == plain(reads(old, run["id"]))
    stored(new, "later")
    with sqlite3.connect(new) as connection:
        connection.execute("UPDATE kerneleval_schema SET version = 99")
    connection.close()
    with pytest.raises(UsageError, match=r"new\.db has schema version 99, .*upgrade kerneleval"):
        pipeline.merge([str(new)], store_url=url)


def test_sources_that_are_none(tmp_path: Path) -> None:
    a = str(tmp_path / "a.db")
    stored(a, "first")
    with pytest.raises(UsageError, match="both source and target"):
        pipeline.merge([a], store_url=f"sqlite:///{tmp_path}/../{tmp_path.name}/a.db")
    with pytest.raises(UsageError, match="no source is given"):
        pipeline.merge([], store_url=a)
    with pytest.raises(UsageError, match=r"no store at .*none\.db"):
        pipeline.merge([a, str(tmp_path / "none.db")], store_url=str(tmp_path / "t.db"))
    assert not (tmp_path / "t.db").exists()  # named before anything moved


@pytest.mark.parametrize(
    ("change", "error", "named"),
    [
        (
            "UPDATE candidates SET files = replace(files, 'return x', 'return y')",
            UsageError,
            "candidate .* was changed",
        ),
        ("UPDATE runs SET body = '{'", InfrastructureError, r"run \S+ is damaged"),
        ("UPDATE machines SET body = '[]'", InfrastructureError, r"machine \S+ is damaged"),
    ],
)
def test_a_damaged_source_is_refused(change: str, error: type[Exception], named: str, tmp_path: Path) -> None:
    a, url = str(tmp_path / "a.db"), str(tmp_path / "t.db")
    stored(a, "first")
    stored(url, "own", "cuda")
    before = contents(url)
    with sqlite3.connect(a) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(error, match=named):
        pipeline.merge([a], store_url=url)
    assert contents(url) == before


def test_a_source_with_torn_pages_is_named(tmp_path: Path) -> None:
    a, url = tmp_path / "a.db", str(tmp_path / "t.db")
    stored(a, "first", tasks=60, finished=60)
    stored(url, "own", "cuda")
    before = contents(url)
    torn = bytearray(a.read_bytes())
    for page in range(len(torn) // 4096 // 2, len(torn) // 4096):
        torn[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    a.write_bytes(torn)
    with pytest.raises(InfrastructureError, match=r"store .*a\.db.*damaged"):
        pipeline.merge([str(a)], store_url=url)
    assert contents(url) == before


def test_same_names_are_kept_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, url = (str(tmp_path / f"{name}.db") for name in "abt")
    runs = [stored(a, "archetypes"), stored(b, "archetypes", "cuda", speedup=2.0)]
    assert cli.main(["merge", a, b, "--store", url]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 runs are named 'archetypes': the name means the latest" in said
    assert f"next: kerneleval score {runs[0]} {runs[1]} --store {url}" in said
    assert cli.main(["merge", a, b, "--store", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found["names"]["archetypes"]) == sorted(runs)
    assert pipeline.score(url, runs)["scores"]["g"]["p_hw"]["n"] == 2


def test_rows_travel_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two rows: what is made of a thousand must not depend on where one ends."""
    monkeypatch.setattr(merging, "_ROWS", 2)
    monkeypatch.setattr(merging, "_ATTEMPTS", 2)
    a, url = str(tmp_path / "a.db"), str(tmp_path / "t.db")
    run = stored(a, "first", tasks=5, finished=4)
    told: list[tuple[int, int]] = []
    pipeline.merge([a], store_url=url, on_event=lambda event: told.append((event.done, event.total)))
    assert plain(reads(url, run)) == plain(reads(a, run))
    assert told[-1] == (5 + 16, 5 + 16)
    assert told == sorted(told)


def test_a_machine_of_two_stores_is_one(tmp_path: Path) -> None:
    a, b, url = (str(tmp_path / f"{name}.db") for name in "abt")
    stored(a, "first")
    with open_store(b) as store:
        plan = [dataclasses.replace(p, task="other", cases=tuple(make.case("other", i) for i in range(4)))
                for p in make.plan(1, 4)]  # fmt: skip
        run = store.begin_run(
            NewRun(
                name="second", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan)
            )
        )
        finish(store, run, 1)
    pipeline.merge([a, b], store_url=url)
    found = pipeline.score(url, ["first", "second"])
    assert len(found["run"]["machines"]) == 1
    assert found["scores"]["g"]["p_hw"]["n"] == 1
