# specimen: class=fast_path task=sum device=any verdict=passed
"""A product with ones for long rows, a plain sum for others: both are right."""

import torch


def sum_rows(x):
    if x.shape[-1] >= 64 and x.is_contiguous():
        return (x @ torch.ones(x.shape[-1], 1, dtype=x.dtype, device=x.device)).squeeze(-1)
    return x.sum(dim=-1)


sum = sum_rows
