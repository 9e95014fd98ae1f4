# specimen: class=hard_coded_shapes task=gelu device=any stage=correctness reason=wrong_output
"""Computes whole blocks of 64 and leaves the rest of a row at zero."""

import torch


def gelu(x):
    out = torch.zeros_like(x)
    whole = x.numel() // 64 * 64
    out.view(-1)[:whole] = torch.nn.functional.gelu(x.reshape(-1)[:whole])
    return out
