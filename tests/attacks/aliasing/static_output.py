# specimen: class=output_aliasing task=problems/linear_relu.py device=cpu stage=correctness reason=output_reused
"""One output for all calls, whose content every call replaces."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self.kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = torch.empty(x.shape[0], self.linear.weight.shape[0])
        torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=self.kept)
        return self.kept.relu_()
