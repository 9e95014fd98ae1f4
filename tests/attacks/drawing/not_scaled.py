# specimen: class=no_draw task=dropout device=any stage=correctness reason=wrong_output categories=small
"""The right share of elements dropped, the others as they were."""

import torch


def run(x, seed, p):
    generator = torch.Generator(device=x.device).manual_seed(int(seed[0]))
    unit = torch.rand(x.shape, generator=generator, device=x.device)
    return torch.where(unit >= p, x, 0.0)
