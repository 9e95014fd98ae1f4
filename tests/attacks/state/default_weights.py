# specimen: class=assumed_weights task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Makes its own weights from a guessed seed, beside the ones that it was given."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        torch.manual_seed(0)
        self.__dict__["guess"] = nn.Linear(inner, outer).requires_grad_(False)

    def forward(self, x):
        return torch.relu(self.guess.to(x.device)(x))
