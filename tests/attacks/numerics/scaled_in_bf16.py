# specimen: class=systematic_error task=gelu device=any stage=correctness reason=wrong_output categories=tiny,small dtypes=bfloat16
"""Every output is 0.4 % too large: one rounding step of bfloat16."""

import torch


def gelu(x):
    return (torch.nn.functional.gelu(x.float()) * 1.004).to(x.dtype)
