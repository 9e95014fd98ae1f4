"""The check of the map of peers, on files made up here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks import peers_map
from kerneleval.tasks import find

FILE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, inside, outside, scale):
        super().__init__()
        self.layer = nn.Linear(inside, outside)
        self.scale = scale

    def forward(self, x):
        return {formula}

inside = 4096
outside = 512

def get_init_inputs():
    return [inside, outside, 0.3]
"""


@pytest.mark.parametrize(
    ("task", "formula", "fate"),
    [
        ("linear", "self.layer(x)", "equal"),
        ("linear_relu_divide", "torch.relu(self.layer(x)) / self.scale", "equal"),
        ("linear_sum", "self.layer(x).sum(1)", "reshaped"),
        ("linear", "self.layer(x) + 1", "other"),
        ("linear", "self.layer(x, 3)", "unbound"),
    ],
)
def test_problem_files(task: str, formula: str, fate: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(FILE.format(formula=formula))
    assert peers_map._beside(find(task), peers_map._model(tmp_path / "file.py"))[0] == fate


def test_functions() -> None:
    def beside(task: str, function: object) -> str:
        return peers_map._beside(find(task), peers_map._function(function))[0]

    assert beside("softmax", lambda x, dim: torch.softmax(x, dim)) == "equal"
    assert beside("softmax", torch.log_softmax) == "other"
    assert beside("det", torch.linalg.det) == "equal"
    assert beside("softmax", None) == "unbound"
