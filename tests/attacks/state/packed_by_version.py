# specimen: class=stale_weights task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Packed weights lie in the class, by version: two modules of the class in one network would share them."""
import torch
from torch import nn

_packed = {}


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        key = self.linear.weight.shape, self.linear.weight._version
        if key not in _packed:
            _packed[key] = self.linear.weight.detach().t().contiguous()
        return torch.relu(torch.addmm(self.linear.bias, x, _packed[key]))
