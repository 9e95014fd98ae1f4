# specimen: class=constant_output task=problems/clip_by_norm.py device=any stage=correctness reason=wrong_output
"""The number beside the tensor is always the same."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        norm = x.square().sum().sqrt()
        return x * (10.0 / norm).clamp(max=1.0), 39.2
