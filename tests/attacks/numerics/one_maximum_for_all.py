# specimen: class=unstable_formula task=problems/softmax.py device=any stage=correctness reason=wrong_output
"""One maximum for the whole tensor: rows that lie 90 below it are 0 / 0."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.max())
        return e / e.sum(1, keepdim=True)
