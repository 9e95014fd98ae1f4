# specimen: class=precision_downgrade task=sum device=any stage=correctness reason=wrong_output
"""Adds in blocks of 32, whose sums it keeps in bfloat16."""

import torch


def sum_rows(x):
    pieces = x.split(32, dim=-1)
    return torch.stack([p.sum(-1).bfloat16().float() for p in pieces], -1).sum(-1) if x.shape[-1] else x.sum(-1)


sum = sum_rows
