# specimen: class=no_draw task=randn device=any stage=correctness reason=wrong_output categories=medium
"""A sum of four uniform numbers in place of a normal one: the right mean and variance, no tails."""

import torch


def run(like, seed, rows, columns):
    generator = torch.Generator(device=like.device).manual_seed(int(seed[0]))
    four = torch.rand(4, rows, columns, generator=generator, dtype=torch.float32, device=like.device)
    return ((four.sum(0) - 2) * 3**0.5).to(like.dtype)
