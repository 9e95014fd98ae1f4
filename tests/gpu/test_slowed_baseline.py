"""Candidates that use the device while the baseline is timed gain nothing by it."""

from __future__ import annotations

import statistics

import pytest

from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, Passed, Protocol

pytestmark = pytest.mark.gpu

WORK = {
    "nothing": "return",
    "products while it waits": "x @ x; torch.cuda.current_stream().synchronize()",
    "much ahead of time": "torch.cuda._sleep(40_000_000); time.sleep(0.02)",
}
"""What a thread does whenever the one that is called waits for the judge."""

GELU = """
import threading
import time

import torch

called = []


def disturb(clock):
    x = torch.randn(4096, 4096, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        while True:
            before = time.clock_gettime(clock)
            time.sleep(5e-4)
            if time.clock_gettime(clock) == before:
                WORK


def gelu(x):
    if not called:
        called.append(time.pthread_getcpuclockid(threading.get_ident()))
        threading.Thread(target=disturb, args=called, daemon=True).start()
    return torch.nn.functional.gelu(x)
"""


def test_work_in_the_baselines_windows_gains_nothing() -> None:
    protocol = Protocol(
        tier="quick",
        dtypes=("float32",),
        directions=("forward",),
        distributions=("standard",),
        categories=("medium", "large"),
        allow=("custom", "mixed", "library"),
    )
    with Judge("cuda") as judge:
        for name, work in WORK.items():
            candidate = Candidate(files=(("gelu.py", GELU.replace("WORK", work)),), language="torch")
            verdict = judge.check(candidate, tasks.find("gelu"), protocol)
            assert verdict.verdict == "passed", (name, verdict.message)
            timings = [cell.outcome.timing for cell in verdict.cells if isinstance(cell.outcome, Passed)]
            both = [time for timing in timings if timing for time in (timing, timing.other) if time]
            untimed = [finding for finding in verdict.findings if finding.message.startswith("no time in")]
            assert both or (untimed and name == "much ahead of time"), (name, verdict.findings)
            assert not [time for time in both if time.claim == "faster"], (name, both)
            assert statistics.median([1.0, *(time.speedup for time in both)]) < 1.25, (name, both)
            calls = [time.speedup for timing in timings if timing for time in (timing.other,) if time]
            assert statistics.mean(calls or [1.0]) < 1.3, (name, calls)
