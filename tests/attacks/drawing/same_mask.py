# specimen: class=no_draw task=dropout device=any stage=correctness reason=dependent_draws categories=small
"""One mask for every seed."""

import torch


def run(x, seed, p):
    unit = torch.rand(x.shape, generator=torch.Generator(device=x.device).manual_seed(7), device=x.device)
    return torch.where(unit >= p, x / (1 - p), 0.0)
