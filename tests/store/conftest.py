from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server of the test's own, on a loopback port."""

    port: int
    password: str

    def url(self, database: str, *, user: str = "tester", password: str | None = None) -> str:
        return f"postgresql://{user}:{password or self.password}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            connection.execute(statement)


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    folders += sorted(Path("/usr").glob("pgsql-*/bin"), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def _account() -> dict[str, str | int]:
    """Who runs the server: it refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    import pwd

    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid}
    pytest.skip("PostgreSQL does not run as root, and there is neither a user 'postgres' nor 'nobody'")


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    pytest.importorskip("psycopg", reason="PostgreSQL not tested: psycopg is not installed")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("PostgreSQL not tested: no installed server (initdb and postgres) was found")
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="ke-pg-"))  # pytest's own folder is closed to the server's user
    password = "pass/word@" + secrets.token_hex(4)
    (folder / "password").write_text(password)
    if account:
        for path in (folder, folder / "password"):
            os.chown(path, int(account["user"]), int(account["group"]))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    make = [binaries / "initdb", "-D", data, "-U", "tester", "-A", "scram-sha-256", "--pwfile", folder / "password"]
    subprocess.run([*make, "-E", "UTF8", "--no-sync"], check=True, cwd=folder, capture_output=True, **account)
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder, "fsync": "off"}
    settings |= {"autovacuum": "off", "full_page_writes": "off", "wal_level": "minimal", "max_wal_senders": "0"}
    options = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
    log = (folder / "log").open("wb")
    process = subprocess.Popen(
        [binaries / "postgres", "-D", data, *options], cwd=folder, stdout=log, stderr=log, **account
    )
    found = Server(port, password.replace("/", "%2F").replace("@", "%40"))
    try:
        _wait(found, process, folder / "log")
        found.execute("CREATE DATABASE tests")
        yield found
    finally:
        process.send_signal(signal.SIGINT)  # fast shutdown
        process.wait(timeout=30)
        log.close()
        shutil.rmtree(folder)


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    import psycopg

    deadline = time.monotonic() + 60
    while True:
        try:
            psycopg.connect(server.url("postgres")).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"PostgreSQL did not start: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def server_url(server: Server) -> str:
    """URL of an empty database: the same for every test, for a new one takes a tenth of a second of its server."""
    gone = "SELECT pg_terminate_backend(pid, 1000) FROM pg_stat_activity WHERE datname = 'tests'"
    server.execute(gone)
    server.execute("DROP SCHEMA IF EXISTS public, team CASCADE", "tests")
    server.execute("CREATE SCHEMA public", "tests")
    server.execute("GRANT USAGE ON SCHEMA public TO PUBLIC", "tests")
    return server.url("tests")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a fresh store, of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db")
    return str(request.getfixturevalue("server_url"))
