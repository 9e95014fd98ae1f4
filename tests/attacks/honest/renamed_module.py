# specimen: class=renamed_module task=problems/residual_norm.py device=any verdict=passed
"""Parameters of its own under other names, in the order of the reference's; a buffer more than that; no_grad."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.matrix = nn.Parameter(torch.empty(width, width))
        self.shift = nn.Parameter(torch.empty(width))
        self.gain = nn.Parameter(torch.ones(width))
        self.offset = nn.Parameter(torch.zeros(width))
        self.register_buffer("factor", torch.tensor(float(scale)), persistent=False)
        nn.init.kaiming_uniform_(self.matrix)
        nn.init.zeros_(self.shift)

    @torch.no_grad()
    def forward(self, x):
        total = torch.addmm(self.shift, x, self.matrix.t()).mul_(self.factor).add_(x)
        variance, mean = torch.var_mean(total, -1, correction=0, keepdim=True)
        return (total - mean).mul_(torch.rsqrt(variance + 1e-5)).mul_(self.gain).add_(self.offset)
