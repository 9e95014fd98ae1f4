"""Problem files that do not settle what is right, or for which anything is right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kerneleval import devices
from kerneleval.judge.oracle import reference
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.judge.probes.void import void
from kerneleval.records import Case, NotJudgedError, Protocol, UsageError
from kerneleval.tasks import open_task, shapes
from kerneleval.tasks.formats import kernelbench
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.soundness import astray, limit_of

FILE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n))
        self.last = nn.Parameter(torch.randn(n))
    def forward(self, x):
        {forward}

rows, n = 6, 24
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [n]
"""


def bound(folder: Path, forward: str, inputs: str = "torch.rand(rows, n)") -> BoundCase:
    """The first case of a problem with this body, under changed weights."""
    path = folder / "problem.py"
    path.write_text(FILE.format(forward=forward.replace("\n", "\n        "), inputs=inputs))
    task = open_task(str(path))
    case = shapes.plan(task, Protocol(), shapes.Budget(memory_bytes=1 << 30, flops=1 << 60))[0]
    problem = task.build(case.dims_map, "cpu")
    made = BoundCase(task, case, devices.find("cpu"), tf32=False, problem=problem)
    made.weights = problem.weights(5)
    return made


@pytest.mark.parametrize(
    "forward",
    [
        "torch.manual_seed(7)\nreturn x + 0.5 * torch.randn_like(x)",
        "torch.manual_seed(7)\nreturn x + 1e-4 * torch.randn_like(x)",
        "made = torch.Generator().manual_seed(3)\nreturn x * torch.rand(x.shape, generator=made)",
        "with torch.random.fork_rng():\n    torch.manual_seed(1)\n    return F.dropout(x, 0.1)",
        "torch.manual_seed(7)\nreturn (x + torch.empty_like(x).uniform_()).argmax(-1)",
    ],
)
def test_noise_under_a_seed_of_forwards_own_is_noise(tmp_path, forward):
    with pytest.raises(NotJudgedError, match="random numbers that forward draws"):
        bound(tmp_path, forward).draw(1)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    "forward",
    [
        "return torch.sin(x * 1e8)",
        "return torch.cat([x * 3000, torch.cos(x * 1e9)], -1)",
        "y = x\nfor _ in range(30): y = 3.99 * y * (1 - y)\nreturn y",
        "return x, torch.frac(x * 1e7)",
    ],
)
def test_what_rounding_decides_is_not_judged(tmp_path, forward):
    with pytest.raises(NotJudgedError, match=r"differs from the same module in fp64 by .* Rounding decides"):
        bound(tmp_path, forward).draw(1)


@pytest.mark.parametrize(
    "forward",
    [
        "return F.softmax(x @ self.w, -1) * 100",
        "return torch.linalg.inv(self.w) @ self.w + 0 * x.sum()",
        "return torch.sin(x * 100)",
        "return (x @ self.w).bfloat16().float()",
        "return F.layer_norm(x @ self.w, (x.shape[-1],))",
    ],
)
def test_rounding_alone_is_no_reason(tmp_path, forward):
    bound(tmp_path, forward).draw(1)


@pytest.mark.parametrize(("dtype", "off"), [(torch.bfloat16, 0.03), (torch.float16, 0.005), (torch.float32, 5e-4)])
def test_how_far_native_may_be_follows_the_type(dtype, off):
    exact = torch.linspace(-1, 1, 64, dtype=torch.float64)
    limit = limit_of([torch.zeros(1, dtype=dtype)])
    assert astray([exact * (1 + off)], [exact], limit) is None
    assert astray([exact * (1 + 4 * off)], [exact], limit) is not None


@pytest.mark.parametrize(
    "forward",
    [
        "top = (x @ self.w).amax(1, keepdim=True)\nreturn F.gelu(top - top.mean(1, keepdim=True))",
        "return torch.softmax(x.mean(1, keepdim=True), 1)",
        "return self.last.expand(x.shape) + torch.zeros_like(x)",
        "return torch.sigmoid(x * x).clamp(min=1)",
        "return torch.ones_like(x).argmax(1)",
    ],
)
def test_a_task_whose_outputs_do_not_depend_on_its_inputs_is_void(tmp_path, forward):
    with pytest.raises(NotJudgedError, match=r"is a void task at kernelbench:problem.*outputs do not depend on"):
        void(bound(tmp_path, forward))


def test_a_task_that_is_void_on_its_own_inputs_alone_is_weak(tmp_path):
    (finding,) = void(bound(tmp_path, "return torch.relu(x - 2)"))
    assert finding.level == "warn" and "only under large_scale" in finding.message


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return 1e4 + x", "torch.rand(rows, n)"),
        ("return self.w[x]", "torch.arange(n)"),
        ("return x.argmax(1)", "torch.rand(rows, n)"),
    ],
)
def test_other_tasks_are_not_void(tmp_path, forward, inputs):
    assert not void(bound(tmp_path, forward, inputs))


def test_where_no_size_can_be_varied_a_sweep_says_so(tmp_path):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return x * 2", inputs="torch.rand(*map(int, '4 24'.split()))")
    path.write_text(text.replace("rows, n = 6, 24", "n = int('24')"))
    task = open_task(str(path), sweep=True)
    assert len(task.case_dims) == 1
    assert [f.level for f in task.findings] == ["warn"] and "no other sizes" in task.findings[0].message
    assert not open_task(str(path)).findings


def test_sizes_that_no_sweep_varies_are_told(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(FILE.format(forward="return x * 2", inputs="torch.rand(rows, *map(int, '4 24'.split()))"))
    (finding,) = open_task(str(path), sweep=True).findings
    assert finding.level == "warn" and "dim 2 of x (24); a candidate may be wrong" in finding.message
    assert not open_task(str(path)).findings


def test_what_distributions_fell_out_is_said(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(FILE.format(forward="return torch.log(x)", inputs="torch.rand(rows, n)"))
    (finding,) = open_task(str(path)).findings
    assert finding.level == "info" and finding.message.startswith("not judged on negative, outlier, padded inputs")


def test_a_file_that_fails_at_small_sizes_says_what_was_not_tried(tmp_path, monkeypatch):
    def fails(_surveys):
        raise UsageError("problem.py, line 9: forward needs 3000 rows\nand more")

    monkeypatch.setattr(kernelbench, "safe_distributions", fails)
    path = tmp_path / "problem.py"
    path.write_text(FILE.format(forward="return x * 2", inputs="torch.rand(rows, n)"))
    (finding,) = open_task(str(path)).findings
    assert finding.level == "warn" and finding.message.endswith("it fails: problem.py, line 9: forward needs 3000 rows")
    with pytest.raises(UsageError, match="3000 rows"):
        open_task(str(path), sweep=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_problems_in_half_types_are_judged_on_other_values_too(tmp_path, dtype):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return F.relu(x @ self.w)", inputs=f"torch.rand(rows, n).to(torch.{dtype})")
    path.write_text(text.replace("torch.randn(n, n))", f"torch.randn(n, n).to(torch.{dtype}))"))
    task = open_task(str(path))
    assert task.distributions == ("standard", "large_scale", "small_scale", "negative", "outlier", "trained")
    assert not task.findings


def test_a_file_above_the_budget_is_judged_at_smaller_sizes(tmp_path):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return torch.relu(x)", inputs="torch.rand(rows, n)")
    path.write_text(text.replace("6, 24", "512, 64"))
    task, budget = open_task(str(path), sweep=True), shapes.Budget(memory_bytes=100_000, flops=1 << 60)
    protocol = Protocol(shapes="sweep")
    cases = shapes.plan(task, protocol, budget)
    assert cases and all(case.dims_map["rows"] < 512 for case in cases)
    assert any("rows=512" in line and "is left out" in line for line in shapes.left_out(task, protocol, budget))
    with pytest.raises(UsageError, match="--shapes sweep judges smaller sizes"):
        shapes.plan(open_task(str(path)), Protocol(), budget)
    with pytest.raises(UsageError, match="all other sizes found"):
        shapes.plan(task, protocol, shapes.Budget(memory_bytes=8, flops=1))


@pytest.mark.parametrize(
    ("takes", "given", "want"),
    [
        ("a, b=2", "[[], {'a': 3, 'b': 0.5}]", [3, 0.5]),
        ("a, b=2, c=4", "[[3], {'c': 5}]", [3, 2, 5]),
        ("a, b", "[[3, 4], {}]", [3, 4]),
        ("sizes, options", "[[3, 4], {'deep': True}]", [[3, 4], {"deep": True}]),
    ],
)
def test_arguments_and_keywords_of_the_constructor(tmp_path, takes, given, want):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return x", inputs="torch.rand(2, 3)").replace("return [n]", f"return {given}")
    path.write_text(text.replace("self, n):", f"self, {takes}, n=3):"))
    assert ModuleProblem(ProblemFile(path), {}, "cpu").init_args[: len(want)] == want


@pytest.mark.parametrize(
    ("inputs", "init", "message"),
    [
        ("{torch.rand(4), 3}", "", "get_inputs.. gives a set that holds tensors; tuples, lists and dicts"),
        ("{1: torch.rand(4)}, 3", "", "get_inputs.. gives a dict that holds tensors; tuples, lists and dicts"),
        ("nn.utils.rnn.pack_sequence([torch.rand(4, 3)])", "", "gives a PackedSequence that holds tensors"),
        ("torch.rand(4, 8)", "self.fc = nn.LazyLinear(3)", r"weight fc.weight of Model has no shape before the first"),
        ("torch.rand(4, 8)", "self.bn = nn.LazyBatchNorm1d()", r"weight bn.weight of Model has no shape"),
    ],
)
def test_what_cannot_be_judged_is_said_in_one_true_sentence(tmp_path, inputs, init, message):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return x", inputs=inputs)
    path.write_text(text.replace("super().__init__()", f"super().__init__(); {init}"))
    with pytest.raises(UsageError, match=message):
        open_task(str(path), sweep=True)


WIDE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 512, 3, padding=1), nn.ReLU(), nn.Conv2d(512, 512, 3, padding=1))
        self.head = nn.Linear(512 * 56 * 56, 64)
    def forward(self, x):
        return self.head(self.conv(x).flatten(1))

batch, classes = 10, 1000
def get_inputs():
    return [torch.randn(batch, 3, 56, 56)]
def get_init_inputs():
    return [classes]
"""


def test_a_file_without_a_small_miniature_is_not_tried_while_it_is_read(tmp_path, monkeypatch):
    def tried(*_):
        raise AssertionError("it was run on the host")

    monkeypatch.setattr("kerneleval.tasks.formats.distributions.ModuleProblem", tried)
    path = tmp_path / "problem.py"
    path.write_text(WIDE)
    task = open_task(str(path))
    assert task.distributions == ("standard", "large_scale", "small_scale", "negative", "outlier", "trained")
    assert not task.findings


@pytest.mark.parametrize("name", ["hidden_layer_sizes", "layer_dims", "layer_width"])
def test_sizes_of_layers_are_sizes(tmp_path, name):
    path = tmp_path / "problem.py"
    text = FILE.format(forward="return torch.relu(x @ self.w)", inputs="torch.rand(rows, n)")
    text = text.replace("def __init__(self, n):", "def __init__(self, n, sizes):").replace(
        "randn(n, n))", "randn(n, sizes[0]))"
    )
    path.write_text(
        text.replace("rows, n = 6, 24", f"rows, n = 6, 24\n{name} = [48, 3]").replace("[n]", f"[n, {name}]")
    )
    task = open_task(str(path), sweep=True)
    assert len({dims[f"{name}[0]"] for _, dims in task.case_dims}) > 2
    assert {dims[f"{name}[1]"] for _, dims in task.case_dims if f"{name}[1]" in dims} <= {3}, "which no shape follows"


def test_a_file_with_nan_is_not_void(tmp_path):
    """Two equal tensors that hold NaN passed for different ones, under which no output changed."""
    inputs = "torch.full((rows, n), 2.0).masked_fill(torch.eye(rows, n) > 0, float('nan'))"
    assert not void(bound(tmp_path, "return x * 3", inputs))


def test_attention_with_scores_about_65536_is_judged_on_large_inputs(tmp_path):
    """Few digits are left behind their point, and a number put for hidden scores passed where they were left out."""
    path = tmp_path / "problem.py"
    forward = "return (x @ x.flip(0).mT / 2).softmax(-1) @ x"
    path.write_text(FILE.format(forward=forward, inputs="torch.randn(4, 40, 24)"))
    task = open_task(str(path))
    assert "large_scale" in task.distributions
    case = Case(
        task=task.name, direction="forward", dims=(), dtype="float32", layout="contiguous", distribution="large_scale"
    )
    problem = task.build({}, "cpu")
    args = problem.inputs(1, "large_scale")
    assert reference.expect(task, case, args, problem=problem, weights=problem.weights(1)).widest.outputs
