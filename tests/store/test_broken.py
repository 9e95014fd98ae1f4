"""Every broken place gives one clear message, of the right kind, that names the place and the way out."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import store_builders as make

from kerneleval.records import InfrastructureError, Passed, UsageError
from kerneleval.store import NewRun, database, migrations, open_store, schema


def fill(store, count: int, cells: int = 4, pairs: int = 400):
    """Put verdicts until done; returns the number stored."""
    plan = make.plan(count, cells)
    run = store.begin_run(
        NewRun(name="fill", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan)),
        resume=True,
    )
    for attempt in store.unfinished(run):
        made = make.candidate(attempt.task)
        judged = tuple(make.passed(c, 1.5, pairs) for c in attempt.cases)
        store.put_verdict(run, "g", 0, made, make.verdict(attempt.task, made, judged))


def test_a_path_that_can_be_no_store(tmp_path):
    for url, message in (
        (tmp_path, "is a directory"),
        (tmp_path / "no" / "s.db", "directory .* does not exist"),
        (":memory:", "lost when the process ends"),
        ("", "lost when the process ends"),
        ("mysql://u:secret@h/d", r"unknown scheme 'mysql' .*give a path"),
        ("postgre://u:secret@h/d", "did you mean .*postgresql"),
        ("postgresql://u:secret@h:port/d", r"'postgresql://u:\*\*\*@h:port/d' can't be parsed"),
    ):
        with pytest.raises(UsageError, match=message) as error:
            open_store(url)
        assert "secret" not in str(error.value)


def test_urls_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    open_store().close()
    assert (tmp_path / "kerneleval.db").exists()
    open_store("sqlite:///relative.db").close()
    assert (tmp_path / "relative.db").exists()
    open_store(f"sqlite:///{tmp_path}/absolute # 100%?.db").close()
    assert (tmp_path / "absolute # 100%?.db").exists()


def test_nothing_to_read(tmp_path):
    with pytest.raises(UsageError, match=r"no store at .*none\.db; .*kerneleval run"):
        open_store(tmp_path / "none.db", create=False)
    (tmp_path / "empty.db").touch()
    with pytest.raises(UsageError, match="holds no store yet"):
        open_store(tmp_path / "empty.db", create=False)
    with pytest.raises(UsageError, match="no store at"):
        open_store(tmp_path / "none.db", write=False)
    assert not (tmp_path / "none.db").exists()
    open_store(tmp_path / "empty.db").close()  # an empty file is as good as none


def test_files_of_others_are_left_alone(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("my notes, longer than a database header")
    with pytest.raises(UsageError, match=r"notes\.txt is not an SQLite database"):
        open_store(text)
    assert text.read_text().startswith("my notes")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")
    with pytest.raises(UsageError, match=r"database of another program \(it has tables recipes"):
        open_store(other)
    with sqlite3.connect(other) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]


def test_damaged_file(tmp_path):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        fill(store, 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    with (
        pytest.raises(InfrastructureError, match=r"s\.db is damaged .*restore a copy.*\.recover"),
        open_store(path, create=False) as store,
    ):
        list(store.results())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InfrastructureError, match="is damaged"), open_store(path, create=False) as store:
        list(store.results())


def test_damaged_row(tmp_path):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        fill(store, 1, 1, 8)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE outcomes SET body = substr(body, 1, 50)")
        with pytest.raises(InfrastructureError, match=r"outcome [0-9a-f]{64} is damaged"):
            list(store.results())


def test_newer_store_and_newer_rows(tmp_path):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        fill(store, 1, 1, 8)
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE outcomes SET format = 7")
        with pytest.raises(UsageError, match="has format 7, this kerneleval knows up to 1; upgrade"):
            list(store.results())
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE {schema.schema_version.name} SET version = 99")
    for write in (True, False):
        with pytest.raises(UsageError, match=r"schema version 99, this kerneleval knows up to .*; upgrade"):
            open_store(path, write=write)


def test_full_disk_keeps_what_was_committed(tmp_path):
    """A tmpfs of 2 MiB where one can be mounted, else a limit on file sizes, in a process of its own."""
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", mount], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here ({made.stderr.decode().strip()}); see the file-size limit's test")
    path = mount / "s.db"
    try:
        with open_store(path) as store:
            ballast = mount / "ballast"
            ballast.write_bytes(bytes(512 * 1024))
            with pytest.raises(InfrastructureError, match=r"s\.db: the disk is full .*run the same command again"):
                fill(store, 200)
            before = len(store.attempts()) - len(store.unfinished())
            assert 0 < before < 200
            ballast.unlink()
            with pytest.raises(InfrastructureError, match="the disk is full"):
                fill(store, 200)
            after = len(store.attempts()) - len(store.unfinished())
            assert before < after < 200
            for _, verdict in store.verdicts():
                assert len(verdict.cells) == 4
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        connection.close()
        (mount / "ballast").write_bytes(b"")
        with pytest.raises(OSError, match="No space left"):
            (mount / "ballast").write_bytes(bytes(2 * 2**20))
        with pytest.raises(InfrastructureError, match=r"new\.db.*MiB free"):
            open_store(mount / "new.db")
    finally:
        subprocess.run(["umount", mount], check=True)


LIMITED = """
import resource, sys
sys.path[:0] = sys.argv[2:]
import test_broken
from kerneleval.store import open_store
store = open_store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
try:
    test_broken.fill(store, 100)
except Exception as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(len(store.attempts()) - len(store.unfinished()))
"""


def test_file_size_limit_keeps_what_was_committed(tmp_path):
    path = tmp_path / "s.db"
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, path, Path(__file__).parent, *sys.path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    said, count = run.stdout.splitlines()
    assert re.match(r"InfrastructureError store .*s\.db: writing or reading failed.*file-size limit", said)
    with open_store(path) as store:
        assert len(store.attempts()) - len(store.unfinished()) == int(count)
        assert 0 < int(count) < 100
        fill(store, 100, 4, 8)
        assert store.run().complete


@pytest.fixture
def seal(tmp_path) -> Iterator[Callable[[Path], None]]:
    """Makes a directory and the files in it read-only: by permissions, or for root by mounting it so."""
    sealed: list[Path] = []

    def close(folder: Path) -> None:
        if os.geteuid() == 0:
            made = subprocess.run(["mount", "--bind", folder, folder], capture_output=True, check=False)
            if made.returncode:
                pytest.skip(f"root may write everywhere, and no mount is possible: {made.stderr.decode().strip()}")
            sealed.append(folder)
            subprocess.run(["mount", "-o", "remount,ro,bind", folder], check=True)
        else:
            for path in (*folder.iterdir(), folder):
                path.chmod(path.stat().st_mode & 0o555)

    yield close
    for folder in sealed:
        subprocess.run(["umount", folder], check=True)


def test_read_only_store_is_read_and_never_written(tmp_path, seal):
    folder = tmp_path / "sealed"
    folder.mkdir()
    path = folder / "s.db"
    with open_store(path) as store:
        fill(store, 3, 4, 8)
    seal(folder)
    with pytest.raises(UsageError, match=r"s\.db can't be written .*change the permissions"):
        open_store(path)
    with pytest.raises(UsageError, match=r"directory .*sealed can't be written"):
        open_store(folder / "new.db")
    with open_store(path, write=False) as store:
        assert len(list(store.results())) == 12
        with pytest.raises(UsageError, match=r"s\.db can't be written \(attempt to write a readonly"):
            fill(store, 1, 1, 8)


def test_read_only_store_with_a_log_that_was_never_merged(tmp_path, seal):
    """A killed writer leaves its last commits in the write-ahead log beside the file: they are read too."""
    folder = tmp_path / "sealed"
    folder.mkdir()
    path = folder / "s.db"
    with open_store(path) as store:
        fill(store, 3, 4, 8)
        holder = sqlite3.connect(path)
        holder.execute("SELECT count(*) FROM runs").fetchone()  # while it is open, closing others doesn't merge the log
        store.begin_run(
            NewRun(
                name="late",
                generators=("g",),
                machines=(make.machine(),),
                protocol=make.PROTOCOL,
                plan=tuple(make.plan(1, 1)),
            )
        )
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        shutil.copy(file, copy / file.name)
    holder.close()
    assert (copy / "s.db-wal").stat().st_size
    seal(copy)
    with open_store(copy / "s.db", write=False) as store:
        assert store.run().name == "late"


def test_read_only_open_does_not_write(tmp_path):
    path = tmp_path / "s.db"
    with open_store(path) as store:
        fill(store, 2, 2, 8)
    before = path.read_bytes(), path.stat().st_mtime_ns
    with open_store(path, write=False) as store:
        assert len(list(store.results())) == 4
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_locked_store_says_so_after_the_time_out(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.2)
    with open_store(path) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(InfrastructureError, match=r"s\.db: another process held it locked .*end that process"):
            fill(store, 1)
        holder.execute("ROLLBACK")
        holder.close()
        fill(store, 1)


def test_without_sqlalchemy_the_error_says_what_to_install(monkeypatch):
    for name in [m for m in sys.modules if m.startswith(("sqlalchemy", "kerneleval.store."))]:
        if not name.endswith(".plan"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)
    with pytest.raises(UsageError, match=r"needs SQLAlchemy; install it with: pip install"):
        open_store("x.db")


def test_importing_the_store_imports_no_sqlalchemy():
    code = "import sys, kerneleval.store; print([m for m in sys.modules if m.startswith(('sqlalchemy', 'torch'))])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


# --------------------------------------------------------------------------------------------------------- migrations


def add_note(connection):
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT 'none'")


def fill_note(connection):
    connection.exec_driver_sql("UPDATE runs SET note = 'from ' || name")


def fail(connection):
    connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN lost TEXT")
    raise RuntimeError("killed in the middle")


def notes(store):
    with store._database.reading() as connection:
        return connection.exec_driver_sql("SELECT note FROM runs").scalars().all()


def version(store):
    with store._database.reading() as connection:
        return migrations.found_version(connection, "here")


@pytest.mark.slow
def test_migrations_run_in_order_once_and_keep_the_data(url, monkeypatch):
    with open_store(url) as store:
        fill(store, 2, 3, 8)
        rows = list(store.results())
    present = schema.VERSION
    monkeypatch.setattr(schema, "VERSION", present + 2)
    monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, add_note, fill_note])
    monkeypatch.setattr(schema, "READABLE", present + 1)
    said = f"has schema version {present}, the present one is {present + 2}; open"
    with pytest.raises(UsageError, match=said + " it once for writing"):
        open_store(url, write=False)
    with open_store(url) as store:
        assert version(store) == present + 2
        assert notes(store) == ["from fill"]
        assert list(store.results()) == rows
    with open_store(url) as store:  # present already: adding the column again would fail
        assert version(store) == present + 2


def test_failed_migration_leaves_the_old_version(url, monkeypatch):
    with open_store(url) as store:
        fill(store, 1, 1, 8)
        rows = list(store.results())
    with monkeypatch.context() as newer:
        newer.setattr(schema, "VERSION", schema.VERSION + 2)
        newer.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS, add_note, fail])
        with pytest.raises(RuntimeError, match="killed in the middle"):
            open_store(url)
    with open_store(url) as store:
        assert version(store) == schema.VERSION
        with store._database.reading() as connection:
            columns = connection.exec_driver_sql("SELECT * FROM runs").keys()
        assert "note" not in columns
        assert list(store.results()) == rows


def test_a_store_of_version_1_reads_the_same_as_ever(tmp_path):
    """``version1.sql`` was dumped when version 1 was the present: never make it anew."""
    path = tmp_path / "old.db"
    with sqlite3.connect(path) as connection:
        connection.executescript((Path(__file__).parent / "version1.sql").read_text())
    connection.close()
    with open_store(path, write=False) as store:  # reading migrates nothing
        assert version(store) == 1
        assert len(list(store.results())) == 4
    with open_store(path) as store:
        info = store.run("first")
        assert (info.planned, info.finished, info.not_evaluated) == (2, 1, {"cuda": "no such device"})
        first, second, *rest = store.results()
        assert isinstance(first.outcome, Passed)
        assert first.outcome.timing.speedup == 1.5
        assert first.outcome.timing.samples.candidate_ns == (1000.0, 1000 + 1 / 3, 1000 + 2 / 3, 1001.0)
        assert second.outcome.reason == "wrong_output"
        assert [r.outcome.reason for r in rest] == ["unfinished"] * 2
        ((attempt, verdict),) = store.verdicts()
        assert len(verdict.cells) == 2
        assert store.candidate(attempt.candidate).hash == attempt.candidate
        assert version(store) == schema.VERSION
        assert store.response("k") is None
        store.put_response("k", {"text": "a \x00 \ud800"})
    with sqlite3.connect(path) as old, sqlite3.connect(tmp_path / "new.db") as new:
        open_store(tmp_path / "new.db").close()
        names = "SELECT name FROM sqlite_master WHERE type IN ('table', 'index') ORDER BY name"
        assert old.execute(names).fetchall() == new.execute(names).fetchall()
        for (table,) in new.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            columns = f"SELECT name, \"notnull\", pk FROM pragma_table_info('{table}')"
            assert old.execute(columns).fetchall() == new.execute(columns).fetchall(), table


def test_every_version_but_the_first_has_a_migration():
    assert len(migrations.MIGRATIONS) == schema.VERSION - 1


# --------------------------------------------------------------------------------------------------------- PostgreSQL


def test_server_that_is_not_there():
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'kerneleval[postgres]')")
    with pytest.raises(InfrastructureError, match=r"postgresql://u:\*\*\*@127.0.0.1:1/d: the server can't be reached"):
        open_store("postgresql://u:secret@127.0.0.1:1/d")


def test_server_that_refuses(server, server_url):
    with pytest.raises(UsageError, match="refused the login") as error:
        open_store(server.url("postgres", password="wrong"))
    assert "wrong@" not in str(error.value)
    with pytest.raises(UsageError, match=r"no such database .*does not exist"):
        open_store(server.url("nowhere"))
    with pytest.raises(UsageError, match="invalid connection option"):
        open_store(server_url + "?colour=red")


def test_user_who_may_not_write(server, server_url):
    name = server_url.rpartition("/")[2]
    server.execute(f"CREATE ROLE reader_{name} LOGIN PASSWORD 'pw'")
    poor = server.url(name, user=f"reader_{name}", password="pw")
    with pytest.raises(UsageError, match="this user may not write there"):
        open_store(poor)
    with open_store(server_url) as store:
        fill(store, 1, 2, 8)
    server.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_{name}", name)
    with open_store(poor, write=False) as store:
        assert len(list(store.results())) == 2


def test_server_shared_with_other_tables(server, server_url):
    name = server_url.rpartition("/")[2]
    server.execute("CREATE TABLE recipes (name TEXT)", name)
    with open_store(server_url) as store:
        fill(store, 1, 2, 8)
    server.execute("DROP TABLE kerneleval_schema", name)
    with pytest.raises(UsageError, match="database of another program"):
        open_store(server_url)


def test_schema_chosen_by_url(server, server_url):
    name = server_url.rpartition("/")[2]
    server.execute("CREATE SCHEMA team", name)
    with open_store(server_url + "?options=-csearch_path%3Dteam") as store:
        fill(store, 1, 2, 8)
    with pytest.raises(UsageError, match="holds no store yet"):
        open_store(server_url, create=False)


def test_server_that_breaks_off(server, server_url):
    name = server_url.rpartition("/")[2]
    with open_store(server_url) as store:
        fill(store, 2, 2, 8)
        rows = store.results()
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        assert len(list(rows)) == 4  # not begun yet: takes a connection of its own
        started = store.verdicts()
        next(started)
        server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        with pytest.raises(InfrastructureError, match="the connection broke"):
            list(started)
        assert len(list(store.results())) == 4
