"""Where threads of a worker run: OpenMP's on a processor each, a candidate's own wherever it likes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kerneleval.devices.cpu import SPIN_COUNT
from kerneleval.judge import Judge
from kerneleval.pipeline import check

SEVERAL = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor: nothing to spread over")

HELPERS = r"""
#include <cmath>
#include <cstdint>
#include <omp.h>
#include <sched.h>

extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    cpu_set_t mine;
    int shared = 0;
#pragma omp parallel reduction(+ : shared) private(mine)
    {
        sched_getaffinity(0, sizeof mine, &mine);
        if (omp_get_thread_num() > 0 && CPU_COUNT(&mine) != 1) shared++;
        if (omp_get_thread_num() > 0 && CPU_ISSET(FIRST, &mine)) shared++;
    }
    if (shared || omp_get_max_threads() < 2) return 7;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    return 0;
}
"""

OWN = r"""
#include <cmath>
#include <cstdint>
#include <sched.h>
#include <thread>

extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    int seen = 0;
    std::thread([&] { cpu_set_t s; sched_getaffinity(0, sizeof s, &s); seen = CPU_COUNT(&s); }).join();
    if (seen != ALL || std::thread::hardware_concurrency() != ALL) return 7;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    return 0;
}
"""


@pytest.mark.serial  # beside other tests workers have one thread
@SEVERAL
@pytest.mark.parametrize("source", [HELPERS, OWN], ids=["helpers are bound", "other threads are free"])
def test_threads_of_a_candidate(tmp_path: Path, source: str) -> None:
    processors = os.sched_getaffinity(0)
    file = tmp_path / "gelu.cpp"
    file.write_text(source.replace("FIRST", str(min(processors))).replace("ALL", str(len(processors))))
    with Judge("cpu", tmp_path / "cache") as judge:
        verdict = check(
            file, "gelu", judge=judge, dtypes=["float32"], directions=["forward"], categories=["tiny"], timed=False
        )
    assert verdict.verdict == "passed", verdict.message


SPIN = """
import os, sys
if sys.argv[1] == "ours":
    from kerneleval import __main__, cli
    cli.main = lambda: 0
    __main__.main()
from kerneleval.devices.cpu import _spin_s, own_threads
with own_threads():  # as where the judge reveals inputs
    spin_s = _spin_s()
print(spin_s, os.environ.get("GOMP_SPINCOUNT", ""))
"""


@SEVERAL
@pytest.mark.serial
def test_how_long_helpers_spin_is_measured() -> None:
    """With GNU's spin count helper threads of the judge took a processor from the window that it had just opened."""

    def spun(whose: str) -> tuple[float, str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("GOMP_", "OMP_"))}
        done = subprocess.run(
            [sys.executable, "-c", SPIN, whose], env=environment, capture_output=True, text=True, check=True
        )
        seconds, count = (done.stdout.rstrip("\n") + " ").split(" ")[:2]
        return float(seconds), count

    (usual, unset), (ours, count) = spun("usual"), spun("ours")
    assert (unset, count) == ("", str(SPIN_COUNT))
    assert 0 <= ours < usual / 2
