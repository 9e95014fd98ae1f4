"""Problem files whose outputs are not decided by inputs and weights: refused, each in one true sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.records import NotJudgedError
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile

FILE = """
import torch
from torch import nn

seen = []

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}

def get_inputs():
    return [torch.randn(6, 8)]
def get_init_inputs():
    return []
"""


def reference(folder: Path, init: str, forward: str) -> ModuleProblem:
    """The problem with these bodies, after one call of its reference."""
    path = folder / "problem.py"
    lines = {"init": init.replace("\n", "\n        "), "forward": forward.replace("\n", "\n        ")}
    path.write_text(FILE.format(**lines))
    problem = ModuleProblem(ProblemFile(path), {}, "cpu")
    problem.reference(problem.inputs(4), problem.weights(4))
    return problem


CACHE = (
    'self.register_buffer("k", torch.zeros(64, 8))\nself.pos = 0',
    "self.k[self.pos : self.pos + 6] = x\nself.pos += 6\n"
    "return torch.softmax(x @ self.k[: self.pos].T, -1) @ self.k[: self.pos]",
)
FULL = CACHE[0].replace("64", "6"), CACHE[1]


@pytest.mark.parametrize(
    ("init", "forward", "changed"),
    [
        (
            'self.register_buffer("ema", torch.ones(1))',
            "self.ema.lerp_(x.abs().mean(), 0.1)\nreturn x / self.ema",
            "ema",
        ),
        ("self.last = torch.zeros(6, 8)", "x, self.last = x - self.last, x\nreturn x", "last"),
        ("self.calls = 0", "self.calls += 1\nreturn x * self.calls", "calls"),
        ("self.lin = nn.utils.spectral_norm(nn.Linear(8, 8))", "return self.lin(x)", "lin.weight, lin.weight_u"),
        ("pass", "seen.append(0)\nreturn x * len(seen)", "something outside of Model"),
        (*CACHE, "pos, k of Model"),
        (*FULL, "pos, k of Model"),
    ],
)
def test_outputs_that_depend_on_earlier_calls_are_refused(tmp_path, init, forward, changed):
    with pytest.raises(NotJudgedError, match=rf"depend on the calls before: forward changes {changed}") as refused:
        reference(tmp_path, init, forward)
    assert refused.value.reason == "state"


@pytest.mark.parametrize(
    ("init", "forward", "changes"),
    [
        ("self.norm = nn.BatchNorm1d(8)", "return self.norm(x)", "norm.running_mean"),
        ("self.calls = 0", "self.calls += 1\nreturn x * 2", "calls"),
        ("pass", "self.register_buffer('late', x[:1])\nself.w = nn.Parameter(x[:2])\nreturn x * 2", "late"),
        (
            "self.register_buffer('seen', torch.zeros(1))",
            "self.seen = torch.cat([self.seen, x[:1, 0]])\nreturn -x",
            "seen",
        ),
        ("self.table = None", "self.table = torch.arange(8.0)\nreturn x * self.table", "table"),
        ("self.norm = nn.BatchNorm1d(8).eval()", "return self.norm(x)", ""),
        ("self.lin = nn.utils.spectral_norm(nn.Linear(8, 8)).eval()", "return self.lin(x)", "lin.weight"),
    ],
)
def test_state_on_which_no_output_depends_does_no_harm(tmp_path, init, forward, changes):
    found = reference(tmp_path, init, forward).changes
    assert changes in found if changes else not found


@pytest.mark.parametrize(
    "keep",
    [
        'self.register_buffer("proj", torch.randn(8, 5), persistent=False)',
        "self.inner = nn.Module()\nself.inner.proj = [torch.randn(8, 5)]\nself.proj = self.inner.proj[0]",
    ],
)
def test_random_tensors_outside_the_state_dict_are_refused(tmp_path, keep):
    with pytest.raises(NotJudgedError, match=r"outside its state_dict, .* Keep them with register_buffer") as refused:
        reference(tmp_path, keep, "return x @ self.proj")
    assert refused.value.reason == "random"


def test_other_buffers_outside_the_state_dict_are_the_same_for_every_candidate(tmp_path):
    keep = 'self.register_buffer("proj", torch.arange(40.0).view(8, 5), persistent=False)'
    reference(tmp_path, keep, "return x @ self.proj")


@pytest.mark.parametrize(
    "forward",
    [
        "return x[x > 0.5], (x > 0.5).nonzero()",
        "return x.mean(0), torch.unique(x.round())",
        "return x[: int(x.abs().sum()) % 5]",
    ],
)
def test_outputs_whose_sizes_depend_on_values_are_refused(tmp_path, forward):
    with pytest.raises(NotJudgedError, match=r"sizes of its outputs depend on the values of its inputs \(output \d is"):
        reference(tmp_path, "pass", forward)


def test_sizes_inside_may_depend_on_values(tmp_path):
    reference(
        tmp_path, "pass", "y = x.clone()\ny[x > 0] = x[x > 0] * 2\nreturn y, x[: int(x.abs().sum().clamp(max=3))]"
    )
