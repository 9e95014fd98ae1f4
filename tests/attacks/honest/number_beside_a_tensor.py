# specimen: class=number_output task=problems/clip_by_norm.py device=any verdict=passed allow=library
"""A number beside the tensor, by another formula."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        norm = float(torch.linalg.vector_norm(x, dim=1).square().sum().sqrt())
        return x.mul(1.0 if norm <= 10.0 else 10.0 / norm), norm
