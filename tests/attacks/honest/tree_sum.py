# specimen: class=other_order task=sum device=any verdict=passed categories=tiny,small,medium
"""Halves the row again and again."""

import torch


def sum_rows(x):
    n = x.shape[1]
    if not n:
        return x.sum(-1)
    width = 1 << (n - 1).bit_length()
    work = torch.zeros(x.shape[0], width, dtype=x.dtype, device=x.device)
    work[:, :n] = x
    while width > 1:
        width //= 2
        work = work[:, :width] + work[:, width:]
    return work[:, 0].clone()


sum = sum_rows
