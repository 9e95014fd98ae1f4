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
    made.add_argument("--candidates", type=int, default=64, help="in each batch")
    made.add_argument("--batches", type=int, default=3)
    made.add_argument("--kernelbench", type=Path, default=None, help="checkout of KernelBench")
    options = made.parse_args()
    started = time.perf_counter()
    with Rewarder(options.device) as rewarder:
        report = Report("reward_throughput", rewarder.machine, options.out)
        device = rewarder.machine.device
        language = "cpp" if device == "cpu" else "triton"
        first = rewarder(source(device, 0), "gelu", language=language)
        report.say(f"warm after {time.perf_counter() - started:.1f} s, the first reward ({first.value:.2f}) included")
        rates, number = [], 1
        rows = []
        for batch in range(options.batches):
            begun = time.perf_counter()
            futures = []
            for _ in range(options.candidates):
                futures.append((number, rewarder.submit(source(device, number), "gelu", language=language)))
                number += 1
            found = [(KINDS[n % len(KINDS)], future.result()) for n, future in futures]
            seconds = time.perf_counter() - begun
            rates.append(options.candidates / seconds)
            for kind in dict.fromkeys(KINDS):
                of = [reward for k, reward in found if k == kind]
                reasons = collections.Counter(r.verdict.reason for r in of)
                each = statistics.median(r.verdict.seconds for r in of)
                values = f"{min(r.value for r in of):.2f} to {max(r.value for r in of):.2f}"
                rows.append((batch, kind, len(of), f"{each:.2f}", values, dict(reasons)))
        report.table(("batch", "candidates", "number", "s in the judge (median)", "rewards", "reasons"), rows)
        report.say(
            f"{options.batches} batches of {options.candidates}: {', '.join(f'{r:.2f}' for r in rates)} candidates per "
            f"second, {statistics.median(rates):.2f} in the median ({1 / statistics.median(rates):.2f} s each)"
        )
        report.data = {"candidates_per_s": rates, "rows": rows}
    if options.kernelbench is not None:
        _kernelbench(report, options.kernelbench)
    report.write()


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
