# specimen: class=range_cut task=problems/hard_sigmoid.py device=any stage=correctness reason=wrong_output allow=library,mixed,custom
"""The lower end of a hard sigmoid left out: it is at -3, and the problem draws from [0, 1)."""

from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x / 6 + 0.5).clamp(max=1.0)
