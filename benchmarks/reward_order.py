"""Rewards of five right kernels of one task that differ in speed alone: are they always in the order of the speeds?

The kernels are one Triton kernel for ``add_rms_norm`` that goes through its rows once, twice, three, four or six times:
3, 1.5, 1, 0.75 and 0.5 times as fast as the third one where the time is that of memory. Every one is judged ``--times``
times in the quick tier, all five before the next time.
"""

from __future__ import annotations

import itertools
import statistics

from benchmarks.report import Report, parser, until_ended
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, Protocol
from kerneleval.scores.common.rewards import of_verdict

KERNEL = '''"""add_rms_norm, {passes} passes, judged for the {number}th time."""
import torch
import triton
import triton.language as tl


@triton.jit
def add_rms_kernel(x, residual, weight, out, total, n, eps, PASSES, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * n
    for _ in range(PASSES):
        s = tl.load(x + row + i, mask=i < n, other=0.0) + tl.load(residual + row + i, mask=i < n, other=0.0)
        w = tl.load(weight + i, mask=i < n, other=0.0)
        tl.store(total + row + i, s, mask=i < n)
        tl.store(out + row + i, s * (1.0 / tl.sqrt(tl.sum(s * s, 0) / n + eps)) * w, mask=i < n)


def add_rms_norm(x, residual, weight, eps):
    x, residual, weight = x.contiguous(), residual.contiguous(), weight.contiguous()
    out, total = torch.empty_like(x), torch.empty_like(x)
    rows, n = x.shape
    if x.numel():
        block = triton.next_power_of_2(n)
        warps = max(1, min(16, block // 256))
        add_rms_kernel[(rows,)](x, residual, weight, out, total, n, eps, {passes}, BLOCK=block, num_warps=warps)
    return out, total
'''
PASSES = (6, 4, 3, 2, 1)
"""From the slowest kernel to the fastest."""

_FEW = 8
"""Cells of fewer degrees of freedom are told one by one."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--times", type=int, default=10)
    made.add_argument("--tier", default="quick")
    options = made.parse_args()
    chosen = {"dtypes": ("float32",), "directions": ("forward",), "distributions": ("standard",)}
    protocol = Protocol(tier=options.tier, **chosen)
    task = tasks.find("add_rms_norm")
    rewards: dict[int, list[float]] = {passes: [] for passes in PASSES}
    speedups: dict[int, list[float]] = {passes: [] for passes in PASSES}
    refused: list[str] = []
    with Judge(options.device) as judge:
        report = Report("reward_order", judge.machine, options.out)
        with until_ended():
            for number, passes in itertools.product(range(options.times), PASSES):
                text = KERNEL.format(passes=passes, number=number)
                candidate = Candidate(files=(("add_rms_norm.py", text),), language="triton")
                verdict = judge.check(candidate, task, protocol)
                if verdict.verdict != "passed" or verdict.speedup is None:
                    refused.append(f"{passes} passes, {number}: {verdict.reason}: {verdict.message}"[:200])
                    continue
                rewards[passes].append(of_verdict(verdict).value)
                speedups[passes].append(verdict.speedup.value)
                print(f"{number}: {passes} passes: {rewards[passes][-1]:.3f}, {verdict.seconds:.1f} s", flush=True)
                for cell in verdict.cells:
                    timing = getattr(cell.outcome, "timing", None)
                    if timing is not None and (timing.time == "call" or timing.freedom < _FEW):
                        width, why = timing.high / timing.low - 1, timing.no_device_time
                        print(
                            f"  {cell.case.key}: {timing.time} time, {width:.1%}, {timing.freedom:.0f} degrees; {why}"
                        )
    rows = [
        (passes, f"{statistics.median(speedups[passes]):.3f}", f"{statistics.mean(of):.3f}", f"{min(of):.3f}",
         f"{max(of):.3f}", f"{max(abs(r - statistics.mean(of)) for r in of):.3f}")
        for passes, of in rewards.items() if of
    ]  # fmt: skip
    report.table(("passes", "speedup", "reward", "least", "most", "farthest from the mean"), rows)
    complete = list(zip(*rewards.values(), strict=False))
    kept = sum(list(one) == sorted(one) and len(set(one)) == len(one) for one in complete)
    report.say(f"in the order of the speeds {kept} times of {len(complete)}", *refused)
    report.data = {"rewards": rewards, "speedups": speedups, "in_order": kept, "refused": refused}
    report.write()


if __name__ == "__main__":
    main()
