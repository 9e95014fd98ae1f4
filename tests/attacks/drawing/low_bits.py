# specimen: class=dependent_draws task=rand device=any stage=correctness reason=dependent_draws categories=medium
"""Of the seed only the lowest 16 bits count."""

import torch


def run(like, seed, rows, columns):
    generator = torch.Generator(device=like.device).manual_seed(int(seed) & 0xFFFF)
    return torch.rand(rows, columns, generator=generator, dtype=like.dtype, device=like.device)
