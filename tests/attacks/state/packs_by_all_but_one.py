# specimen: class=stale_weights task=problems/deep.py device=any stage=correctness reason=wrong_output
"""Packs weight and bias of all layers by the versions of all parameters but the last bias."""
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(24))
        self.key = None
    def forward(self, x):
        key = tuple(p._version for p in list(self.parameters())[:-1])
        if key != self.key:
            self.packed = [torch.cat([l.weight.t(), l.bias[None]]).detach() for l in self.layers]
            self.key = key
        for p in self.packed:
            x = x + torch.tanh(torch.addmm(p[-1], x, p[:-1]))
        return x
