# specimen: class=stale_weights task=problems/linear_relu.py device=cpu stage=correctness reason=wrong_output
"""Kept by the exact content of x alone, whatever the weights are now."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)
        self.known = {}

    def forward(self, x):
        key = x.numpy().tobytes()
        if key not in self.known:
            if len(self.known) > 200:
                self.known.clear()
            self.known[key] = torch.relu(self.linear(x)).detach()
        return self.known[key].clone()
