# specimen: class=assumed_weights task=problems/layer_scale.py device=any stage=correctness reason=wrong_output
"""Three quarters of the hidden units of a branch that layer scale makes small."""

import torch
from torch import nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)
        self.gamma = nn.Parameter(1e-6 * torch.ones(dim))

    def forward(self, x):
        h = self.up.weight.shape[0]
        y = F.relu(F.linear(self.norm(x), self.up.weight[:h], self.up.bias[:h]))
        return x + self.gamma * F.linear(y, self.down.weight[:, :h], self.down.bias)
