"""Commit-reveal time beside the device's own event time, over kernel durations from 10 us to 10 ms.

The worker here is trusted code, so its events are worth comparing with. The judge's figure for the candidate's worker
uses nothing of that worker's events: the constant of a window is measured on the other worker.
"""

from __future__ import annotations

import statistics

import torch

from benchmarks.report import Report, parser
from kerneleval.judge import Judge
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.timing.clock import TimedCell, measure
from kerneleval.judge.timing.pair import TimedCall, TimedMismatch
from kerneleval.judge.windows.buffers import CallLayout, dense
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Candidate, Protocol
from kerneleval.worker.waiting import TimeLimit

_SOURCE = """
import torch

def run(x, repeat):
    y = x
    for _ in range(repeat):
        y = torch.nn.functional.gelu(y)
    return y
"""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    options = made.parse_args()
    candidate = Candidate(files=(("run.py", _SOURCE),), language="torch")
    protocol = Protocol(tier=options.tier)
    with Judge(options.device) as judge:
        report = Report("clock_agreement", judge.machine, options.out)
        first, second = Loaded(judge.pool, candidate, ("run",)), Loaded(judge.pool, candidate, ("run",))
        rows = []
        shapes = ((1024, 1024), (4096, 1024), (16384, 1024), (32768, 1024), (65536, 1024), (131072, 1024))
        points = [(s, 1) for s in shapes] + [(shapes[-1], r) for r in (2, 4, 8, 16, 40)]
        for shape, repeat in points if judge.device.name == "cuda" else [((64, 1024), 1), ((512, 1024), 1)]:
            rows.append(_point(judge, first, second, protocol, shape, repeat))
        report.table(
            ("elements", "calls a window", "window ms", "events us", "verified us", "verified / events", "constant us"),
            [r[:7] for r in rows],
        )
        agreeing = [r[7] for r in rows if abs(r[8] - 1) <= 0.02]
        failing = [r[7] for r in rows if abs(r[8] - 1) > 0.02]
        least = min((d for d in agreeing if d > max(failing, default=0)), default=float("nan"))
        report.say(f"agreement within 2 % from {least / 1e3:.1f} us a call on")
        report.data = {"rows": rows, "agree_from_ns": least}
        report.write()
        first.close()
        second.close()


def _point(judge, first, second, protocol, shape, repeat):
    call = CallLayout(
        args=(dense(shape, "float32"), repeat), grads=(), outputs=((shape, "float32"),), wanted=(), dims={}
    )
    device = judge.device.torch_device

    def draw(seed: int) -> list[torch.Tensor]:
        return [torch.randn(shape, generator=torch.Generator(device=device).manual_seed(seed), device=device)]

    bounds = TimedBounds(relative_rms=1e-5, worst=1e-4)
    cell = TimedCell(call=call, direction="forward", draw=draw, bounds=bounds, arbiter=_unequal)
    run = measure(first.runner, second.runner, cell, protocol, judge.device, session=0, limit=TimeLimit(60.0))
    s = run.samples
    events, verified = statistics.median(s.candidate_event_ns), statistics.median(s.candidate_ns)
    return (
        shape[0] * shape[1], s.calls, f"{s.calls * events / 1e6:.2f}", f"{events / 1e3:.2f}", f"{verified / 1e3:.2f}",
        f"{verified / events:.4f}", f"{s.empty_ns / 1e3:.0f}", events, verified / events,
    )  # fmt: skip


def _unequal(timed: TimedCall) -> None:
    raise TimedMismatch("equal code gave different outputs", {})


if __name__ == "__main__":
    main()
