"""Candidates per second of ``Rewarder``, as a trainer asks: a batch of new small kernels at once, one warm judge.

Of each four one is right, one is wrong where the size is no multiple of its block, one does not compile and one is
right again, at another block size; every candidate is new text. Triton where there is a GPU, C++ on the CPU. With
``--kernelbench DIR`` (a checkout) KernelBench's own evaluation of equal kernels stands beside it, each in a process of
its own, as its scripts run them, and in one that stays.
"""

from __future__ import annotations

import collections
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.check_latency import GELU, kernelbench_script
from benchmarks.report import Report, parser
from kerneleval import Rewarder

_CPP = """
#include <cmath>
#include <cstdint>

// variant {variant}
extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {{
    const int64_t n = M * N {cut};
#pragma omp parallel for simd if (n > 65536)
    for (int64_t i = 0; i < n; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
    return 0;
}}
"""

KINDS = ("right", "wrong", "broken", "right")


def source(device: str, number: int) -> str:
    """The candidate of that number, text that no other has."""
    kind = KINDS[number % len(KINDS)]
    if device == "cpu":
        text = _CPP.format(variant=number, cut="/ 8 * 8" if kind == "wrong" else "")
        return text.replace("return 0;", "return 0") if kind == "broken" else text
    text = GELU.format(variant=number, block=(1024, 512)[number % 2])
    if kind == "wrong":
        text = text.replace("triton.cdiv(n, ", "max(1, n // ")
    return text.replace("tl.load(x_ptr + offsets", "tl.load(x_pointer + offsets") if kind == "broken" else text


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--candidates", type=int, default=24, help="in each batch")
    made.add_argument("--batches", type=int, default=3, help="for each set of directions")
    made.add_argument("--kernelbench", type=Path, default=None, help="checkout of KernelBench")
    options = made.parse_args()
    number = 1
    report = None
    for name, directions in (("forward and backward", ()), ("forward", ("forward",))):
        started = time.perf_counter()
        with Rewarder(options.device, directions=directions) as rewarder:
            if report is None:
                report = Report("reward_throughput", rewarder.machine, options.out)
            language = "cpp" if rewarder.machine.device == "cpu" else "triton"
            rewarder(source(rewarder.machine.device, 0), "gelu", language=language)
            warm_s = time.perf_counter() - started
            report.say(f"{name}: warm after {warm_s:.1f} s, the first reward included")
            rates, rows = [], []
            for _ in range(options.batches):
                seconds, found = _batch(rewarder, range(number, number + options.candidates), language)
                number += options.candidates
                rates.append(options.candidates / seconds)
                rows += found
        report.table(("candidates", "number", "cells", "s in the judge (median)", "rewards", "reasons"), _by_kind(rows))
        median = statistics.median(rates)
        report.say(
            f"{name}: {options.batches} batches of {options.candidates}: {', '.join(f'{r:.2f}' for r in rates)} "
            f"candidates per second, {median:.2f} in the median ({1 / median:.2f} s each)"
        )
        report.data[name] = {"candidates_per_s": rates, "candidates": rows}
    assert report is not None
    if options.kernelbench is not None:
        _kernelbench(report, options.kernelbench)
    report.write()


def _batch(rewarder: Rewarder, numbers: range, language: str) -> tuple[float, list[dict[str, Any]]]:
    """Wall seconds of a batch, and what came of each candidate."""
    begun = time.perf_counter()
    device = rewarder.machine.device
    futures = {n: rewarder.submit(source(device, n), "gelu", language=language) for n in numbers}
    rewards = {n: future.result() for n, future in futures.items()}
    seconds = time.perf_counter() - begun
    return seconds, [
        {
            "kind": KINDS[n % len(KINDS)],
            "value": reward.value,
            "reason": reward.verdict.reason,
            "cells": len(reward.verdict.cells),
            "seconds": reward.verdict.seconds,
        }
        for n, reward in rewards.items()
    ]


def _by_kind(rows: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    table: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(KINDS):
        of = [row for row in rows if row["kind"] == kind]
        reasons = collections.Counter(row["reason"] for row in of)
        values = [row["value"] for row in of]
        each = statistics.median(row["seconds"] for row in of)
        told = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
        cells = str(max(row["cells"] for row in of))
        table.append((kind, str(len(of)), cells, f"{each:.2f}", f"{min(values):.2f} to {max(values):.2f}", told))
    return table


def _kernelbench(report: Report, checkout: Path) -> None:
    """Its evaluation, which is of one shape, forward: three processes of one candidate, then three in one process."""
    seconds = []
    for number in range(3):
        started = time.perf_counter()
        line, error = _theirs(checkout, candidates=1, variant=number)
        if not line:
            report.say(f"KernelBench: not run: {error}")
            return
        seconds.append(time.perf_counter() - started)
    line, _ = _theirs(checkout, candidates=3, variant=10)
    told = ", ".join(f"{s:.1f}" for s in seconds)
    report.say(f"KernelBench, a process for each candidate, one shape: {told} s; three in one, without start: {line}")
    report.data["kernelbench"] = {"process_s": seconds, "in_one_process": line}


def _theirs(checkout: Path, *, candidates: int, variant: int) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "theirs.py"
        path.write_text(kernelbench_script(checkout, candidates=candidates, variant=variant))
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
    return line[7:], done.stderr.strip()[-400:]


if __name__ == "__main__":
    main()
