"""The judge's end of ``kerneleval check``, and clients that are none of ours."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path

import pytest

from kerneleval.generators.agent import check_socket, client
from kerneleval.generators.agent.check_socket import CheckSocket
from kerneleval.records import Candidate, UsageError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's")


def draft_of(data: bytes) -> Candidate:
    if not data:
        raise UsageError("the file is empty")
    return Candidate(files=(("candidate.py", data.decode()),), language="numba")


def looked(candidate: Candidate) -> tuple[bool, str]:
    return candidate.main != "wrong", f"saw {candidate.main}"


def served(folder: Path, budget: int = 3, check=looked) -> CheckSocket:
    return CheckSocket(folder, draft_of, check, budget)


def sent(folder: Path, message: bytes, *, end: bool = True) -> dict:
    """What is answered to a message; nothing where the other side says nothing."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(30)
        channel.connect(str(folder / "socket"))
        channel.sendall(message)
        if end:
            channel.shutdown(socket.SHUT_WR)
        parts = []
        while part := channel.recv(65536):
            parts.append(part)
    return json.loads(b"".join(parts) or b"{}")


def message(folder: Path, data: bytes) -> bytes:
    return f"check {(folder / 'word').read_text()} {len(data)}\n".encode() + data


def test_a_draft_is_judged(tmp_path):
    with served(tmp_path, budget=2) as checks:
        assert sent(tmp_path, message(tmp_path, b"x")) == {"code": 0, "text": "saw x\n\n(1 of 2 checks are left.)"}
        assert sent(tmp_path, message(tmp_path, b""))["code"] == client.WRONG
        assert checks.used == 1
        assert sent(tmp_path, message(tmp_path, b"wrong"), end=False)["code"] == client.REJECTED
        assert sent(tmp_path, message(tmp_path, b"z")) == {
            "code": client.USED_UP,
            "text": "The budget of 2 checks is used up.",
        }
        assert checks.used == 2


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"hello\n", "not understood"),
        (b"check\n", "not understood"),
        (b"check word -1\nx", "not understood"),
        (b"check word 1 1\nx", "not understood"),
        (b"x" * 100_000, "not understood"),
        (b"\n", "not understood"),
        (b"check \xff\xfe 1\nx", "another workspace's"),
        (b"check 0123456789abcdef0123456789abcdef 1\nx", "another workspace's"),
        (b"check WORD 4194305\nx", "larger than 4194304 bytes"),
        (b"check WORD 99999999999999999999999\nx", "larger than"),
    ],
)
def test_other_messages(tmp_path, data, told):
    with served(tmp_path) as checks:
        word = (tmp_path / "word").read_bytes()
        try:
            answer = sent(tmp_path, data.replace(b"WORD", word))
        except (BrokenPipeError, ConnectionResetError):  # it hung up on more than it reads
            answer = {"code": client.WRONG, "text": told}
        assert answer["code"] == client.WRONG
        assert told in answer["text"]
        assert checks.used == 0
        assert sent(tmp_path, message(tmp_path, b"x"))["code"] == client.RIGHT  # it goes on


def test_a_client_that_goes_away(tmp_path):
    with served(tmp_path) as checks:
        assert sent(tmp_path, message(tmp_path, b"whole")[:-2]) == {}
        assert sent(tmp_path, b"") == {}
        assert checks.used == 0
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(tmp_path / "socket"))
            channel.sendall(message(tmp_path, b"x"))
        assert sent(tmp_path, message(tmp_path, b"y"))["text"].startswith("saw y")


def test_a_client_that_hangs(tmp_path, monkeypatch):
    monkeypatch.setattr(check_socket, "_PATIENCE_S", 0.3)
    with served(tmp_path) as checks, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(tmp_path / "socket"))
        silent.sendall(b"check ")
        assert sent(tmp_path, message(tmp_path, b"x"))["code"] == client.RIGHT
        assert checks.used == 1


def test_a_client_that_takes_no_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(check_socket, "_PATIENCE_S", 0.3)
    with (
        served(tmp_path, check=lambda candidate: (True, "x" * (32 << 20))) as checks,
        socket.socket(socket.AF_UNIX) as deaf,
    ):
        deaf.connect(str(tmp_path / "socket"))
        deaf.sendall(message(tmp_path, b"x"))
        assert sent(tmp_path, message(tmp_path, b""))["code"] == client.WRONG
        assert checks.used == 1


def test_closing_while_a_draft_is_judged(tmp_path):
    begun, go = threading.Event(), threading.Event()

    def check(candidate):
        begun.set()
        go.wait(30)
        return True, "late"

    with served(tmp_path, check=check) as checks, socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(tmp_path / "socket"))
        channel.sendall(message(tmp_path, b"x"))
        assert begun.wait(30)
        assert checks.judging_s > 0
        go.set()
    assert not any(t.name == "kerneleval-checks" for t in threading.enumerate())


def test_control_characters_are_left_out(tmp_path):
    with served(tmp_path, check=lambda candidate: (True, "a\x1b[31m\x00b")) as _:
        assert sent(tmp_path, message(tmp_path, b"x"))["text"].startswith("a[31mb")


def test_a_folder_with_a_long_name(tmp_path):
    folder = tmp_path / ("n" * 200)
    folder.mkdir()
    (tmp_path / "d.py").write_text("x")
    with served(folder):
        done = __import__("subprocess").run(
            [sys.executable, "-I", "-c", f"import sys, runpy; sys.argv = ['k', 'check', {str(tmp_path / 'd.py')!r}]\n"
             f"m = runpy.run_path({client.__file__!r})\nsys.exit(m['main'](sys.argv[1:], {str(folder)!r}))"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout.split("\n")[0]) == (0, "saw x"), done.stderr


def test_nobody_is_there(tmp_path, capsys):
    (tmp_path / "d.py").write_text("x")
    assert client.main(["check", str(tmp_path / "d.py")], str(tmp_path)) == client.NOBODY
    assert "the judge does not answer" in capsys.readouterr().err
