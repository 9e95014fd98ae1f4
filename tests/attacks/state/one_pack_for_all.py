# specimen: class=stale_weights task=problems/linear_relu.py device=any stage=correctness reason=wrong_output
"""Packs a module's weights whenever they have changed, but keeps one pack for all modules that there are."""
import torch

_pack = None


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)
        self.seen = None

    def forward(self, x):
        global _pack
        versions = tuple(p._version for p in self.parameters())
        if versions != self.seen:
            _pack = [p.detach().clone() for p in (self.linear.weight.t().contiguous(), self.linear.bias)]
            self.seen = versions
        return torch.relu(torch.addmm(_pack[1], x, _pack[0]))
