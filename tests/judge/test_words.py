"""What a verdict says of a candidate that does not answer, or cannot: the cause, as far as it is seen."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.sandbox import processes
from kerneleval.worker import waiting
from kerneleval.worker.host import Worker

GELU = "import os, signal, torch\n{before}\n\ndef gelu(x):\n    {first}\n    return torch.nn.functional.gelu(x)\n"
STOP = "os.kill(os.getpid(), signal.SIGSTOP)"
FIFO = "os.mkfifo('/dev/shm/f') or open('/dev/shm/f').read()"
BIG = """static char a[6000000000ull] = {1};
extern "C" int gelu_float32(const float* x, float* o, long m, long n, void*) {
    o[0] = a[n];
    return 0;
}
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.mark.slow(every=5)
@pytest.mark.parametrize(
    ("name", "text", "reason", "words"),
    [
        ("stops", GELU.format(before="", first=STOP), "timeout", "the process is stopped, as SIGSTOP does"),
        ("stops_at_import", GELU.format(before=STOP, first=""), "timeout", "the process is stopped"),
        ("fifo", GELU.format(before="", first=FIFO), "timeout", "it is in gelu, line 5 of candidate.py"),
        (
            "stdin",
            GELU.format(before="import sys", first="os.read(os.pipe()[0], 1)"),
            "timeout",
            "it is in gelu, line 5",
        ),
        ("spins", GELU.format(before="", first="while True: pass"), "timeout", "it is in gelu, line 5 of candidate.py"),
        ("closes", GELU.format(before="", first="os.closerange(3, 4096)"), "exit", "closed the worker's connection"),
        (
            "no_files",
            GELU.format(before="import resource", first="resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))"),
            "exit",
            "closed the worker's connection, or left it no memory or files",
        ),
        (
            "expanded",
            GELU.format(before="", first="return torch.zeros(1).expand(2**30, 2**30)"),
            "wrong_shape",
            "2**30",
        ),
        ("signs", GELU.format(before="X = " + "-" * 200_000 + "1", first=""), "load_error", "nested too deeply"),
        ("sum", GELU.format(before="X = 1" + "+1" * 20_000, first=""), "load_error", "nested too deeply"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 16 else "",
)
def test_the_cause_is_named(
    name: str, text: str, reason: str, words: str, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "CALLS_S", 3.0)
    monkeypatch.setattr(waiting, "LOAD_S", 4.0)
    verdict = judged(tmp_path / f"{name}.py", text, judge)
    assert verdict.reason == reason, verdict.message
    assert words.replace("2**30", str(2**30)) in verdict.message


def test_the_limit_of_a_compilers_file_is_named(judge: Judge, tmp_path: Path) -> None:
    verdict = judged(tmp_path / "big.cpp", BIG, judge)
    assert verdict.reason == "build_error" and "a file of more than 1024 MiB, which is the limit" in verdict.message


def test_slow_loads_count_against_the_budget_of_all_calls(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "_WORK_SHARE", 0.0)
    text = GELU.format(before="import time\ntime.sleep(3)", first="")
    verdict = judged(tmp_path / "slow_import.py", text, judge, patience_s=1.0)
    assert verdict.reason == "timeout" and "1 s longer than the judge's own work" in verdict.message


def judged(path: Path, text: str, judge: Judge, **further: Any) -> Any:
    path.write_text(text)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    allow = ("library", "mixed", "custom")
    return check(path, "gelu", judge=judge, allow=allow, timed=False, fail_fast=True, **options, **further)


def test_a_place_that_is_told_in_pieces_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on a busy machine prints its frames one after another: the first piece had none, and none was named."""
    inside, outside = os.pipe()
    os.set_blocking(inside, False)
    worker: Any = Worker.__new__(Worker)
    worker._printed, worker._kept, worker._output, worker._own = 0, b"before", inside, {os.getpid()}
    monkeypatch.setattr(worker, "_family", lambda: [os.getpid()])

    def tell(pids: object, number: object) -> None:
        def pieces() -> None:
            for piece in (
                b"Current thread 0x01 (most recent call first):\n",
                b'  File "/a/b.py", line 5 in ge',
                b"lu\n",
            ):
                os.write(outside, piece)
                time.sleep(0.1)

        threading.Thread(target=pieces).start()

    monkeypatch.setattr(processes, "signal_each", tell)
    assert worker._where() == ": it is in gelu, line 5 of b.py"
    assert worker._kept == b"before"
