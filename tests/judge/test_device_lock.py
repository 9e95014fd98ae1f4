"""Judges side by side on one piece of hardware measure one after another."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kerneleval import devices
from kerneleval.judge import judge as judges_module
from kerneleval.judge.machine import peaks
from kerneleval.judge.timing import clock, statistics, timer
from kerneleval.judge.windows import locks as lock_module
from kerneleval.judge.windows.locks import _mine as lock_of_this_thread
from kerneleval.judge.windows.locks import device_lock, judge_count, registered
from kerneleval.pipeline import check
from kerneleval.records import InfrastructureError, Machine, Peak, Protocol

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not run: names of sockets are Linux's")

HOLDS = """
import sys, time
from kerneleval.judge.windows.locks import device_lock
with device_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def hardware() -> str:
    return f"a GPU {uuid.uuid4()}"


def holder(hardware: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDS, hardware, str(seconds)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


def until(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.005)


def taken_by(hardware: str) -> list[str]:
    return [path for path in lock_module._names() if path.startswith(lock_module._name(hardware))]


def in_line(hardware: str) -> int:
    return sum("/line/" in path for path in taken_by(hardware))


@pytest.mark.slow
def test_one_waits_for_the_other_and_for_nobody_elsewhere(hardware: str) -> None:
    with holder(hardware, 0.5) as process:
        with device_lock(f"another, not {hardware}", patience_s=0.1):
            assert process.poll() is None
        with device_lock(hardware, patience_s=30):
            assert process.wait(timeout=30) == 0  # it was past its block


def test_a_turn_ends_with_its_process(hardware: str) -> None:
    with holder(hardware, 600) as process:
        threading.Timer(0.2, process.kill).start()
        with device_lock(hardware, patience_s=30):
            assert process.wait(timeout=30) == -9


def test_whoever_keeps_it_too_long_is_named(hardware: str) -> None:
    with holder(hardware, 600) as process:
        with pytest.raises(
            InfrastructureError,
            match=rf"^process {process.pid} has held the lock of {hardware} for 0\.2 s .*/proc/net/unix",
        ):
            device_lock(hardware, patience_s=0.2).__enter__()
        process.kill()


def test_threads_take_turns_too_and_a_turn_holds_what_is_nested_in_it(hardware: str) -> None:
    inside: list[int] = []

    def measure(_number: int) -> None:
        with device_lock(hardware, patience_s=30), device_lock(hardware, patience_s=0.0):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(measure, range(12)))
    with pytest.raises(RuntimeError, match="wrong"), device_lock(hardware):
        raise RuntimeError("wrong")
    with device_lock(hardware, patience_s=0.0):
        pass


@pytest.mark.parametrize("listed", [True, False])
def test_many_short_turns_exhaust_nobodys_patience(
    hardware: str, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve wait longer than they have patience with one: it is counted anew when the turn is another's."""
    if not listed:
        monkeypatch.setattr(lock_module, "_names", dict)
    waited: list[float] = []
    begin = threading.Barrier(12)

    def measure(_number: int) -> None:
        begin.wait()
        began = time.monotonic()
        with device_lock(hardware, patience_s=1):
            waited.append(time.monotonic() - began)
            time.sleep(0.15)

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(measure, range(12)))
    assert len(waited) == 12 and max(waited) > 1


def test_first_come_first_served(hardware: str) -> None:
    order: list[int] = []

    def measure(number: int) -> None:
        with device_lock(hardware, patience_s=30):
            order.append(number)

    with ThreadPoolExecutor(6) as pool:
        with device_lock(hardware, patience_s=0.0):
            for number in range(6):
                pool.submit(measure, number)
                until(lambda count=number + 1: in_line(hardware) == count)
        pool.shutdown()
    assert order == list(range(6))


def test_a_long_turn_is_offered(hardware: str) -> None:
    order: list[str] = []

    def other() -> None:
        with device_lock(hardware, patience_s=30):
            order.append("other")
            time.sleep(0.1)

    with device_lock(hardware) as offer:
        thread = threading.Thread(target=other)
        thread.start()
        until(lambda: in_line(hardware) == 1)
        assert offer() == 0  # not held for long
        order.append("still mine")
        lock_of_this_thread.lock._offered -= 60
        assert 0.1 < offer() < 20
        order.append("mine again")
        with pytest.raises(InfrastructureError), ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: device_lock(hardware, patience_s=0.1).__enter__()).result()
    thread.join()
    assert order == ["still mine", "other", "mine again"]


def test_whoever_waits_for_what_is_found_out_is_not_let_go_first(hardware: str) -> None:
    with device_lock(hardware, whole=True), device_lock(hardware) as offer, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: device_lock(hardware, patience_s=1.0).__enter__())
        until(lambda: in_line(hardware) == 1)
        lock_of_this_thread.lock._offered -= 60
        assert offer() == 0
        with pytest.raises(InfrastructureError):
            waiting.result()


@pytest.mark.slow
def test_a_process_that_is_stopped_in_the_line_blocks_nobody(hardware: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_STOPPED_S", 0.5)
    with device_lock(hardware):
        first = subprocess.Popen([sys.executable, "-c", HOLDS, hardware, "0"], stdout=subprocess.PIPE)
        until(lambda: in_line(hardware) == 1)
        first.send_signal(signal.SIGSTOP)
    try:
        with device_lock(hardware, patience_s=30):
            pass
    finally:
        first.send_signal(signal.SIGCONT)
        with first:
            assert first.wait(timeout=30) == 0


def test_waiting_costs_no_processor(hardware: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers a connection: one for each look filled the holder's list of them, and every look then failed."""
    looks: list[int] = []
    real = lock_module._names

    def counted() -> dict[str, str]:
        looks.append(1)
        return real()

    monkeypatch.setattr(lock_module, "_LOOK_S", 0.01)
    monkeypatch.setattr(lock_module, "_names", counted)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as holder_of_few:
        holder_of_few.bind(f"\0{lock_module._name(hardware)}/turn")
        holder_of_few.listen(2)
        began = time.process_time()
        with pytest.raises(InfrastructureError, match=rf"^process {os.getpid()} has held the lock"):
            device_lock(hardware, patience_s=1.0).__enter__()
        assert len(looks) <= 110 and time.process_time() - began < 0.5


def test_no_descriptor_left_is_the_machines_failure(hardware: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(lock_module.socket, "socket", none_left)
    with pytest.raises(InfrastructureError, match="Too many open files"):
        device_lock(hardware).__enter__()
    with pytest.raises(InfrastructureError, match="Too many open files"):
        lock_module._Wait().for_end_of("anybody", 0.1)


def test_judges_are_counted_while_they_build(judge: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    counted: list[int] = []
    real = judges_module.Loaded

    def built(*args: Any, **options: Any) -> Any:
        counted.append(judge_count(judge.device.hardware()))
        return real(*args, **options)

    monkeypatch.setattr(judges_module, "Loaded", built)
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    case = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"], "timed": False}
    check(path, "gelu", judge=judge, allow=("library",), **case)
    monkeypatch.setattr(judge.pool, "build_ahead", lambda *_: counted.append(judge_count(judge.device.hardware())))
    judge.build_ahead([])
    assert len(counted) == 2 and min(counted) >= 1  # other tests may judge beside this one


def test_a_fork_takes_no_turn_with_it(hardware: str) -> None:
    """As when a trainer forks its loaders while a thread of it judges."""
    with device_lock(hardware), registered(hardware):
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
    try:
        with device_lock(hardware, patience_s=30):
            until(lambda: judge_count(hardware) == 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_name_without_a_listener_is_waited_for_with_patience_alone(hardware: str) -> None:
    with device_lock(hardware):
        (name,) = [path for path in lock_module._names() if path.endswith("/turn") and path in taken_by(hardware)]
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile:
        hostile.bind(f"\0{name}")
        with pytest.raises(InfrastructureError, match=r"^another process has held the lock"):
            device_lock(hardware, patience_s=0.3).__enter__()


def test_nobody_is_taken_for_whoever_was_waited_for_before(hardware: str) -> None:
    """Nor do refusals ever count too far: the pause after each grew until no float had room for it, within a minute."""
    wait = lock_module._Wait()
    with device_lock(hardware):
        (name,) = [path for path in taken_by(hardware) if path.endswith("/turn")]
        assert not wait.for_end_of(name, 0.01) and wait.process == os.getpid()
    wait._refused = 5000
    assert not wait.for_end_of(f"{name}/nobody", 0.01)
    assert wait.process == 0 and wait._refused == 5001


def test_judges_of_a_hardware_are_counted(hardware: str) -> None:
    assert judge_count(hardware) == 0
    with registered(hardware), registered(hardware):
        assert judge_count(hardware) == 2 and judge_count(f"not {hardware}") == 0
    assert judge_count(hardware) == 0


@pytest.mark.slow
def test_beside_other_judges_a_verdict_says_so_and_rests_on_the_scatter_of_its_own_blocks(
    judge: Any, tmp_path: Path
) -> None:
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    options: Any = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    options["distributions"] = ["standard"]
    judge.noise(Protocol(tier="quick"))
    with registered(judge.device.hardware()), registered(judge.device.hardware()):
        verdict = check(path, "gelu", judge=judge, tier="quick", allow=("library",), **options)
    assert verdict.verdict == "passed", verdict.message
    (said,) = [f for f in verdict.findings if f.check == "conditions" and "other judge" in f.message]
    assert said.level == "warn"
    assert re.search(r"unsteady machine: \d+ other judges built and checked on this hardware", said.message)
    assert verdict.conditions.first["other_judges"] >= 2
    timings = [c.outcome.timing for c in verdict.cells if getattr(c.outcome, "timing", None)]
    assert timings and all(len(timing.samples.candidate_ns) >= 2 * statistics.FEW for timing in timings)


def test_devices_are_told_apart_by_their_hardware() -> None:
    assert devices.find("cpu").hardware() == devices.find("opencl").hardware()  # the same processors
    found = {devices.find(name).hardware() for name in devices.names() if not devices.find(name).available()}
    assert all(found)


def test_what_two_judges_want_to_know_is_measured_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, hardware: str
) -> None:
    machine = Machine(
        device="cpu", name=hardware, arch="x", memory_bytes=1, cache_bytes=1, units=1, driver="0", torch="2"
    )
    device: Any = SimpleNamespace(hardware=lambda: hardware, torch_device="cpu")
    measured: list[str] = []

    def measure(_device: object, _machine: object, name: str, _room: object = None) -> Peak:
        time.sleep(0.05)
        measured.append(name)
        return Peak(name=name, unit="B/s", best=1.0, median=1.0, n=1, how="", date="")

    def figures(*_: object) -> timer.NoiseFigures:
        time.sleep(0.05)
        measured.append("noise")
        return timer.NoiseFigures(call=(statistics.Noise(spread=0.0, between=0.0),) * len(timer.CLASSES_NS), device=())

    monkeypatch.setattr(peaks, "measure", measure)
    monkeypatch.setattr(timer, "measure_noise", figures)
    pool: Any = SimpleNamespace(device=device, machine=machine, cache_dir=tmp_path)
    begin = threading.Barrier(3)

    def ask(_number: int) -> tuple[Any, Any]:
        begin.wait()
        return peaks.known(device, machine, tmp_path, ("copy", "read")), timer.floor(pool, "quick")

    with ThreadPoolExecutor(3) as executor:
        answers = list(executor.map(ask, range(3)))
    assert sorted(measured) == ["copy", "noise", "read"]
    assert answers[0] == answers[1] == answers[2]
    assert [json.loads(path.read_text()) for path in (tmp_path / "noise").iterdir()]


@pytest.mark.slow
def test_cells_are_measured_within_a_turn_but_for_the_calls_that_may_compile(
    monkeypatch: pytest.MonkeyPatch, judge: Any, tmp_path: Path
) -> None:
    turns: list[tuple[str, str]] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            mine = getattr(lock_of_this_thread, "lock", None)
            turns.append((name, mine.hardware if mine else ""))
            return function(*args, **options)

        return call

    judge.noise(Protocol(tier="quick"))  # measured before anything is watched
    monkeypatch.setattr(clock.Pair, "first_calls", watched("first calls", clock.Pair.first_calls))
    monkeypatch.setattr(clock, "_in_blocks", watched("blocks", clock._in_blocks))
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    options: Any = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    verdict = check(path, "gelu", judge=judge, tier="quick", allow=("library",), **options)
    assert verdict.verdict == "passed", verdict.message
    assert set(turns) == {("first calls", ""), ("blocks", judge.device.hardware())}


def test_seconds_in_which_others_measured_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def window(_pair: clock.Pair, runner: str, _image: object) -> Any:
        made.append(runner)
        time.sleep(0.01)
        return SimpleNamespace(elapsed_ns=2.0 ** len(made))

    monkeypatch.setattr(clock.Pair, "once", window)
    anything: Any = None
    pair = clock.Pair(
        candidate="mine", baselines=("theirs", "twin"), candidate_first=True, generator=anything, limit=anything
    )  # type: ignore[arg-type]
    pair.warm(anything, 6, 0.005, lambda: 0.0)
    assert made == ["mine", "theirs", "twin"]
    pair.warm(anything, 6, 0.005, lambda: 0.02)
    assert made[3:] == ["mine"] * 6 + ["theirs"] * 6 + ["twin"] * 6
