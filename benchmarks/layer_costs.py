"""What each layer of judging costs: time of one verdict with all of them, with each left out, and with none.

``python -m benchmarks.layer_costs [--device cuda] [--rounds 5]``. A warm judge that has the build of C++ in its cache;
all variants in every round, in random order.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator
from unittest import mock

from benchmarks.report import Report, parser
from kerneleval import tasks
from kerneleval.judge import Judge, checks
from kerneleval.judge import judge as judging
from kerneleval.judge.probes.repeats import Repeats
from kerneleval.judge.timing.pair import Pair
from kerneleval.records import Candidate, Protocol

CPP = """#include <cmath>
#include <cstdint>
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
#pragma omp parallel for
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    return 0;
}
"""
TRITON = """import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(out + at, 0.5 * v * (1.0 + tl.erf(v * 0.70710678118654752)), mask=at < n)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    if n:
        _gelu[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
    return out
"""

_CHECKS = ("static", "tampering", "track", "relations", "training")
"""Checks of which each is left out; ``track`` stands for launch evidence and ghost replay."""

VARIANTS = ("all", *_CHECKS, "secret sizes", "repeated calls", "cut windows", "none")
"""``all`` first; the others name what is left out, and ``none`` leaves out everything that can be."""


@contextlib.contextmanager
def without(what: str) -> Iterator[None]:
    """The judge without one layer."""
    every = what == "none"
    names = checks.in_order()
    dropped = _CHECKS if every else (what,)
    kept = [name for name in names if name not in dropped or (every and name == "track")]
    with contextlib.ExitStack() as stack:
        if len(kept) != len(names):
            stack.enter_context(mock.patch.object(checks, "in_order", lambda: kept))
        if every or what == "secret sizes":
            stack.enter_context(mock.patch.object(judging, "secret_shapes", lambda *given: []))
        if every or what == "repeated calls":
            stack.enter_context(mock.patch.object(Repeats, "ordinary", lambda self, case, call_layout: False))
            stack.enter_context(mock.patch.object(Repeats, "strided", lambda self, bound, first: None))
            stack.enter_context(mock.patch.object(Repeats, "pair", lambda self, bound, first: None))
        if every or what == "cut windows":
            stack.enter_context(mock.patch.object(Pair, "cut", lambda *given: None))
        yield


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--rounds", type=int, default=5)
    options = made.parse_args()
    protocol = Protocol(
        tier="quick",
        dtypes=("float32",),
        categories=("tiny", "small", "medium"),
        allow=("custom", "mixed", "library"),
    )
    task = tasks.find("gelu")
    with Judge(options.device) as judge:
        report = Report("layer_costs", judge.machine, options.out)
        judge.noise(protocol)
        judge.pool.make_spare()
        own = ("cpp", "gelu.cpp", CPP) if judge.device.name == "cpu" else ("triton", "gelu.py", TRITON)
        language, file, text = own
        candidate = Candidate(files=((file, text),), language=language)
        seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
        for turn in range(-1, options.rounds):
            for variant in random.sample(VARIANTS, len(VARIANTS)):
                judge.pool.quiet()
                with without(variant):
                    started = time.perf_counter()
                    verdict = judge.check(candidate, task, protocol)
                    took = time.perf_counter() - started
                if verdict.verdict != "passed":
                    raise SystemExit(
                        f"{language} without {variant}: {verdict.stage} {verdict.reason} {verdict.message}"
                    )
                if turn >= 0:  # the first round warms the judge
                    seconds[variant].append(took)
        report.say(f"{language}: {task.name}, quick tier, both directions, {len(verdict.cells)} cells")
        rows = []
        for variant, times in seconds.items():
            saved = [a - b for a, b in zip(seconds["all"], times, strict=True)]
            low, high = min(saved), max(saved)
            share = statistics.median(saved) / statistics.median(seconds["all"])
            left_out = "nothing" if variant == "all" else "all of these but the track" if variant == "none" else variant
            rows.append((left_out, f"{statistics.median(times):.2f}", f"{share:.0%}", f"{low:+.2f} to {high:+.2f}"))
        report.table(("left out", "seconds (median)", "saves", "saves in seconds, least to most"), rows)
        report.data[language] = seconds
        report.write()


if __name__ == "__main__":
    main()
