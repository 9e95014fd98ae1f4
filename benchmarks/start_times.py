"""Import time of the package without torch, start of the zygote, fork of a worker, its first call."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from benchmarks.report import Report, parser
from kerneleval.judge import Judge
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout, dense
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Candidate
from kerneleval.worker.waiting import TimeLimit


def _import_ms(code: str) -> float:
    wrapped = f"import time; t = time.perf_counter(); {code}; print((time.perf_counter() - t) * 1e3)"
    return min(float(subprocess.check_output([sys.executable, "-c", wrapped])) for _ in range(5))


def main() -> None:
    """Run it."""
    options = parser(__doc__ or "").parse_args()
    with Judge(options.device) as judge:
        report = Report("start_times", judge.machine, options.out)
        rows = [
            ("import kerneleval (torch not imported)", f"{_import_ms('import kerneleval'):.1f} ms"),
            ("import kerneleval.records", f"{_import_ms('import kerneleval.records'):.1f} ms"),
            ("import kerneleval.cli", f"{_import_ms('import kerneleval.cli'):.1f} ms"),
        ]
        candidate = Candidate(files=(("add.py", "def run(x):\n    return x + 1\n"),), language="torch")
        forks, firsts = [], []
        for _ in range(5):
            started = time.perf_counter()
            loaded = Loaded(judge.pool, candidate, ("run",))
            forks.append(loaded.runner.worker.fork_s)
            call = CallLayout(
                args=(dense((64,), "float32"),), grads=(), outputs=(((64,), "float32"),), wanted=(), dims={}
            )
            image = WindowBuffer(WindowLayout([call], "forward"), judge.device)
            loaded.runner.window(image, limit=TimeLimit(30.0), check_mutation=False)
            firsts.append(time.perf_counter() - started)
            loaded.close()
        rows += [
            ("zygote: start to ready", f"{judge.pool.zygote.start_s:.2f} s"),
            ("zygote: its imports (torch, Triton)", f"{judge.pool.zygote.loaded['total_s']:.2f} s"),
            ("worker: fork to sandboxed and ready (median of 5)", f"{statistics.median(forks) * 1e3:.1f} ms"),
            (
                "worker: fork to first call answered, device context included",
                f"{statistics.median(firsts) * 1e3:.1f} ms",
            ),
        ]
        report.table(("what", "time"), rows)
        report.data = {"rows": rows, "trust": judge.pool.trust}
        report.say(f"sandbox: {judge.pool.trust.level}: {', '.join(judge.pool.trust.layers)}")
        report.write()


if __name__ == "__main__":
    main()
