"""Wall time of one verdict on a small Triton GELU from a warm judge, beside KernelBench's for one shape.

Eight shape categories x three distributions, forward, timed: every candidate is new text, so its kernels are compiled
anew. ``--kernelbench DIR`` (a checkout) adds KernelBench's own evaluation of an equal kernel at one shape, in a process
of its own on the same machine; modules that its evaluation imports but never calls are replaced where missing.
"""

from __future__ import annotations

import collections
import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from benchmarks.kernelbench_process import PRELUDE
from benchmarks.report import Report, parser
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, Event, Failed, Protocol

GELU = '''"""GELU, variant {variant}."""
import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(y_ptr + offsets, (0.5 + {variant} * 1e-30) * x * (1.0 + tl.math.erf(x * 0.7071067811865476)), mask=mask)


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        gelu_kernel[(triton.cdiv(n, {block}),)](x, y, n, BLOCK={block})
    return y
'''

_MODULE = (
    GELU
    + """

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return gelu(x)
"""
)

_PROBLEM = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.rand(1024, 1024)]


def get_init_inputs():
    return []
"""

_THEIRS = (
    PRELUDE
    + """
from kernelbench.eval import eval_kernel_against_ref
import torch
torch.zeros(1, device="cuda")
times = []
for i in range({candidates}):
    start = time.perf_counter()
    result = eval_kernel_against_ref(
        {problem!r}, {candidate!r}.replace("0 * 1e-30", "%d * 1e-30" % i), measure_performance=True,
        num_correct_trials=5, num_perf_trials=100, backend="triton", device=torch.device("cuda:0"),
    )
    times.append(time.perf_counter() - start)
print("RESULT", json.dumps([times, bool(result.correctness)]))
"""
)


_PROFILED, _SHOWN = 5, 45
"""Verdicts that are profiled, and functions that are shown."""


def main() -> None:
    """Run it."""
    made = parser(__doc__ or "")
    made.add_argument("--kernelbench", type=Path, default=None, help="checkout of KernelBench")
    made.add_argument("--candidates", type=int, default=8)
    made.add_argument("--profile", action="store_true", help="show where the judge's time goes in further ones")
    options = made.parse_args()
    protocol = Protocol(
        tier="quick", dtypes=("float32",), directions=("forward",), distributions=("standard", "outlier", "large_scale")
    )
    task = tasks.find("gelu")
    with Judge(options.device) as judge:
        report = Report("check_latency", judge.machine, options.out)
        started = time.perf_counter()
        judge.noise(protocol)
        judge.pool.make_spare()
        report.say(f"noise floor of this machine, once: {time.perf_counter() - started:.1f} s")
        rows = []
        for variant in range(options.candidates):
            source = GELU.format(variant=variant, block=1024)
            candidate = Candidate(files=(("gelu.py", source),), language="triton")
            started = time.perf_counter()
            verdict = judge.check(candidate, task, protocol)
            seconds = time.perf_counter() - started
            timed = sum(not isinstance(c.outcome, Failed) and c.outcome.timing is not None for c in verdict.cells)
            rows.append((variant, f"{seconds:.2f}", verdict.verdict, len(verdict.cells), timed, verdict.reason))
        report.table(("candidate", "seconds", "verdict", "cells", "timed", "reason"), rows)
        all_s = [float(r[1]) for r in rows]
        report.say(f"median {statistics.median(all_s):.2f} s, worst {max(all_s):.2f} s, first {all_s[0]:.2f} s")
        report.data = {"seconds": all_s, "rows": rows}
        if options.profile:
            _profile(report, judge, protocol, options.candidates)
    if options.kernelbench is not None:
        _kernelbench(report, options.kernelbench)
    report.write()


def _profile(report: Report, judge: Judge, protocol: Protocol, variant: int) -> None:
    """Further verdicts: the time until each phase's events, and where the judge's main thread was meanwhile."""
    task = tasks.find("gelu")
    phases: dict[str, float] = collections.defaultdict(float)
    own: collections.Counter[str] = collections.Counter()
    within: collections.Counter[str] = collections.Counter()
    started = time.perf_counter()
    last = started

    def on_event(event: Event) -> None:
        nonlocal last
        now = time.perf_counter()
        phases[event.kind] += now - last
        last = now

    with _sampled(own, within):
        for more in range(_PROFILED):
            text = GELU.format(variant=variant + 1 + more, block=1024)
            last = time.perf_counter()
            judge.check(Candidate(files=(("gelu.py", text),), language="triton"), task, protocol, on_event=on_event)
    each_ms = 1e3 * (time.perf_counter() - started) / _PROFILED
    scale = each_ms / own.total()
    report.say(f"{_PROFILED} verdicts more, {each_ms:.0f} ms each; samples of the main thread, as ms of a verdict")
    report.say(
        "until each phase's events: " + ", ".join(f"{k} {1e3 * s / _PROFILED:.0f} ms" for k, s in phases.items())
    )
    names = [name for name, _ in within.most_common(_SHOWN)]
    names += [name for name, _ in own.most_common(_SHOWN) if name not in names]
    report.table(
        ("within", "itself", "function"),
        [(f"{scale * within[name]:.0f}", f"{scale * own[name]:.0f}", name) for name in names],
    )


@contextlib.contextmanager
def _sampled(own: collections.Counter[str], within: collections.Counter[str]) -> Iterator[None]:
    """Count where this thread is each millisecond: its innermost function of the package (``own``), and every function
    of the package that is being called (``within``). A profiler that follows every call takes time itself.
    """
    watched, over = threading.get_ident(), threading.Event()

    def look() -> None:
        while not over.wait(1e-3):
            frame: FrameType | None = sys._current_frames()[watched]
            names = []
            while frame is not None:
                _, package, place = frame.f_code.co_filename.rpartition("kerneleval/")
                if package:
                    names.append(f"{place} {frame.f_code.co_qualname}")
                frame = frame.f_back
            own[names[0] if names else "elsewhere"] += 1
            within.update(set(names))

    sampler = threading.Thread(target=look)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(2e-4)
    sampler.start()
    try:
        yield
    finally:
        over.set()
        sampler.join()
        sys.setswitchinterval(usual)


def kernelbench_script(checkout: Path, *, candidates: int = 3, variant: int = 0) -> str:
    """A program in which KernelBench evaluates so many equal kernels, each of new text: seconds and a verdict."""
    candidate = _MODULE.format(variant=0, block=1024)
    script = _THEIRS.format(root=str(checkout / "src"), problem=_PROBLEM, candidate=candidate, candidates=candidates)
    return script.replace('"%d * 1e-30" % i', f'"%d * 1e-30" % (i + {variant})')


def _kernelbench(report: Report, checkout: Path) -> None:
    script = kernelbench_script(checkout)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "theirs.py"
        path.write_text(script)
        started = time.perf_counter()
        done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
        whole = time.perf_counter() - started
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT")), "")
    if not line:
        report.say(f"KernelBench: not run: {done.stderr.strip()[-400:]}")
        return
    report.say(f"KernelBench, one shape (1024 x 1024), three candidates in one process: {line[7:]}")
    report.say(f"KernelBench's process, with start-up, for the three: {whole:.1f} s")
    report.data["kernelbench"] = {"result": line[7:], "process_s": whole}


if __name__ == "__main__":
    main()
