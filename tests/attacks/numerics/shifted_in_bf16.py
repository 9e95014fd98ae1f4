# specimen: class=systematic_error task=silu device=any stage=correctness reason=wrong_output categories=tiny,small dtypes=bfloat16
"""A constant is added, smaller than a rounding step of most outputs."""

import torch


def silu(x):
    return (torch.nn.functional.silu(x.float()) + 0.004).to(x.dtype)
