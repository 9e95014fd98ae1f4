"""Speedup of the archetypes' kernels over eager PyTorch, shape by shape: for tuning them.

Runs in one process and trusts the kernels, unlike ``kerneleval run``, whose figures are the ones that count. Windows of
calls over rotating inputs, in ABBA order; the figure of a cell is the median ratio over the quads.

    python benchmarks/archetype_kernels.py --generators robust,fragile --tasks rms_norm,gelu --quads 5 --json out.json
    python benchmarks/archetype_kernels.py --device cuda
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from kerneleval import generators, languages, tasks
from kerneleval.devices import find as find_device
from kerneleval.records import SHAPE_CATEGORIES, Case, Protocol, Task, TensorSpec
from kerneleval.tasks import shapes

_SETTINGS = {
    # What workers run under: helper threads that sleep soon, and an allocator that keeps freed memory (else page faults
    # of fresh outputs, equal on both sides, drown what is measured).
    "GOMP_SPINCOUNT": "2000",
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
_WINDOW_S = 0.004
_ROTATION_BYTES = 48 << 20

Call = Callable[[Sequence[Any]], Any]


def arguments(task: Task, case: Case, count: int, device: str) -> list[list[Any]]:
    """``count`` draws of upstream gradients (backward) and arguments."""
    generator = torch.Generator(device).manual_seed(0)
    place = {"generator": generator, "device": device}
    draws = []
    for _ in range(count):
        args: list[Any] = []
        for spec in task.arguments(case.dims_map, case.dtype):
            if not isinstance(spec, TensorSpec):
                args.append(spec.value)
            elif spec.values == "integers":
                args.append(torch.randint(spec.low, max(spec.high, 1), spec.shape, **place))
            else:
                tensor = torch.randn(spec.shape, **place) * spec.scale
                args.append(1 + 0.1 * tensor if spec.values == "ones_normal" else tensor)
        if case.direction == "backward":
            outputs = task.reference(*args)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            args = [torch.randn(o.shape, **place) for o in outputs] + args
        draws.append(args)
    return draws


def eager(task: Task, case: Case) -> Call:
    """The reference, and autograd through it."""
    if case.direction == "forward":
        return lambda args: task.reference(*args)
    specs = task.arguments(case.dims_map, case.dtype)
    wanted = [i for i, spec in enumerate(specs) if isinstance(spec, TensorSpec) and spec.differentiable]

    def call(args: Sequence[Any]) -> Any:
        upstream, own = args[: len(args) - len(specs)], list(args[len(args) - len(specs) :])
        for i in wanted:
            own[i] = own[i].detach().requires_grad_()
        with torch.enable_grad():
            outputs = task.reference(*own)
        return torch.autograd.grad(outputs, [own[i] for i in wanted], upstream)

    return call


def native(loaded: languages.Loaded, task: Task, case: Case, example: Sequence[Any]) -> Call:
    """The candidate, through the loader that workers use."""
    made = eager(task, case)(example)
    made = made if isinstance(made, tuple) else (made,)
    outputs = [languages.OutputSpec(shape=tuple(t.shape), dtype=str(t.dtype)[6:]) for t in made]
    dims, count = case.dims_map, len(task.arguments(case.dims_map, case.dtype))
    if case.direction == "forward":
        return lambda args: loaded.forward(args, outputs, dims)
    backward = loaded.backward
    assert backward is not None
    return lambda args: backward(args[: len(args) - count], args[len(args) - count :], outputs, dims)


def worst(got: Any, want: Any) -> float:
    """Largest error over the largest magnitude of any output, against float64."""
    got, want = (t if isinstance(t, tuple) else (t,) for t in (got, want))
    return max(
        float((g.double() - w).abs().max() / w.abs().max().clamp_min(1e-30)) if g.numel() else 0.0
        for g, w in zip(got, want, strict=True)
    )


def seconds(call: Call, window: Sequence[Sequence[Any]]) -> float:
    """Time of one call, over a window whose outputs all live until its end."""
    synchronise = torch.cuda.synchronize if torch.cuda.is_available() else int
    gc.disable()
    synchronise()
    start = time.perf_counter()
    results = [call(args) for args in window]
    synchronise()
    taken = time.perf_counter() - start
    gc.enable()
    del results
    return taken / len(window)


def cell(call: Call, base: Call, task: Task, case: Case, quads: int, device: str) -> tuple[float, float, float]:
    """(speedup, candidate's microseconds, spread of the quads' ratios)."""
    size = shapes.case_bytes(task, case.direction, case.dims_map, case.dtype)
    inputs = arguments(task, case, max(2, min(64, _ROTATION_BYTES // size)), device)
    with torch.no_grad():
        once = max(seconds(call, inputs[:2]), seconds(base, inputs[:2]), 1e-7)
        window = (inputs * 200)[: max(len(inputs), min(int(_WINDOW_S / once), 2000))]
        seconds(call, window), seconds(base, window)
        ratios, times = [], []
        for quad in range(quads):
            order = (call, base, base, call) if quad % 2 == 0 else (base, call, call, base)
            taken = [seconds(f, window) for f in order]
            own = [t for f, t in zip(order, taken, strict=True) if f is call]
            other = [t for f, t in zip(order, taken, strict=True) if f is base]
            ratios.append((other[0] * other[1] / (own[0] * own[1])) ** 0.5)
            times.append(min(own))
    return statistics.median(ratios), statistics.median(times) * 1e6, max(ratios) / min(ratios)


def measure(
    name: str, task: Task, cases: Sequence[Case], quads: int, directory: Path, device: str
) -> list[dict[str, Any]]:
    """Every timed cell of one archetype and task."""
    rows = []
    found = generators.find(name)
    assert isinstance(found, generators.Generator)
    for candidate in found.candidates(task, device):
        language = languages.find(candidate.language)
        start = time.perf_counter()
        language.build(candidate, directory / candidate.hash, device, "")
        built_s = time.perf_counter() - start
        loaded = language.load(candidate, directory / candidate.hash, device, names=(task.name,))
        loaded.watch(False)
        for case in cases:
            if case.direction == "backward" and loaded.backward is None:
                continue
            example = arguments(task, case, 1, device)[0]
            call, base = native(loaded, task, case, example), eager(task, case)
            want = base([a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in example])
            error, native_error = worst(call(example), want), worst(base(example), want)
            speedup, microseconds, spread = cell(call, base, task, case, quads, device)
            rows.append(
                {"generator": name, "task": task.name, "direction": case.direction, "category": case.shape_category,
                 "dims": case.dims_map, "speedup": speedup, "us": microseconds, "spread": spread, "error": error,
                 "eager_error": native_error, "build_s": built_s}
            )  # fmt: skip
    return rows


def summary(rows: Sequence[dict[str, Any]], pairs: int) -> dict[str, float]:
    """The paper's factors, from these cells."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["task"], row["direction"]), []).append(row["speedup"])
    speedups = [row["speedup"] for row in rows]
    cv = statistics.mean(statistics.pstdev(v) / statistics.mean(v) for v in groups.values() if len(v) > 2)
    not_slower = sum(min(v) >= 0.97 for v in groups.values()) / pairs
    med = statistics.median(speedups)
    by_category = {
        c: statistics.median(r["speedup"] for r in rows if r["category"] == c)
        for c in SHAPE_CATEGORIES
        if any(r["category"] == c for r in rows)
    }
    return {
        "median": med,
        "peak cell": max(speedups),
        "peak category": max(by_category.values()),
        "CV": cv,
        "C correct": len(groups) / pairs,
        "C not slower": not_slower,
        "S correct": med * (1 - min(cv, 1)) * len(groups) / pairs,
        "S not slower": med * (1 - min(cv, 1)) * not_slower,
        **by_category,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generators", default="baseline,fragile,robust")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--tasks", default=",".join(generators.SUITE))
    parser.add_argument("--direction", default="")
    parser.add_argument("--quads", type=int, default=3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in _SETTINGS.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | _SETTINGS)  # read as the process starts
    memory, flops = find_device(options.device).case_budget()
    directions = tuple(options.direction.split(",")) if options.direction else ()
    protocol = Protocol(dtypes=("float32",), directions=directions)
    rows: list[dict[str, Any]] = []
    pairs = 0
    with tempfile.TemporaryDirectory() as directory:
        for task in map(tasks.find, options.tasks.split(",")):
            planned = shapes.plan(task, protocol, shapes.Budget(memory_bytes=memory, flops=flops))
            cases = [case for case in planned if shapes.is_timed(case, task, protocol)]
            pairs += len({case.direction for case in cases})
            for name in options.generators.split(","):
                new = measure(name, task, cases, options.quads, Path(directory), options.device)
                rows += new
                for direction in task.directions:
                    cells = [r for r in new if r["direction"] == direction]
                    if cells:
                        worse = max(r["error"] / max(r["eager_error"], 6e-8) for r in cells)
                        text = " ".join(f"{r['category'][:4]} {r['speedup']:5.2f} ({r['us']:4.0f})" for r in cells)
                        label = f"{task.name[:14]:14s} {direction[:3]} {name[:6]:6s}"
                        print(f"{label} {text}  error over eager's {worse:.1f}", flush=True)
    for name in options.generators.split(","):
        of = [r for r in rows if r["generator"] == name]
        if of:
            print(f"{name:9s}", ", ".join(f"{k} {v:.2f}" for k, v in summary(of, pairs).items()))
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
