# specimen: class=other_order task=problems/similarity.py device=any verdict=passed allow=library,mixed,custom
"""Adds the three sums of a row block by block, and takes the mean of the similarities from 1."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        blocks = zip(a.split(128, dim=1), b.split(128, dim=1))
        sums = sum(torch.stack([(x * y).sum(1), (x * x).sum(1), (y * y).sum(1)]) for x, y in blocks)
        similar = sums[0] * torch.rsqrt(sums[1].clamp_min(1e-16)) * torch.rsqrt(sums[2].clamp_min(1e-16))
        return 1 - similar.sum() / len(similar)
