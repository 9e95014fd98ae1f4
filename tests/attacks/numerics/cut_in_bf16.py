# specimen: class=systematic_error task=silu device=any stage=correctness reason=wrong_output categories=tiny,small dtypes=bfloat16
"""Stores the upper half of each fp32 number: cut towards zero, where casts round to nearest."""

import torch


def silu(x):
    y = torch.nn.functional.silu(x.float()).contiguous()
    return (y.view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
