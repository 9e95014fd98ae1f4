"""The CUDA device on the hardware: what it says of itself, counts, shares and times."""

from __future__ import annotations

import pytest
import torch

from kerneleval import devices, tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, Passed, Protocol

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.version.cuda is None, reason="no NVIDIA GPU"),
]


def test_the_default_is_cuda_and_it_says_what_it_can() -> None:
    device = devices.find("cuda")
    assert device.available() == ""
    assert devices.default() is device
    can = device.capabilities()
    assert (can.sharing, can.events, can.peak_memory, can.streams) == ("ipc", True, True, True)
    assert all(can.computes(dtype) for dtype in ("float64", "float32", "float16", "complex128"))
    if torch.cuda.get_device_capability() >= (8, 9):
        assert can.fp8 and can.tf32 and can.bf16 and can.int8_matrix


def test_peak_memory_is_counted() -> None:
    device = devices.find("cuda")
    device.reset_peak_memory()
    before = device.peak_memory_bytes()
    held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
    del held
    after = device.peak_memory_bytes()
    assert before is not None and after is not None
    assert (64 << 20) <= after - before < (80 << 20)
    device.reset_peak_memory()
    again = device.peak_memory_bytes()
    assert again is not None and again <= after - (64 << 20)


def test_allocations_are_shared_and_freed() -> None:
    device = devices.find("cuda")
    first = device.allocate(1 << 20)  # loads the kernels of fill and sum, which takes memory once
    first.bytes.fill_(3).sum()
    device.release(first)
    free = torch.cuda.mem_get_info()[0]
    arena = device.allocate(256 << 20)
    assert len(bytes.fromhex(arena.handle["ipc"])) == 64
    arena.bytes.fill_(3)
    part = device.own_storage(arena, 512, 64)
    assert (part.untyped_storage().nbytes(), int(part.sum())) == (64, 192)
    device.release(arena)
    assert torch.cuda.mem_get_info()[0] >= free - (32 << 20)


def test_events_and_the_delay() -> None:
    device = devices.find("cuda")
    device.warm_up()
    timer = device.timer()
    timer.start()
    device.delay()
    timer.stop()
    assert 1e6 < timer.elapsed_ns() < 2e7  # some 3 ms


WASTES = """
import torch


def relu(x):
    held = torch.empty(64 << 20, dtype=torch.uint8, device=x.device)
    out = torch.relu(x)
    del held
    return out
"""


def test_a_verdict_tells_the_peak_memory_of_both_sides() -> None:
    candidate = Candidate(files=(("relu.py", WASTES),), language="torch")
    protocol = Protocol(
        tier="quick",
        dtypes=("float32",),
        directions=("forward",),
        distributions=("standard",),
        categories=("small",),
        allow=("library",),
    )
    with Judge("cuda") as judge:
        verdict = judge.check(candidate, tasks.find("relu"), protocol)
    assert verdict.verdict == "passed", verdict.message
    [memory] = [
        c.outcome.evidence["memory"] for c in verdict.cells if isinstance(c.outcome, Passed) and c.outcome.timing
    ]
    assert (64 << 20) <= memory["candidate_bytes"] - memory["baseline_bytes"] < (70 << 20)
