"""Problem files on a GPU: draws with other outcomes, and code that has tensors of the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.module_problem import ModuleProblem

pytestmark = pytest.mark.gpu

FILE = """
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(16, 8{made}))
    def forward(self, x, ids):
        return x + self.w[ids]
def get_inputs():
    return [torch.randn(600, 8{made}), torch.randint(0, 16, (600,){made})]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("made", ["", ", generator=torch.Generator().manual_seed(torch.initial_seed())"])
def test_draws_have_other_outcomes(tmp_path: Path, made: str) -> None:
    path = tmp_path / "problem.py"
    path.write_text(FILE.format(made=made))
    problem = read(path, sweep=True).build({}, "cuda")
    assert isinstance(problem, ModuleProblem) and problem.skewed
    x, ids = problem.inputs(1)
    assert x.is_cuda and ids.is_cuda and ids.bincount(minlength=16).max() < 200
    (ordered, _), (_, skewed) = problem.inputs(1, "sorted"), problem.inputs(1, "skewed")
    assert not torch.equal(x, ordered) and torch.equal(x.sort(-1).values, ordered.sort(-1).values)
    assert skewed.bincount(minlength=16).max() > 300
