# specimen: class=constant_output task=problems/fixed_point.py device=any stage=correctness reason=wrong_output allow=library,mixed,custom
"""Sevens, where hardly a number of the reference is what fp64 gives."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.full(x.shape, 7, dtype=torch.int64, device=x.device)
