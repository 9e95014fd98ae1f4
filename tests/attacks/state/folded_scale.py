# specimen: class=folded_weights task=problems/residual_norm.py device=any stage=correctness reason=wrong_output
"""Folds the factor into a copy of the weights at the first call and keeps that copy."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = scale
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            self.folded = self.linear.weight.detach() * self.scale
        return self.norm(x + x @ self.folded.t() + self.linear.bias * self.scale)
