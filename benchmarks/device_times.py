"""The judge's two times of a call beside three that are measured outside of it, in one process and by trusted code.

Fifteen kernels (eager PyTorch, torch.compile for one size and for all, Triton, CUDA C++) at four sizes each. Outside: a
CUDA graph over distinct inputs, and a loop of eager calls over the same, both by events. ``triton.testing.do_bench``:
its calls find an empty cache and hold what a launch costs.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Report, parser
from kerneleval import languages
from kerneleval.judge import Judge
from kerneleval.judge.oracle.expectation import TimedBounds
from kerneleval.judge.timing import clock
from kerneleval.judge.timing.pair import BaselineSide, TimedCall, TimedMismatch
from kerneleval.judge.timing.statistics import clock_bound, scatter_of
from kerneleval.judge.windows.buffers import CallLayout, dense
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.languages import OutputSpec
from kerneleval.records import Candidate, Protocol, Samples
from kerneleval.worker.waiting import TimeLimit

SHAPES = ((66, 77), (976, 514), (2776, 2461), (6234, 5861))
_NEAR = 0.03

EAGER = {
    "gelu": "torch.nn.functional.gelu(x)",
    "softmax": "torch.softmax(x, -1)",
    "rms": "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)",
}

_HEAD = """
import torch, triton, triton.language as tl

def run(x):
    y = torch.empty_like(x)
    rows, n = x.shape
    {launch}
    return y
"""
_POINTWISE = "kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)"
_ROWS = "kernel[(rows,)](x, y, n, B=triton.next_power_of_2(n), num_warps=8)"
_ROW = """
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other={fill})
    {body}
    tl.store(y + tl.program_id(0) * n + i, v, mask=i < n)
"""
TRITON = {
    "gelu": _HEAD.format(launch=_POINTWISE)
    + """
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, 0.5 * v * (1.0 + tl.math.erf(v * 0.70710678118654752)), mask=i < n)
""",
    "softmax": _HEAD.format(launch=_ROWS)
    + _ROW.format(fill='-float("inf")', body="v = tl.exp(v - tl.max(v, 0)); v = v / tl.sum(v, 0)"),
    "rms": _HEAD.format(launch=_ROWS) + _ROW.format(fill="0.0", body="v = v * tl.rsqrt(tl.sum(v * v, 0) / n + 1e-6)"),
}

_CUDA = """
#include <cstdint>
#include <cuda_runtime.h>
__global__ void kernel(const float *x, float *y, int64_t M, int64_t N) {{
{body}
}}
extern "C" int run_float32(const float *x, float *y, int64_t M, int64_t N, void *stream) {{
    kernel<<<{grid}, 256, 0, (cudaStream_t)stream>>>(x, y, M, N);
    return cudaGetLastError();
}}
"""
_TOTAL = """
    __shared__ float part[256];
    const float *from = x + blockIdx.x * N;
    float *to = y + blockIdx.x * N;
    auto total = [&](float v, bool largest) {
        part[threadIdx.x] = v;
        __syncthreads();
        for (int half = 128; half; half /= 2) {
            if (threadIdx.x < half) {
                float other = part[threadIdx.x + half];
                part[threadIdx.x] = largest ? fmaxf(part[threadIdx.x], other) : part[threadIdx.x] + other;
            }
            __syncthreads();
        }
        float found = part[0];
        __syncthreads();
        return found;
    };
"""
CUDA = {
    "gelu": _CUDA.format(
        grid="(M * N + 255) / 256",
        body="""
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < M * N) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));""",
    ),
    "softmax": _CUDA.format(
        grid="M",
        body=_TOTAL
        + """
    float most = -INFINITY, sum = 0.0f;
    for (int64_t i = threadIdx.x; i < N; i += 256) most = fmaxf(most, from[i]);
    most = total(most, true);
    for (int64_t i = threadIdx.x; i < N; i += 256) sum += expf(from[i] - most);
    sum = total(sum, false);
    for (int64_t i = threadIdx.x; i < N; i += 256) to[i] = expf(from[i] - most) / sum;""",
    ),
    "rms": _CUDA.format(
        grid="M",
        body=_TOTAL
        + """
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < N; i += 256) sum += from[i] * from[i];
    sum = rsqrtf(total(sum, false) / N + 1e-6f);
    for (int64_t i = threadIdx.x; i < N; i += 256) to[i] = from[i] * sum;""",
    ),
}


def _plain(name: str, decorator: str = "") -> str:
    return f"import torch\n\n\n{decorator}def run(x):\n    return {EAGER[name]}\n"


def candidates() -> dict[tuple[str, str], Candidate]:
    """The kernels by operator and by what they are written in."""
    made = {}
    for name in EAGER:
        static, dynamic = (_plain(name, f"@torch.compile(dynamic={d})\n") for d in (False, True))
        texts = {
            "eager": ("torch", "run.py", _plain(name)), "compile": ("torch", "run.py", static),
            "dynamic": ("torch", "run.py", dynamic),
            "triton": ("triton", "run.py", TRITON[name]), "cuda": ("cuda", "run.cu", CUDA[name]),
        }  # fmt: skip
        for kind, (language, path, text) in texts.items():
            made[name, kind] = Candidate(files=((path, text),), language=language)
    return made


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--tier", default="standard")
    made.add_argument("--kinds", default="eager,compile,dynamic,triton,cuda")
    options = made.parse_args()
    rows: list[dict[str, Any]] = []
    with Judge(options.device) as judge:
        report = Report("device_times", judge.machine, options.out)
        for (name, kind), candidate in candidates().items():
            if kind not in options.kinds.split(","):
                continue
            began = time.monotonic()
            baseline = candidates()[name, "eager"]
            first, second = Loaded(judge.pool, candidate, ("run",)), Loaded(judge.pool, baseline, ("run",))
            try:
                judged = {shape: _judged(judge, first, second, options.tier, shape) for shape in SHAPES}
            finally:
                first.close()
                second.close()
            judge.pool.quiet()  # ending a worker waits for the device, which ends a recording of this process
            with tempfile.TemporaryDirectory() as folder:
                loaded = _loaded(judge, candidate, Path(folder))
                for shape, run in judged.items():
                    rows.append({"operator": name, "kind": kind, "shape": shape} | _beside(loaded, shape, run))
            print(f"{name} {kind}: {time.monotonic() - began:.0f} s", flush=True)
        _tell(report, rows)
        report.write()


def _judged(judge: Judge, first: Loaded, second: Loaded, tier: str, shape: tuple[int, int]) -> clock.TimedRun:
    dims = dict(zip("MN", shape, strict=True))
    call = CallLayout(args=(dense(shape, "float32"),), grads=(), outputs=((shape, "float32"),), wanted=(), dims=dims)

    def draw(seed: int) -> list[torch.Tensor]:
        return [torch.randn(shape, generator=torch.Generator(device="cuda").manual_seed(seed), device="cuda")]

    bounds = TimedBounds(relative_rms=1e-5, worst=1e-3)
    cell = clock.TimedCell(call=call, direction="forward", draw=draw, bounds=bounds, arbiter=_unequal)
    protocol = Protocol(tier=tier)
    eager = (BaselineSide(second.runner),)
    return clock.measure(first.runner, eager, cell, protocol, judge.device, session=0, limit=TimeLimit(120.0))


def _unequal(timed: TimedCall) -> None:
    raise TimedMismatch("the kernel's outputs are not those of eager PyTorch", {})


def _loaded(judge: Judge, candidate: Candidate, folder: Path) -> languages.Loaded:
    language = languages.find(candidate.language)
    language.build(candidate, folder, judge.device.name, judge.machine.arch)
    return language.load(candidate, folder, judge.device.name, names=("run",))


def _beside(loaded: languages.Loaded, shape: tuple[int, int], run: clock.TimedRun) -> dict[str, Any]:
    outputs, dims = [OutputSpec(shape=shape, dtype="float32")], dict(zip("MN", shape, strict=True))
    launched = run.device.calls if run.device is not None else 0
    found = _outside(lambda x: loaded.forward([x], outputs, dims), shape, run.samples.calls, launched)
    found["call_us"] = statistics.median(run.samples.candidate_ns) / 1e3
    if run.device is not None:
        found |= _figures(run.device)
    else:
        found["why_not"] = run.no_device
    return found


def _figures(samples: Samples) -> dict[str, float]:
    """Device time (us), and its interval of 95 % as a ratio minus 1: by events, and by what they could be forged."""
    events = _logs(samples.candidate_event_ns)
    half = 1.96 * statistics.stdev(events) / math.sqrt(len(events))
    bound = clock_bound(samples, scatter_of([samples]))
    return {
        "device_us": statistics.median(samples.candidate_event_ns) / 1e3,
        "half_width": half, "margin": math.inf if bound is None else bound.margin, "calls": samples.calls,
    }  # fmt: skip


def _logs(values: Sequence[float]) -> list[float]:
    return [math.log(value) for value in values]


def _outside(call: Callable[[torch.Tensor], Any], shape: tuple[int, int], calls: int, launched: int) -> dict[str, Any]:
    """Three times of a call (us), over as many distinct inputs as the judge's windows have, new ones each time.

    Args:
        calls, launched: calls in a window of eager calls and of recorded ones.
    """
    from triton.testing import do_bench

    size = math.prod(shape)
    arena = torch.empty(max(calls, launched), (size + 127) // 128 * 128, device="cuda").normal_()  # aligned
    inputs = [row[:size].view(shape) for row in arena]
    for x in inputs[:4]:
        call(x)
    torch.cuda.synchronize()
    found = {"do_bench_us": 1e3 * float(do_bench(lambda: call(inputs[0]), return_mode="median"))}
    if launched:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # workers end in other threads
            kept = [call(x) for x in inputs[:launched]]
        found["graph_us"] = _events_us(graph.replay, arena) / launched
        del kept
    found["loop_us"] = _events_us(lambda: [call(x) for x in inputs[:calls]], arena) / calls
    return found


def _events_us(run: Callable[[], Any], inputs: torch.Tensor) -> float:
    """Median of 12 runs by events; the first ones do not count."""
    times = []
    for _ in range(16):
        inputs.normal_()
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        run()
        stop.record()
        torch.cuda.synchronize()
        times.append(1e3 * float(start.elapsed_time(stop)))
    return statistics.median(times[4:])


def _tell(report: Report, rows: list[dict[str, Any]]) -> None:
    eager = {(row["operator"], row["shape"]): row for row in rows if row["kind"] == "eager"}
    table, off = [], []
    for row in rows:
        device, outside = row.get("device_us", math.nan), row.get("graph_us", math.nan)
        known, base = row.get("half_width", math.nan) + row.get("margin", math.nan), eager.get(_where(row), {})
        if abs(device / outside - 1) > max(_NEAR, known):
            off.append(f"{row['operator']} {row['kind']} {row['shape'][0]} x {row['shape'][1]}")
        speedups = (base.get(name, math.nan) / row.get(name, math.nan) for name in ("device_us", "call_us"))
        shown = (device, outside, row["do_bench_us"], row["call_us"], row["loop_us"])
        table.append(
            (
                row["operator"], row["kind"], f"{row['shape'][0]} x {row['shape'][1]}", *(f"{us:.2f}" for us in shown),
                f"{device / outside:.3f}", f"{known:.3f}", *(f"{x:.2f}" for x in speedups), row.get("why_not", ""),
            )
        )  # fmt: skip
    names = ("operator", "kind", "shape", "device us", "graph us", "do_bench us", "call us", "loop us", "device/graph")
    report.table((*names, "known within", "x eager", "by call", ""), table)
    ratios = [row["device_us"] / row["graph_us"] for row in rows if "device_us" in row]
    report.data = {"rows": rows, "off": off}
    report.say(
        f"device time over a graph's outside of the judge: median {statistics.median(ratios):.3f}, "
        f"{min(ratios):.3f} to {max(ratios):.3f} over {len(ratios)} of {len(rows)} cells",
        f"further off than {_NEAR:.0%} and than the interval: {len(off)}: {', '.join(off) or 'none'}",
    )


def _where(row: dict[str, Any]) -> tuple[str, tuple[int, int]]:
    return row["operator"], row["shape"]


if __name__ == "__main__":
    main()
