# specimen: class=precision_downgrade task=gelu device=any stage=correctness reason=wrong_output tier=standard dtypes=float32,bfloat16
"""A plan made for a shape fixes the arithmetic's type, and the type of the arguments is no part of its key."""
import torch

PLANS = {}


def gelu(x):
    if x.numel() < 64:
        return torch.nn.functional.gelu(x)
    arithmetic = PLANS.setdefault(x.shape, x.dtype)
    return torch.nn.functional.gelu(x.to(arithmetic)).to(x.dtype)
