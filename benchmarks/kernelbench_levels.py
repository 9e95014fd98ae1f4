"""KernelBench's problems through the reader: which can be judged, how exact their oracle is, and which are weak tasks.

    python benchmarks/kernelbench_levels.py --repo PATH [--levels 1,2] [--device cpu] [--own-sizes] [--sweep]

``PATH`` is a checkout of the KernelBench repository. Unless ``--own-sizes`` is given every problem is shrunk to a few
megabytes first, so that both levels run on a CPU in minutes. For each problem the reference runs natively and in fp64
on fresh inputs and changed weights. Printed are the relative error of the native reference against the oracle (largest
difference over largest value) and what makes the problem weak, whatever the candidate: outputs that do not depend on an
input or on the weights, that a copy of an input would match, or that cancel to noise. Exit code 1: some problem cannot
be judged.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from kerneleval.records import Task, UsageError
from kerneleval.tasks.formats import kernelbench
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import shrink

SAME = 1e-4
"""Outputs nearer than this, relative to the largest, count as equal: KernelBench's own tolerance."""
NOISE = 1e-3
"""A native error beyond this says that the outputs are what cancellation left."""


def main() -> int:
    options = arguments()
    torch.set_num_threads(options.threads)
    rows = []
    for path in problems(options.repo, options.levels, options.only):
        row = examine(path, options)
        rows.append(row)
        print(line(row), flush=True)
    print(summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if any(row["reason"] for row in rows) else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--repo", type=Path, required=True, help="checkout of the KernelBench repository")
    parser.add_argument("--levels", default="1,2", help="levels, separated by commas")
    parser.add_argument("--only", default="", help="regular expression on the file's name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--own-sizes", action="store_true", help="at the file's own sizes: needs a large device")
    parser.add_argument("--sweep", action="store_true", help="also choose the sizes of a sweep, and count them")
    parser.add_argument("--mebibytes", type=int, default=8, help="size of a shrunk problem")
    parser.add_argument("--gigaflops", type=float, default=0.5, help="operations of a shrunk problem")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write every row there")
    return parser.parse_args()


def problems(repo: Path, levels: str, only: str) -> list[Path]:
    found: list[Path] = []
    for level in levels.split(","):
        folder = repo / "KernelBench" / f"level{level}"
        if not folder.is_dir():
            raise SystemExit(f"{folder} is no folder: --repo must be a checkout of the KernelBench repository")
        paths = [p for p in folder.glob("*.py") if re.search(only, p.name)]
        found += sorted(paths, key=lambda p: int("".join(re.findall(r"^\d+", p.stem)) or 0))
    return found


def examine(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One problem's row; ``reason`` is empty when it can be judged."""
    started = time.perf_counter()
    row: dict[str, Any] = {"problem": f"{path.parent.name}/{path.stem}", "reason": "", "weak": []}
    try:
        task = kernelbench.read(path)
        row["category"] = task.category
        surveys = Surveys(ProblemFile(path))
        if options.sweep:
            swept = kernelbench.read(path, sweep=True)
            row["sweep"] = len(swept.case_dims) - 1
            row["distributions"] = list(swept.distributions)
        dims = {} if options.own_sizes else shrink(surveys, options.mebibytes << 20, int(options.gigaflops * 1e9))
        row["dims"] = task.case_dims[0][1] | dims
        row |= measure(task, row["dims"], options.device)
    except UsageError as error:
        row["reason"] = str(error).replace(str(path), path.name)
    row["seconds"] = round(time.perf_counter() - started, 2)
    return row


def measure(task: Task, dims: dict[str, int], device: str) -> dict[str, Any]:
    """Errors and dependences of one problem."""
    assert task.build is not None
    problem = task.build(dims, device)
    args, others = problem.inputs(1), problem.inputs(2)
    weights, changed = problem.weights(1), problem.weights(2)
    outputs = problem.reference(args, weights)
    exact = problem.oracle(args, weights)
    error = max((difference(n, o) for n, o in zip(outputs, exact, strict=True)), default=0.0)
    faults = [
        *(f"input {i} does not vary" for i, (a, b) in enumerate(zip(args, others, strict=True)) if unvaried(a, b)),
        *(f"weight {n} does not vary" for n in weights if unvaried(weights[n], changed[n])),
    ]
    if apart(outputs, problem.reference(args, weights)) > 0 and device == "cpu":
        faults.append("a second call gives other outputs")
    weak = [*blind_spots(problem, args, others, outputs, weights, changed)]
    if error > NOISE:
        weak.append("outputs are what cancellation leaves")
    if any(not bool(o.isfinite().all()) for o in exact):
        weak.append("outputs are not finite")
    return {"error": error, "outputs": len(outputs), "weak": weak, "reason": "; ".join(faults)}


def blind_spots(
    problem: ModuleProblem,
    args: list[Any],
    others: list[Any],
    outputs: tuple[torch.Tensor, ...],
    weights: dict[str, torch.Tensor],
    changed: dict[str, torch.Tensor],
) -> Iterator[str]:
    """What a candidate could leave out unseen, even when inputs and weights vary."""

    def same(args: list[Any], weights: dict[str, torch.Tensor]) -> bool:
        return apart(outputs, problem.reference(args, weights)) <= SAME

    if same(others, weights):
        yield "outputs are the same for all inputs"
    elif len(args) > 1:
        for index, value in enumerate(args):
            if isinstance(value, torch.Tensor) and same([*args[:index], others[index], *args[index + 1 :]], weights):
                yield f"outputs do not depend on input {index}"
    learned = [n for n, w in weights.items() if w.is_floating_point() and "running_" not in n]
    if learned and same(args, changed):
        yield "outputs do not depend on the weights"
    else:
        for name in learned:
            if same(args, {**weights, name: changed[name]}):
                yield f"{name} has no influence"
    for index, value in enumerate(args):
        if isinstance(value, torch.Tensor) and any(
            value.shape == o.shape and value.dtype == o.dtype and difference(value, o) <= SAME for o in outputs
        ):
            yield f"a copy of input {index} is right"


def difference(left: torch.Tensor, right: torch.Tensor) -> float:
    """Largest difference over largest value; for integers the share of elements that differ."""
    if not left.numel():
        return 0.0
    if not left.is_floating_point():
        return float((left != right).double().mean())
    scale = float(right.double().abs().max())
    largest = float((left.double() - right.double()).abs().max())
    return largest / scale if scale else largest


def apart(left: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...]) -> float:
    return max(difference(a, b) for a, b in zip(left, right, strict=True))


def unvaried(left: Any, right: Any) -> bool:
    return isinstance(left, torch.Tensor) and left.is_floating_point() and left.numel() > 0 and torch.equal(left, right)


def line(row: dict[str, Any]) -> str:
    if row["reason"]:
        return f"{row['problem']:<90} NOT JUDGED  {row['reason'][:200]}"
    sweep = f"  {row['sweep']} sizes" if "sweep" in row else ""
    weak = f"  weak: {', '.join(row['weak'])}" if row["weak"] else ""
    return f"{row['problem']:<90} {row['category']:<13} error {row['error']:.1e} {row['seconds']:6.2f} s{sweep}{weak}"


def summary(rows: list[dict[str, Any]]) -> str:
    good = [row for row in rows if not row["reason"]]
    errors = sorted(row["error"] for row in good)
    if not errors:
        return f"none of {len(rows)} problems can be judged"
    weak = sum(bool(row["weak"]) for row in good)
    return (
        f"{len(good)} of {len(rows)} problems can be judged; {weak} of them are weak; "
        f"native error: median {errors[len(errors) // 2]:.1e}, largest {errors[-1]:.1e}"
    )


if __name__ == "__main__":
    sys.exit(main())
