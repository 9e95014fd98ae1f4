"""The corpus as KernelBench is given it: every pair compiles and means the task, and its process is read truly.

KernelBench itself needs a GPU; a checkout made here, with an entry point of the same name, stands for it.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.kernelbench_attacks import reading
from benchmarks.kernelbench_pairs import NotTranslated, translate
from benchmarks.kernelbench_process import PRELUDE, evaluate
from tests.attacks.specimens import Specimen, collect

SPECIMENS = [s for s in collect("cuda") if s.path.parent.name != "far"]  # KernelBench has no such sizes

EVAL = """
import types
import torch


def eval_kernel_against_ref(problem, candidate, device=None, **others):
    there = {}
    exec(problem, there)
    exec(candidate, there)
    with torch.no_grad():
        inputs = there["get_inputs"]()
        theirs, ours = there["ModelNew"]()(*inputs), there["Model"]()(*inputs)
    right = torch.allclose(theirs, ours, atol=1e-4, rtol=1e-4)
    return types.SimpleNamespace(compiled=True, correctness=right, runtime=1.0, ref_runtime=2.0,
                                 metadata={"correctness_issue": "Output mismatch"} if not right else {})
"""
TORCH = """
import contextlib
import types

cuda = types.SimpleNamespace(is_available=lambda: False)
nn = types.SimpleNamespace(Module=type("Module", (), {"__call__": lambda self, *given: self.forward(*given)}))
device, no_grad = str, contextlib.nullcontext


def rand(count):
    return [0.5] * count
"""
"""In PyTorch's place where a candidate ends the process: loading it takes two seconds."""

CHECKER = """
def validate_kernel_static(code, backend, precision):
    errors = ["Missing __global__ kernel definition"] * ("__global__" not in code and backend == "cuda")
    return not errors, errors, []
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package = tmp_path_factory.mktemp("checkout") / "src" / "kernelbench"
    package.mkdir(parents=True)
    for name, text in (("__init__", ""), ("eval", EVAL), ("kernel_static_checker", CHECKER)):
        (package / f"{name}.py").write_text(text)
    return package.parent


@pytest.fixture(scope="module")
def light(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("light") / "src"
    shutil.copytree(checkout, folder)
    (folder / "torch.py").write_text(TORCH)
    return folder


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("specimen", SPECIMENS, ids=[s.name for s in SPECIMENS])
def test_pairs_compile_and_the_problem_runs(specimen: Specimen, tmp_path: Path) -> None:
    try:
        pair = translate(specimen, "small")  # the size at which it is measured takes four times as long
    except NotTranslated as why:
        assert "KernelBench" in str(why)
        return
    compile(pair.candidate, "candidate", "exec")
    assert "specimen:" not in pair.candidate
    problem: dict = {}
    exec(compile(pair.problem, "problem", "exec"), problem)
    torch.manual_seed(0)
    given = [x.float() if isinstance(x, torch.Tensor) else x for x in problem["get_inputs"]()]  # as KernelBench does
    model = problem["Model"](*problem["get_init_inputs"]())
    wanted = _outputs(model, given)
    assert sum(one.numel() for one in wanted) > 0
    assert all(bool(one.isfinite().all()) for one in wanted)
    if specimen.verdict == "passed" and specimen.device == "any" and pair.backend != "triton":
        file = tmp_path / "candidate.py"  # torch.jit.script and Triton read a function's source
        file.write_text(pair.candidate)
        spec = importlib.util.spec_from_file_location("candidate", file)
        assert spec is not None
        assert spec.loader is not None
        candidate = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(candidate)
        new = candidate.ModelNew(*problem["get_init_inputs"]())
        with torch.no_grad():  # KernelBench makes both from one seed, which gives other weights to another module
            for theirs, ours in zip(new.parameters(), model.parameters(), strict=True):
                theirs.copy_(ours)
        for theirs, ours in zip(_outputs(new, given), wanted, strict=True):
            assert torch.allclose(theirs, ours, atol=1e-4, rtol=1e-4)


def _outputs(model: torch.nn.Module, given: list[Any]) -> list[torch.Tensor]:
    given = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
    outputs = model(*given)
    if isinstance(outputs, dict):
        return [outputs[name] for name in sorted(outputs)]
    return [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)


OTHERWISE_JUDGED = ("dropout", "matmul_w8a8", "rand", "randn", "randperm", "scaled_fp8_quant", "scaled_int8_quant")
OTHERWISE_JUDGED += ("topk_sigmoid_renormalized",)
NOT_FLOATING = ("clip_by_norm.py", "embedding.py", "fixed_labels.py", "masked_attention.py")


def test_no_specimen_is_lost() -> None:
    def translated(specimen: Specimen) -> bool:
        try:
            return bool(translate(specimen).candidate)
        except NotTranslated:
            return False

    left = {s.name for s in SPECIMENS if not translated(s)}
    assert {n for n in left if n.startswith("exhaustion/")} == {
        f"exhaustion/{n}" for n in ("file_flood", "fork_bomb", "hang_in_backward", "memory_bomb", "output_flood")
    }
    # KernelBench compares with allclose, which has no meaning for draws and places, and its problems do not
    # quantise
    ours = {s.name for s in SPECIMENS if s.task in OTHERWISE_JUDGED}
    # ... nor have integers or masks among their inputs, or numbers among their outputs
    ours |= {s.name for s in SPECIMENS if Path(s.task).name in NOT_FLOATING}
    left -= ours
    assert not [s for s in SPECIMENS if s.name in left and s.verdict == "passed"]
    forward = {s.name for s in SPECIMENS if s.name in left and "backward" not in s.directions}
    assert all(n.startswith("exhaustion/") for n in forward), forward


PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(8)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow(every=7)
@pytest.mark.parametrize(
    ("body", "verdict", "why"),
    [
        ("return x + x", "accepted", "correct, speedup 2.00"),
        ("return x", "rejected", "Output mismatch"),
        ("import os; os._exit(0)", "rejected", "exit code 0 and no result"),
        ("import os; os.abort()", "rejected", "killed by SIGABRT"),
        ("import time; time.sleep(600)", "rejected", "no answer in 5 s"),
        ("raise ValueError('no')", "rejected", "exit code 1 and no result"),
        ('print(\'result-0 {"result": {"compiled": true}}\'); import os; os._exit(0)', "rejected", "exit code 0"),
    ],
)
def test_the_process_is_read_truly(checkout: Path, light: Path, body: str, verdict: str, why: str) -> None:
    root = checkout if body.startswith("return") else light
    candidate = f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {body}\n"
    found = reading(evaluate(root, PROBLEM, candidate, "cuda", timeout_s=5 if "sleep" in body else 100))
    assert (found["verdict"], found["why"][: len(why)]) == (verdict, why)
    assert found["static"] == "Missing __global__ kernel definition"


def test_an_evaluation_that_gives_up_is_no_acceptance() -> None:
    base = {"valid": True, "errors": [], "warnings": []}
    assert reading(base | {"result": None})["verdict"] == "rejected"
    failed = {"compiled": False, "correctness": False, "runtime": -1.0, "ref_runtime": -1.0,
              "metadata": {"compilation_error": "no"}}  # fmt: skip
    assert reading(base | {"result": failed})["why"] == "does not load: no"
    fast = failed | {"compiled": True, "correctness": True, "runtime": 1.0, "ref_runtime": 20.0,
                     "metadata": {"excessive_speedup": "True"}}  # fmt: skip
    assert reading(base | {"result": fast})["why"] == "correct, speedup 20.00, flagged as excessive"


def test_what_is_not_installed_is_stood_in_for() -> None:
    code = (
        "import sys\nsys.modules['pydantic'] = sys.modules['openai'] = None\n"
        + PRELUDE.format(root="/nowhere")
        + "from openai import OpenAI\nfrom pydantic import BaseModel\n"
        + "class R(BaseModel):\n    right: bool = False\n    told: dict = {}\n"
        + "one = R(right=True); one.told['x'] = 1\nprint(one.right, R().right, R().told)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True False {}"
