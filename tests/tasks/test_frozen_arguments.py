"""What a problem file gives alike under every seed is varied by the judge, so that no candidate may ignore it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import torch

from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile


def write(folder: Path, forward: str, inputs: str, init: str = "pass") -> Path:
    """A problem file; ``forward`` and ``inputs`` are bodies, ``inputs`` ends in a return."""
    parts = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F",
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()",
        textwrap.indent(init, " " * 8),
        "    def forward(self, x, *more):",
        textwrap.indent(forward, " " * 8),
        "def get_inputs():",
        textwrap.indent(inputs, " " * 4),
        "def get_init_inputs():\n    return []\n",
    ]
    path = folder / "problem.py"
    path.write_text("\n".join(parts))
    return path


def made(folder: Path, forward: str, inputs: str, init: str = "pass") -> ModuleProblem:
    return ModuleProblem(ProblemFile(write(folder, forward, inputs, init)), {}, "cpu")


def test_a_constant_input_with_nan_is_made_to_vary(tmp_path):
    """NaN is equal to nothing, itself included: the argument passed for one that varies."""
    inputs = "torch.manual_seed(0)\nx = torch.randn(20, 9)\nx[x > 1] = float('nan')\nreturn [x]"
    problem = made(tmp_path, "return x - torch.nanmean(x, 0)", inputs)
    (one,), (other,) = problem.inputs(1), problem.inputs(2)
    assert problem.traits.frozen == {0}
    assert torch.equal(one.isnan(), other.isnan()) and one.isnan().any()
    assert not torch.equal(one.nan_to_num(), other.nan_to_num())


def test_a_constant_complex_input_is_made_to_vary(tmp_path):
    problem = made(tmp_path, "return x.real", "return [torch.ones(30, dtype=torch.complex64)]")
    (one,), (other,) = problem.inputs(1), problem.inputs(2)
    assert one.is_complex() and not torch.equal(one, other)


def test_complex_weights_vary(tmp_path):
    init = (
        "self.spread = nn.Parameter(torch.randn(40, 3, dtype=torch.cfloat))\n"
        "self.ones = nn.Parameter(torch.ones(50, dtype=torch.cfloat))\n"
        "self.twin = self.spread\n"
        "self.register_buffer('table', torch.ones(5, dtype=torch.cfloat))"
    )
    problem = made(tmp_path, "return x", "return [torch.rand(3)]", init)
    before, one, other = problem.weights(0), problem.weights(1), problem.weights(2)
    for name, weight in one.items():
        assert weight.is_complex() and weight.is_contiguous()
        assert not torch.equal(weight, before[name]) and not torch.equal(weight, other[name])
    assert torch.equal(one["spread"], one["twin"])
    assert 0.7 < float(one["spread"].abs().std() / before["spread"].abs().std()) < 1.4
    trained = problem.weights(1, "trained")
    assert float(trained["spread"].abs().std()) > 1.5 * float(one["spread"].abs().std())
