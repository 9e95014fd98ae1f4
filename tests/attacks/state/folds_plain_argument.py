# specimen: class=stale_weights task=problems/temperature.py device=any stage=correctness reason=wrong_output
"""Folds the temperature of the first call into weights that it packs by their versions: stale when a later call has another one."""
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = nn.Linear(inner, outer)
        self.key = None
    def forward(self, x, temperature):
        key = (self.layer.weight._version, self.layer.bias._version)
        if self.key != key:
            self.w = (self.layer.weight * temperature).detach().t().contiguous()
            self.b = (self.layer.bias * temperature).detach()
            self.key = key
        return torch.addmm(self.b, x, self.w)
