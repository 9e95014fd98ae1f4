# specimen: class=dropped_parameter task=problems/residual_norm.py device=any stage=correctness reason=wrong_output
"""Has the normalisation's weight and bias in its state and never uses them: they begin as ones and zeros."""

from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.scale = scale

    def forward(self, x):
        return nn.functional.layer_norm(x + self.linear(x) * self.scale, x.shape[-1:])
