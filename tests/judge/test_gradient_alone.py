"""Backward times: forward calls are in both, or, where the candidate has an entry point for gradients, in neither."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.timing import clock
from kerneleval.judge.timing.effort import HOST_TIERS
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout, dense
from kerneleval.judge.windows.protocol import CallMode, Cut, Window, output_views
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Candidate, Protocol
from kerneleval.worker.waiting import TimeLimit

FORWARD_S = 0.05
SLOW_FORWARD = f"""import time

import torch


def gelu(x):
    time.sleep({FORWARD_S})
    return torch.nn.functional.gelu(x)
"""
EXPLICIT = """import torch


def gelu(x):
    return torch.nn.functional.gelu(x)


def gelu_backward(grad, x):
    return torch.ops.aten.gelu_backward(grad, x)
"""
CALLS = 4


@pytest.fixture
def slow(judge: Judge) -> Loaded:
    loaded = Loaded(judge.pool, Candidate(files=(("gelu.py", SLOW_FORWARD),), language="torch"), ("gelu",))
    yield loaded
    loaded.close()


def window_of(loaded: Loaded, judge: Judge, **options: object) -> tuple[Window, WindowBuffer]:
    slot = dense((6, 50), "float32")
    outputs = (((6, 50), "float32"),)
    call = CallLayout(args=(slot,), grads=(slot,), outputs=outputs, wanted=(0,), dims={})
    content = [[torch.randn(6, 50) for _ in range(2)] for _ in range(CALLS)]
    buffer = WindowBuffer(WindowLayout([call] * CALLS, "backward"), judge.device, content)
    return loaded.runner.window(buffer, limit=TimeLimit(30.0), check_mutation=True, **options), buffer


def right(window: Window, buffer: WindowBuffer) -> bool:
    for index in range(CALLS):
        x, grad = (buffer.tensor(index, place) for place in range(2))
        (got,) = output_views(window, buffer.layout, index)
        if not torch.allclose(got, torch.ops.aten.gelu_backward(grad, x), rtol=1e-4, atol=1e-5):
            return False
    return True


@pytest.mark.parametrize("cut", [None, Cut(at=2)])
def test_forward_calls_come_before_the_clock(slow: Loaded, judge: Judge, cut: Cut | None) -> None:
    both, buffer = window_of(slow, judge, cut=cut)
    assert right(both, buffer) and both.elapsed_ns > CALLS * FORWARD_S * 1e9
    alone, buffer = window_of(slow, judge, cut=cut, mode=CallMode(gradient_alone=True))
    assert right(alone, buffer) and not alone.mutated
    if cut is None:
        assert max(alone.elapsed_ns, alone.event_ns) < FORWARD_S * 1e9
    again, buffer = window_of(slow, judge)
    assert right(again, buffer) and again.elapsed_ns > CALLS * FORWARD_S * 1e9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "direction", "alone"),
    [(EXPLICIT, "backward", True), (EXPLICIT, "forward", False), (SLOW_FORWARD, "backward", False)],
)
def test_the_baseline_is_timed_as_the_candidate_is(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, direction: str, alone: bool
) -> None:
    seen = []
    measure = clock.measure

    def watched(candidate, baseline, cell, *args, **options):
        seen.append(cell.gradient_alone)
        return measure(candidate, baseline, cell, *args, **options)

    path = tmp_path / "gelu.py"
    path.write_text(text.replace(str(FORWARD_S), "0"))
    judge.noise(Protocol(tier="quick"))  # measured by the same function
    monkeypatch.setattr(clock, "measure", watched)
    few = {"dtypes": ("float32",), "directions": (direction,), "categories": ("small",), "tier": "quick"}
    verdict = pipeline.check(path, "gelu", judge=judge, allow=("library",), **few)
    assert verdict.verdict == "passed", verdict.message
    assert seen and set(seen) == {alone}


def test_graphs_take_room(judge: Judge) -> None:
    a_hundredth = judge.device.memory_budget_bytes() // 2 // 400
    call = CallLayout(args=(dense((a_hundredth,), "float32"),), grads=(), outputs=(), wanted=(), dims={})
    effort = HOST_TIERS["quick"]

    def most(alone: bool, peak_bytes: float = 0.0) -> int:
        bounds = TimedBounds(relative_rms=1e-6, worst=1e-5)
        cell = clock.TimedCell(
            call=call, direction="backward", draw=lambda seed: [], bounds=bounds, arbiter=print, gradient_alone=alone
        )
        return clock._most_calls(cell, effort, judge.device, peak_bytes)

    assert 95 <= most(False) <= 100
    assert most(True) == most(True, peak_bytes=call.nbytes) == most(False) // 4
    assert most(True, peak_bytes=10 * call.nbytes) == most(False) // 10
    assert most(False, peak_bytes=10 * call.nbytes) == most(False)
