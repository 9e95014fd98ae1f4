"""While the judge reveals or destroys inputs on a CPU, nothing of a worker runs: no thread, no process of its own."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Candidate
from kerneleval.sandbox import processes
from kerneleval.worker import pausing
from kerneleval.worker.host import WorkerFailure
from kerneleval.worker.pausing import Pauses

BUSY = """
import os
import threading
import torch


def _spin():
    while True:
        pass


threading.Thread(target=_spin, daemon=True).start()
if os.fork() == 0:
    _spin()


def gelu(x):
    return torch.nn.functional.gelu(x)
"""


def _ticks(pids: list[int]) -> int:
    """CPU time of processes with all their threads, in clock ticks."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(f[11]) + int(f[12]) for f in fields)


@pytest.mark.serial
def test_a_paused_worker_does_nothing(tmp_path: Path) -> None:
    candidate = Candidate(files=(("gelu.py", BUSY),), language="torch")
    with Judge("cpu", tmp_path) as judge:
        loaded = Loaded(judge.pool, candidate, ("gelu",))
        worker = loaded.runner.worker
        for _ in range(2):
            with worker.paused():
                family = processes.descendants(worker.pid)
                assert len(family) >= 2, "the candidate and its child"
                time.sleep(0.05)
                before = _ticks(family)
                time.sleep(0.4)
                assert _ticks(family) == before
            time.sleep(0.4)
            assert _ticks(family) > before, "they run again"
        loaded.close()


@pytest.mark.serial
def test_a_process_that_got_the_number_of_an_earlier_one_is_left_alone(tmp_path: Path) -> None:
    """Only the number is the same: it began at another time."""
    candidate = Candidate(files=(("gelu.py", "import torch\n\n\ndef gelu(x):\n    return x\n"),), language="torch")
    with Judge("cpu", tmp_path) as judge, subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            loaded = Loaded(judge.pool, candidate, ("gelu",))
            loaded.runner.worker._pauses._stopped = {stranger.pid: "1"}
            with loaded.runner.worker.paused():
                state = Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state != "T"
            assert stranger.pid not in loaded.runner.worker._pauses._stopped
        finally:
            stranger.kill()


RESUMES = """
import ctypes
import signal
import torch


class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_long), ("signal", ctypes.c_int), ("how", ctypes.c_int), ("rest", ctypes.c_char * 48)]


class Spec(ctypes.Structure):
    _fields_ = [("every", ctypes.c_long * 2), ("first", ctypes.c_long * 2)]


signal.signal(signal.SIGCONT, lambda *args: None)
library = ctypes.CDLL(None)
for number in range(8):  # a stop that comes while the signal of one is on its way ends that one
    timer = ctypes.c_void_p()
    library.timer_create(1, ctypes.byref(Event(0, 18, 0, b"")), ctypes.byref(timer))
    spec = Spec((0, 2_000_000 + 130_000 * number), (0, 2_000_000))
    library.timer_settime(timer, 0, ctypes.byref(spec), None)


def gelu(x):
    return torch.nn.functional.gelu(x)
"""


@pytest.mark.serial
def test_a_worker_that_lets_itself_go_on_has_tampered(tmp_path: Path) -> None:
    """A timer of its own sent SIGCONT, and its threads slowed the baseline down by 2 to 4."""
    candidate = Candidate(files=(("gelu.py", RESUMES),), language="torch")
    with Judge("cpu", tmp_path) as judge:
        loaded = Loaded(judge.pool, candidate, ("gelu",))
        with pytest.raises(WorkerFailure, match="ran while it was stopped") as raised:
            for _ in range(10):  # on a busy machine it may be kept from running, and what never rests is left out
                with loaded.runner.worker.paused():
                    time.sleep(0.05)
        assert raised.value.reason == "tampering"
        loaded.close()


PLAIN = "import torch\n\n\ndef gelu(x):\n    return x\n"


@pytest.mark.serial
@pytest.mark.parametrize(("dispatches", "cpu_ns"), [(0, 10_000_000), (1, 0)])
def test_what_is_counted_late_is_no_tampering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dispatches: int, cpu_ns: int
) -> None:
    """An honest candidate had tampered, once in 1,104 verdicts on a busy machine."""
    late = 0
    activity = processes.activity

    def counted_late(pid: int) -> processes.Activity:
        done = activity(pid)
        return processes.Activity(done.dispatches + late * dispatches, done.cpu_ns + late * cpu_ns)

    monkeypatch.setattr(processes, "activity", counted_late)
    candidate = Candidate(files=(("gelu.py", PLAIN),), language="torch")
    with Judge("cpu", tmp_path) as judge:
        loaded = Loaded(judge.pool, candidate, ("gelu",))
        for _ in range(2):
            with loaded.runner.worker.paused():
                late += 1
        with pytest.raises(WorkerFailure, match="ran while it was stopped"):
            for _ in range(10):
                with loaded.runner.worker.paused():
                    late += 1
        loaded.close()


@pytest.mark.serial
def test_a_process_that_stays_stopped_is_never_taken_for_one_that_ran() -> None:
    """However often it is stopped, and with threads that compute."""
    code = "import threading\nfor _ in range(3): threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()"
    with subprocess.Popen([sys.executable, "-c", code]) as busy:
        try:
            time.sleep(0.3)
            pauses = Pauses()
            for _ in range(20):
                pauses.stop(lambda: [busy.pid])
                time.sleep(0.02)
                pauses.look()
                pauses.release()
            assert pauses.offence is None
        finally:
            busy.kill()


@pytest.mark.serial
def test_a_process_that_was_let_go_on_is_seen_however_little_it_does() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            pauses = Pauses()
            for _ in range(10):
                pauses.stop(lambda: [sleeper.pid])
                sleeper.send_signal(signal.SIGCONT)
                time.sleep(0.02)
                pauses.look()
                pauses.release()
            assert pauses.offence is not None
            assert pauses.offence[0] == "tampering"
        finally:
            sleeper.kill()


def test_processes_that_are_never_all_known_are_told_within_a_bound() -> None:
    """A chain of clones outruns every look: each is gone when it is known."""
    numbers = itertools.count(1 << 23)  # no process has such a number
    pauses = Pauses()
    pauses.stop(lambda: [next(numbers)])
    assert pauses.offence is not None
    assert pauses.offence[0] == "tampering"
    assert next(numbers) < (1 << 23) + 100


def test_the_threads_of_many_processes_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "thread_states", lambda _pid: "D")
    monkeypatch.setattr(pausing, "_REST_S", 0.05)
    began = time.monotonic()
    Pauses().stop(lambda: range(1 << 23, (1 << 23) + 200))
    assert time.monotonic() - began < 5  # 10 s one by one


@pytest.mark.parametrize(("states", "ends"), [("TD", True), ("TR", False), ("T", False)])
def test_only_threads_that_no_signal_stops_use_up_patience(
    monkeypatch: pytest.MonkeyPatch, states: str, ends: bool
) -> None:
    """On a busy machine threads wait long for a processor."""
    monkeypatch.setattr(pausing, "_REST_S", 0.02)
    monkeypatch.setattr(pausing, "_UNREST_S", 0.1)
    monkeypatch.setattr(processes, "thread_states", lambda _pid: states)
    pauses = Pauses()
    for _ in range(10):
        pauses.stop(lambda: [1 << 23])
        pauses.release()
    assert (pauses.offence is not None) == ends
    assert not ends or pauses.offence == ("timeout", pauses.offence[1])


@pytest.mark.serial
def test_what_a_block_raises_is_not_hidden(tmp_path: Path) -> None:
    candidate = Candidate(files=(("gelu.py", RESUMES),), language="torch")
    with Judge("cpu", tmp_path) as judge:
        loaded = Loaded(judge.pool, candidate, ("gelu",))
        with pytest.raises(ZeroDivisionError), loaded.runner.worker.paused():
            raise ZeroDivisionError
        loaded.close()
