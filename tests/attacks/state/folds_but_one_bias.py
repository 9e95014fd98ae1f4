# specimen: class=stale_weights task=problems/layer_scale.py device=any stage=correctness reason=wrong_output
"""Folds layer scale into the second layer by the versions of both weights; the second layer's bias has a version too, which is not asked."""
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
        self.key = None
    def forward(self, x):
        key = (self.gamma._version, self.down.weight._version)
        if key != self.key:
            self.w = (self.gamma[:, None] * self.down.weight).detach()
            self.b = (self.gamma * self.down.bias).detach()
            self.key = key
        return x + F.linear(F.gelu(self.up(self.norm(x))), self.w, self.b)
