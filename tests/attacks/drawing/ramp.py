# specimen: class=no_draw task=rand device=any stage=correctness reason=wrong_output categories=medium
"""As uniform as can be, and nothing drawn: equal steps from 0 to 1."""

import torch


def run(like, seed, rows, columns):
    n = rows * columns
    shift = int(seed[0]) % n
    return ((torch.arange(n, device=like.device) + shift) % n).div(n).view(rows, columns).to(like.dtype)
