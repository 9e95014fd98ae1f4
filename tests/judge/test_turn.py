"""Judges side by side on one piece of hardware measure one after another."""

from __future__ import annotations

import json
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
from kerneleval.judge import clock, noise, peaks
from kerneleval.judge.turn import _mine as turn_of_this_thread
from kerneleval.judge.turn import turn
from kerneleval.pipeline import check
from kerneleval.records import InfrastructureError, Machine, Peak, Protocol

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="not run: names of sockets are Linux's")

HOLDS = """
import sys, time
from kerneleval.judge.turn import turn
with turn(sys.argv[1]):
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


def test_one_waits_for_the_other_and_for_nobody_elsewhere(hardware: str) -> None:
    with holder(hardware, 0.5):
        with turn(f"another, not {hardware}", patience_s=0.1):
            pass
        with turn(hardware, patience_s=30):
            pass


def test_a_turn_ends_with_its_process(hardware: str) -> None:
    with holder(hardware, 600) as process:
        process.kill()
        with turn(hardware, patience_s=30):
            pass


def test_whoever_keeps_it_too_long_is_named(hardware: str) -> None:
    with holder(hardware, 600) as process:
        with pytest.raises(InfrastructureError, match=rf"measuring on {hardware} for 0\.2 s .* in /proc/net/unix"):
            turn(hardware, patience_s=0.2).__enter__()
        process.kill()


def test_threads_take_turns_too_and_a_turn_holds_what_is_nested_in_it(hardware: str) -> None:
    inside: list[int] = []

    def measure(_number: int) -> None:
        with turn(hardware, patience_s=30), turn(hardware, patience_s=0.0):
            inside.append(1)
            assert len(inside) == 1
            time.sleep(0.01)
            inside.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(measure, range(12)))
    with pytest.raises(RuntimeError, match="wrong"), turn(hardware):
        raise RuntimeError("wrong")
    with turn(hardware, patience_s=0.0):
        pass


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

    def figures(*_: object) -> tuple[noise.Noise, ...]:
        time.sleep(0.05)
        measured.append("noise")
        return (noise.Noise(spread=0.0, between=0.0),) * len(noise.CLASSES_NS)

    monkeypatch.setattr(peaks, "measure", measure)
    monkeypatch.setattr(noise, "measure_noise", figures)
    bench: Any = SimpleNamespace(device=device, machine=machine, cache_dir=tmp_path)
    begin = threading.Barrier(3)

    def ask(_number: int) -> tuple[Any, Any]:
        begin.wait()
        return peaks.known(device, machine, tmp_path, ("copy", "read")), noise.floor(bench, "quick")

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(ask, range(3)))
    assert sorted(measured) == ["copy", "noise", "read"]
    assert answers[0] == answers[1] == answers[2]
    assert [json.loads(path.read_text()) for path in (tmp_path / "noise").iterdir()]


def test_cells_are_measured_within_a_turn_but_for_the_calls_that_may_compile(
    monkeypatch: pytest.MonkeyPatch, judge: Any, tmp_path: Path
) -> None:
    turns: list[tuple[str, str]] = []

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            turns.append((name, getattr(turn_of_this_thread, "hardware", "")))
            return function(*args, **options)

        return call

    judge.noise(Protocol(tier="quick"))  # measured before anything is watched
    monkeypatch.setattr(clock.Pair, "first_calls", watched("first calls", clock.Pair.first_calls))
    monkeypatch.setattr(clock, "_in_quads", watched("quads", clock._in_quads))
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    options: Any = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    verdict = check(path, "gelu", judge=judge, tier="quick", allow=("library",), **options)
    assert verdict.verdict == "passed", verdict.message
    assert set(turns) == {("first calls", ""), ("quads", judge.device.hardware())}
