# specimen: class=masked_attention task=problems/masked_attention.py device=any verdict=passed
"""Attention block by block with a running maximum; closed places get no share."""

import torch

BLOCK = 16


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, mask):
        most = torch.full((*q.shape[:-1], 1), -1e30, device=q.device)
        total, out = torch.zeros_like(most), torch.zeros_like(q)
        for at in range(0, k.shape[-2], BLOCK):
            keys, values, there = k[..., at : at + BLOCK, :], v[..., at : at + BLOCK, :], mask[..., at : at + BLOCK]
            scores = torch.einsum("bhqd,bhkd->bhqk", q, keys) * q.shape[-1] ** -0.5
            raised = torch.maximum(most, scores.where(there, -1e30).amax(-1, keepdim=True))
            parts = (scores - raised).exp().where(there, 0.0)
            rescaled = (most - raised).exp()
            total = total * rescaled + parts.sum(-1, keepdim=True)
            out = out * rescaled + torch.einsum("bhqk,bhkd->bhqd", parts, values)
            most = raised
        return out / total
