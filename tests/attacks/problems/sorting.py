"""Values and order of a sort, a median and its place, and what lies above the mean."""

import torch
import torch.nn as nn


class Model(nn.Module):
    """Values and order of a sort, the median, and how many are above the mean."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        v, i = torch.sort(x, dim=1)
        med = x.median(dim=1)
        return v, i, med.values, med.indices, (x > x.mean(1, keepdim=True)).sum(1), x > 0.5


def get_inputs():
    return [torch.rand(40, 501)]


def get_init_inputs():
    return []
