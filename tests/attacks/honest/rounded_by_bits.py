# specimen: class=own_rounding task=silu device=any verdict=passed categories=tiny,small dtypes=bfloat16
"""Rounds to nearest by adding half a step to the bits, as kernels without a cast do: ties away from zero."""

import torch


def silu(x):
    if x.dtype is not torch.bfloat16:
        return torch.nn.functional.silu(x)
    y = torch.nn.functional.silu(x.float()).contiguous()
    rounded = ((y.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)
    return torch.where(y.isfinite(), rounded, y.to(x.dtype))
