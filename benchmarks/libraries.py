"""Published kernel libraries as candidates: Liger-Kernel and FlagGems at every planned case of the tasks they solve.

    python -m benchmarks.libraries [--only 'liger rms'] [--categories tiny,small] [--dtypes float32] [--untimed]

The libraries must be importable: installed, or in a folder that ``PYTHONPATH`` names (the candidates import them inside
the sandbox). Every entry of ``generators/library/kernels.py`` is judged forward and backward, in the quick tier, on any
track. What is rejected is called once more in a process of its own, without sandbox, protocol or tolerance
(``--plain``): its values beside plain PyTorch's and those of the same formula in fp64, so that one can see who is off.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Report, parser, until_ended
from kerneleval import tasks
from kerneleval.generators.library.kernels import KERNELS, MODULES, Kernel
from kerneleval.judge import Judge
from kerneleval.judge.windows.buffers import laid_out
from kerneleval.judge.windows.inputs import draw, upstream
from kerneleval.languages.triton import Triton
from kerneleval.records import (
    Candidate,
    Case,
    Failed,
    KernelEvalError,
    Protocol,
    ReplaySource,
    Scalar,
    Task,
    Verdict,
    from_plain,
    to_plain,
)
from kerneleval.tasks.shapes import EDGE

_PLAIN_TIMEOUT_S = 120
_SEED = 20_26

LEFT_OUT: tuple[tuple[str, str, str], ...] = (
    ("liger", "geglu", "tanh approximation times a second input: gelu and linear_bias_gelu are exact (erf)"),
    ("liger", "fused gate_up silu_mul", "takes gate and up in one tensor: joining them would be the wrapper's work"),
    ("liger", "fused_linear_cross_entropy", "a loss of x weight^T as a whole: no task has it"),
    ("flaggems", "logsumexp", "not in the library; nor is conv_transpose2d"),
    ("flaggems", "skip_layer_norm", "layer norm of a sum: no task has it"),
    ("flaggems", "swiglu", "takes gate and up in one tensor"),
    ("flaggems", "gelu tanh", "another function than the exact one"),
    ("flaggems", "fused_add_rms_norm in place", "documented to overwrite both inputs: judged on copies"),
    ("flaggems", "backward of add, sum, amax", "no kernel: the gradient is handed on, expanded or left to PyTorch"),
    ("flaggems", "backward of an additive mask", "its sdpa backward takes no mask; see 'sdpa bool mask'"),
)
"""(library, entry, why it is not judged)."""


def main() -> int:
    """Run it."""
    options = _arguments()
    if options.plain:
        return _plain_here(options)
    wanted = [k for k in KERNELS if re.search(options.only, f"{k.library} {k.task} {k.name}")][
        options.skip :: options.step
    ]
    if options.untuned:
        wanted = [replace(kernel, untuned=True) for kernel in wanted]
    present = {library for library, module in MODULES.items() if importlib.util.find_spec(module) is not None}
    rows: list[dict[str, Any]] = []
    with Judge(options.device) as judge:
        report = Report("libraries", judge.machine, options.out)
        for library in sorted(set(MODULES) - present):
            report.say(f"NOT RUN: {library}: there is no module {MODULES[library]} to import")
        _write(options.sources, wanted)
        chosen = [
            (kernel, direction)
            for kernel in wanted
            if kernel.library in present
            for direction in kernel.directions
            if not options.directions or direction in options.directions.split(",")
        ]
        started = time.monotonic()
        with until_ended():
            for kernel, direction in chosen:
                if time.monotonic() - started > options.seconds:
                    break
                rows.append(_judged(judge, kernel, direction, options))
                print(*_line(rows[-1]), flush=True)
        left = [f"{kernel.library} {kernel.name} {direction}" for kernel, direction in chosen[len(rows) :]]
        report.say("")
        report.table(_HEAD, [_line(row) for row in rows])
        for row in rows:
            _tell(report, row)
        report.say("", "not judged:")
        report.table(("library", "entry", "why"), LEFT_OUT)
        counts = collections.Counter(row["verdict"] for row in rows)
        text = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items()))
        report.say(f"{len(rows)} of kernel and direction: {text}; not run for lack of time: {len(left)}", *left)
        report.data = {"rows": rows, "left_out": LEFT_OUT, "not_run": left, "absent": sorted(set(MODULES) - present)}
        report.write()
    return 0 if rows else 2


def _arguments() -> argparse.Namespace:
    made = parser((__doc__ or "").split("\n", maxsplit=1)[0])
    made.add_argument("--only", default="", help="regular expression on 'library task entry'")
    made.add_argument("--skip", type=int, default=0, help="begin with this one of those chosen")
    made.add_argument("--step", type=int, default=1, help="of those, only every so many: parts side by side")
    made.add_argument("--seconds", type=float, default=1e9, help="stop beginning new ones after this long")
    made.add_argument("--directions", default="", help="comma separated; empty: both")
    made.add_argument("--dtypes", default="", help="comma separated; empty: the task's")
    made.add_argument("--categories", default="", help="comma separated shape categories; empty: all")
    made.add_argument("--untimed", action="store_true")
    made.add_argument("--untuned", action="store_true", help="the smallest tuning configuration of every kernel alone")
    made.add_argument("--sources", type=Path, default=None, help="also write the wrappers to this directory")
    made.add_argument("--plain", default="", help="only call this wrapper (library/task/entry) here, beside PyTorch")
    made.add_argument("--case", default="", help="with --plain: the case's fields as JSON")
    return made.parse_args()


def _write(directory: Path | None, kernels: Sequence[Kernel]) -> None:
    if directory is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        (directory / _file(kernel)).write_text(kernel.source)


def _file(kernel: Kernel) -> str:
    return re.sub(r"\W+", "_", f"{kernel.library} {kernel.task} {kernel.name}").strip("_") + ".py"


# --------------------------------------------------------------------------------------------------------------------
# Through the judge
# --------------------------------------------------------------------------------------------------------------------

_HEAD = (
    *("library", "kernel", "task", "direction", "verdict", "reason", "failing cells", "first failing cell"),
    *("error of bound", "seconds", "track", "speedup"),
)


def _judged(judge: Judge, kernel: Kernel, direction: str, options: argparse.Namespace) -> dict[str, Any]:
    """One row: what the judge makes of a kernel in one direction."""
    protocol = Protocol(
        tier="quick",
        directions=(direction,),
        dtypes=tuple(d for d in options.dtypes.split(",") if d),
        categories=tuple(c for c in options.categories.split(",") if c),
        timed=not options.untimed,
        allow=("custom", "mixed", "library"),
    )
    task = tasks.find(kernel.task)
    source = str(options.sources / _file(kernel)) if options.sources else _file(kernel)
    row: dict[str, Any] = {"library": kernel.library, "kernel": kernel.name, "task": kernel.task,
                           "direction": direction}  # fmt: skip
    started = time.monotonic()
    try:
        candidate = Candidate(files=(("candidate.py", kernel.source),), language="triton", entry="run",
                              backward_entry="backward" if "\ndef backward(" in kernel.source else "")  # fmt: skip
        verdict = judge.check(candidate, task, protocol, replay=ReplaySource(source=source))
    except KernelEvalError as error:
        seconds = round(time.monotonic() - started, 1)
        return row | {"verdict": "error", "reason": type(error).__name__, "message": str(error), "seconds": seconds}
    row |= _figures(verdict) | {"seconds": round(time.monotonic() - started, 1)}
    firsts = {failure["reason"]: failure for failure in reversed(row["failures"])}
    for failure in firsts.values():
        if failure["stage"] in ("call", "correctness", "timing", "honesty"):
            failure["plain"] = _plain(kernel, failure["case"], judge.device.torch_device)
    return row


def _figures(verdict: Verdict) -> dict[str, Any]:
    """What of a verdict goes into the table."""
    failures, unsupported, edges, worst = [], 0, 0, (-1.0, "", 0.0, 0.0)
    for cell in verdict.cells:
        evidence = cell.outcome.evidence
        error, bound = (float(evidence.get(f"relative_rms_{what}", "nan")) for what in ("error", "bound"))
        if bound > 0 and not error / bound <= worst[0]:
            worst = (error / bound if math.isfinite(error) else math.inf, cell.case.key, error, bound)
        if not isinstance(cell.outcome, Failed):
            continue
        if cell.outcome.reason == "unsupported":
            unsupported += 1
            continue
        edges += cell.case.shape_category == EDGE
        failures.append(
            {
                "case": to_plain(cell.case),
                "key": cell.case.key,
                "stage": cell.outcome.stage,
                "reason": cell.outcome.reason,
                "message": cell.outcome.message,
            }
        )
    return {
        "verdict": verdict.verdict,
        "stage": verdict.stage,
        "reason": verdict.reason,
        "message": verdict.message,
        "replay": verdict.replay,
        "cells": len(verdict.cells),
        "unsupported": unsupported,
        "failing_edges": edges,
        "failures": failures,
        "worst": {"share": worst[0], "case": worst[1], "error": worst[2], "bound": worst[3]} if worst[1] else None,
        "track": verdict.track,
        "speedup": to_plain(verdict.speedup),
    }


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    named = (row["library"], row["kernel"], row["task"], row["direction"], row["verdict"], row["reason"])
    if row["verdict"] == "error":
        return (*named, "", row["message"][:80], "", row["seconds"], "", "")
    failing = f"{len(row['failures'])} of {row['cells']}"
    notes = [f"{row['failing_edges']} edge"] * bool(row["failing_edges"])
    notes += [f"{row['unsupported']} unsupported"] * bool(row["unsupported"])
    failing += f" ({', '.join(notes)})" if notes else ""
    first = row["failures"][0]["key"].split("/", 2)[2] if row["failures"] else ""
    worst = row["worst"]
    share = f"{worst['error']:.2g} of {worst['bound']:.2g}" if worst else ""
    speedup = row["speedup"]
    faster = f"{speedup['value']:.2f} ({speedup['claim']}, {speedup['cells']} cells)" if speedup else ""
    return (*named, failing, first, share, row["seconds"], row["track"], faster)


def _tell(report: Report, row: dict[str, Any]) -> None:
    """The first failing cell of each reason in full."""
    if row["verdict"] == "passed":
        return
    report.say("", f"{row['library']} {row['kernel']}, {row['direction']}: {row['reason']}: {row['message'][:600]}")
    counts = collections.Counter(failure["reason"] for failure in row.get("failures", ()))
    told: set[str] = set()
    for failure in row.get("failures", ()):
        if failure["reason"] in told:
            continue
        told.add(failure["reason"])
        report.say(f"  {counts[failure['reason']]} x {failure['reason']}, first at {failure['key']}:")
        report.say(f"    judge: {failure['message'][:500]}")
        report.say(*(f"    plain: {line}" for line in failure.get("plain", ())))
    report.say(f"  {row['replay']}" if row.get("replay") else "")


# --------------------------------------------------------------------------------------------------------------------
# Without the judge
# --------------------------------------------------------------------------------------------------------------------


def _plain(kernel: Kernel, case: dict[str, Any], device: str) -> list[str]:
    """What the wrapper gives in a process of its own, where nothing of the judge watches it."""
    command = [sys.executable, "-m", "benchmarks.libraries", "--device", device, "--case", json.dumps(case)]
    command += ["--plain", f"{kernel.library}/{kernel.task}/{kernel.name}", *(["--untuned"] * kernel.untuned)]
    environment = dict(os.environ) | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment,
                              timeout=_PLAIN_TIMEOUT_S)  # fmt: skip
    except subprocess.TimeoutExpired:
        return [f"no answer in {_PLAIN_TIMEOUT_S} s"]
    lines = [line.removeprefix("PLAIN ") for line in done.stdout.splitlines() if line.startswith("PLAIN ")]
    if done.returncode:
        lines.append(f"exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return lines


def _plain_here(options: argparse.Namespace) -> int:
    library, task_name, name = options.plain.split("/", 2)
    kernel = next(k for k in KERNELS if (k.library, k.task, k.name) == (library, task_name, name))
    kernel = replace(kernel, untuned=options.untuned)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    for line in compare(kernel, from_plain(Case, json.loads(options.case)), device):
        print("PLAIN", line, flush=True)
    return 0


def compare(kernel: Kernel, case: Case, device: str) -> list[str]:
    """Lines that tell how far the library and plain PyTorch are from the formula in fp64, and what it did to its
    inputs. Inputs are the judge's for a public seed.
    """
    task = tasks.find(kernel.task)
    Triton().prepare(device)  # the interpreter as candidates have it
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    module = _imported(kernel)
    backward = case.direction == "backward"
    args = _inputs(task, case, device)
    differentiable = [i for i, s in enumerate(task.arguments(dict(case.dims), case.dtype))
                      if getattr(s, "differentiable", False)]  # fmt: skip
    wide = [a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args]
    outputs = _listed(task.reference(*wide))
    floats = [(tuple(o.shape), case.dtype if o.is_floating_point() else "int64") for o in outputs]
    grads = upstream(floats, _SEED, device) if backward else []
    exact = _run(task.reference, wide, differentiable, [g.double() for g in grads])
    native = _run(task.reference, args, differentiable, [g.clone() for g in grads])
    before = [a.clone() if isinstance(a, torch.Tensor) else a for a in (*args, *grads)]
    try:
        explicit = module.get("backward")
        if backward and explicit is not None:
            got = _listed(explicit(*grads, *args))
        else:
            got = _run(module["run"], args, differentiable, grads)
    except Exception as error:  # noqa: BLE001 - whatever the library raises is the answer
        return [f"raises {type(error).__name__}: {str(error)[:300]}"]
    lines = []
    names = [task.arguments(dict(case.dims), case.dtype)[i].name for i in differentiable]
    for index, (g, n, e) in enumerate(zip(got, native, exact, strict=False)):
        label = f"gradient of {names[index]}" if backward else f"output {index}"
        lines.append(f"{label}: {_apart(g, n, e)}")
    if len(got) != len(exact):
        lines.append(f"{len(got)} outputs instead of {len(exact)}")
    specs = [*(s.name for s in task.arguments(dict(case.dims), case.dtype)), *(f"upstream {i}" for i in range(9))]
    for name, now, was in zip(specs, (*args, *grads), before, strict=False):
        if isinstance(now, torch.Tensor) and not torch.equal(now.nan_to_num(), was.nan_to_num()):
            lines.append(f"{name} was changed by the call, in {int((now != was).sum())} of {now.numel()} elements")
    return lines


def _imported(kernel: Kernel) -> dict[str, Any]:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".py", delete=False) as file:
        file.write(kernel.source)
    module: dict[str, Any] = {"__name__": "candidate", "__file__": file.name}
    exec(compile(kernel.source, file.name, "exec"), module)
    return module


def _inputs(task: Task, case: Case, device: str) -> list[Any]:
    specs = task.arguments(dict(case.dims), case.dtype)
    drawn = draw(specs, case, _SEED, device)
    return [
        value if isinstance(spec, Scalar) or spec.role != "data" else laid_out(value, case.layout, spec)
        for spec, value in zip(specs, drawn, strict=True)
    ]


def _run(function: Any, args: list[Any], differentiable: list[int], grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """Outputs; or gradients, where upstream ones are given."""
    if not grads:
        return _listed(function(*args))
    leaves = [a.detach().requires_grad_(i in differentiable) if isinstance(a, torch.Tensor) else a
              for i, a in enumerate(args)]  # fmt: skip
    outputs = [o for o in _listed(function(*leaves)) if o.requires_grad]
    found = torch.autograd.grad(outputs, [leaves[i] for i in differentiable], grads, allow_unused=True)
    return [torch.zeros_like(leaves[i]) if g is None else g for i, g in zip(differentiable, found, strict=True)]


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _apart(got: torch.Tensor, native: torch.Tensor, exact: torch.Tensor) -> str:
    if got.shape != exact.shape:
        return f"shape {list(got.shape)} instead of {list(exact.shape)}"
    if not exact.numel():
        return "empty, as it should be"
    if got.dtype != native.dtype:
        return f"dtype {got.dtype} instead of {native.dtype}"
    got, native, exact = got.detach(), native.detach(), exact.detach()
    scale = float(exact.double().nan_to_num().square().mean().sqrt()) or 1.0
    error = (got.double() - exact.double()).abs()
    error = torch.where(got.isnan() & exact.isnan() | (got == exact), 0.0, error)
    worst = int(error.nan_to_num(nan=math.inf).flatten().argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), exact.shape)]
    theirs = float(error.square().mean().sqrt()) / scale
    ours = float((native.double() - exact.double()).nan_to_num().square().mean().sqrt()) / scale
    return (
        f"shape {list(exact.shape)}: relative rms error {theirs:.3g}, plain PyTorch's {ours:.3g}; worst at {place}: "
        f"{float(got.flatten()[worst]):.8g}, in fp64 {float(exact.flatten()[worst]):.8g}, "
        f"plain PyTorch {float(native.flatten()[worst]):.8g}"
    )


if __name__ == "__main__":
    sys.exit(main())
