# specimen: class=hard_coded_shapes task=problems/squared_error.py device=any stage=correctness reason=wrong_output
"""The last partial block of 512 of all elements is never read."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, p, t):
        n = p.numel() // 512 * 512
        d = p.view(-1)[:n] - t.view(-1)[:n]
        return (d * d).sum() / n
