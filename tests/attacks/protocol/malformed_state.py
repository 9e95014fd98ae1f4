# specimen: class=protocol_forgery task=problems/linear_relu.py device=any stage=load reason=protocol
"""Names a state whose shape is no list of numbers, to break the judge that reads it."""

import torch
from torch import nn


class _Odd:
    shape = ("many", "rows")
    dtype = "torch.float32"


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def state_dict(self, *args, **kwargs):
        return {"linear.weight": _Odd()}

    def forward(self, x):
        return torch.relu(self.linear(x))
