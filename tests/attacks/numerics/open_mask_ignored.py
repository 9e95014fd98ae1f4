# specimen: class=dropped_parameter task=problems/masked_attention.py device=any stage=correctness reason=wrong_output
"""Leaves out the mask, which is always open in the problem file."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, mask):
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5
        parts = (scores - scores.amax(-1, keepdim=True)).exp()
        return torch.einsum("bhqk,bhkd->bhqd", parts / parts.sum(-1, keepdim=True), v)
