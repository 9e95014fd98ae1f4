# specimen: class=dependent_draws task=rand device=any stage=correctness reason=dependent_draws categories=medium
"""One stream for all: a seed is the place where it begins, so that neighbours share all but one number."""

import torch


def run(like, seed, rows, columns):
    place = torch.arange(rows * columns, device=like.device) + seed
    z = place * -7046029254386353131
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    unit = ((z >> 40) & 0xFFFFFF).float() / 2**24
    return unit.view(rows, columns).to(like.dtype)
