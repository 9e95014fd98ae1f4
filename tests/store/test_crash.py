"""A killed writer loses nothing it finished, leaves nothing torn, repeats nothing; several writers don't collide."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import store_builders as make

from kerneleval.records import Passed
from kerneleval.store import NewRun, open_store

WRITER = Path(make.__file__)


def start_writer(url: str, attempts: int, cells: int, name: str = "killed") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, WRITER, url, name, str(attempts), str(cells)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def check_nothing_torn(url: str, cells: int) -> set[str]:
    """Tasks finished; each of them has all of its cells, each other one has none."""
    with open_store(url, create=False) as store:
        finished = {a.task for a in store.attempts() if a.finished}
        for attempt, verdict in store.verdicts():
            assert len(verdict.cells) == cells, attempt
        judged = [r.task for r in store.results() if isinstance(r.outcome, Passed)]
        assert {t: judged.count(t) for t in judged} == dict.fromkeys(finished, cells)
    return finished


def kill_and_resume(url: str, attempts: int, cells: int, kills: int, lines: int, longest_s: float) -> int:
    """Kill a writer again and again, then let it finish; returns how many kills hit it at work.

    Each is killed up to `longest_s` after it said up to `lines` of its attempts: by the clock alone, a fast machine
    would be done before.
    """
    random.seed(20240607)
    said: list[str] = []
    runs: set[str] = set()
    hits = 0
    for round_ in range(kills + 1):
        writer = start_writer(url, attempts, cells)
        assert writer.stdout
        assert writer.stderr
        runs.add(writer.stdout.readline())
        out = ""
        if round_ < kills:
            out = "".join(writer.stdout.readline() for _ in range(random.randint(0, lines)))
            time.sleep(random.uniform(0, longest_s))
            writer.kill()
        rest, error = writer.communicate(timeout=60)
        # a writer killed in the middle of a line has not said it
        whole = [line for line in (out + rest).splitlines(keepends=True) if line.endswith("\n")]
        stored = [line.split()[1] for line in whole if line.startswith("stored ")]
        assert not set(stored) & set(said), "a finished attempt was judged again"
        said += stored
        finished = check_nothing_torn(url, cells)
        assert set(said) <= finished, "a finished verdict was lost"
        # a kill may come when all is stored and the interpreter is about to end: the next writer would begin a new run
        if len(finished) == attempts:
            break
        assert writer.returncode == -signal.SIGKILL, error
        hits += 1
    assert len(runs) == 1
    assert len(finished) == attempts
    return hits


def test_kill_9_loop_on_sqlite(tmp_path):
    path = tmp_path / "store.db"
    hits = kill_and_resume(str(path), attempts=60, cells=8, kills=5, lines=6, longest_s=0.02)
    assert hits >= 3
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT count(*) FROM outcomes").fetchone() == (60 * 8,)


@pytest.mark.slow
def test_kill_9_loop_on_postgresql(server_url):
    assert kill_and_resume(server_url, attempts=40, cells=8, kills=3, lines=6, longest_s=0.05) >= 1


@pytest.mark.slow
def test_kill_9_while_the_store_is_made(tmp_path):
    for i in range(4):
        path = tmp_path / f"{i}.db"
        writer = start_writer(str(path), 1, 1)
        assert writer.stdout
        # the file appears with the first transaction, well before the first line of output
        while not path.exists() and writer.poll() is None:
            time.sleep(0.0002)
        writer.kill()
        writer.communicate()
        make.write_until_done(str(path), "killed", 1, 1)
        check_nothing_torn(str(path), 1)


@pytest.mark.slow
def test_two_processes_make_and_fill_one_store(url):
    writers = [start_writer(url, 30, 6, name) for name in ("a", "b")]
    for writer in writers:
        out, error = writer.communicate(timeout=60)
        assert writer.returncode == 0, error
        assert out.count("stored ") == 30
    with open_store(url, create=False) as store:
        assert {r.name for r in store.runs() if r.complete} == {"a", "b"}
        for run in store.runs():
            assert sum(isinstance(r.outcome, Passed) for r in store.results(run.id)) == 30 * 6


@pytest.mark.slow
def test_two_processes_share_one_run(url):
    """Both work on the same attempts: the first verdict of each stays, and nobody fails."""
    with open_store(url) as store:
        store.begin_run(
            NewRun(
                name="shared",
                generators=("g",),
                machines=(make.machine(),),
                protocol=make.PROTOCOL,
                plan=tuple(make.plan(30, 6)),
            )
        )
    writers = [start_writer(url, 30, 6, "shared") for _ in range(2)]
    stored: dict[str, list[str]] = {}
    for writer in writers:
        out, error = writer.communicate(timeout=60)
        assert writer.returncode == 0, error
        run, *lines = out.splitlines()
        stored.setdefault(run, []).extend(line for line in lines if line.startswith("stored"))
    # a writer that starts when the other has finished the run begins one of its own, and judges it whole
    for lines in stored.values():
        assert len(lines) == len(set(lines)) == 30
    assert len(check_nothing_torn(url, 6)) == 30


def test_a_reader_sees_a_snapshot_while_a_writer_writes(url):
    plan = make.plan(3, 4)
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(name="r", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )
        rows = store.results(run)
        next(rows)
        for p in plan:
            cells = tuple(make.passed(c) for c in p.cases)
            store.put_verdict(run, "g", 0, p.candidate, make.verdict(p.task, p.candidate, cells))
        assert not any(isinstance(r.outcome, Passed) for r in rows)
        assert all(isinstance(r.outcome, Passed) for r in store.results(run))


@pytest.mark.parametrize("many", [8])
def test_threads_share_a_store(url, many):
    plan = make.plan(many, 3)
    errors = []
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(name="t", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )

        def put(p):
            try:
                cells = tuple(make.passed(c) for c in p.cases)
                store.put_verdict(run, "g", 0, p.candidate, make.verdict(p.task, p.candidate, cells))
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=put, args=(p,)) for p in plan]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert store.run(run).complete
