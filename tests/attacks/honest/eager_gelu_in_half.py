# specimen: class=half_steps task=gelu device=any verdict=passed directions=forward,backward categories=tiny,small dtypes=bfloat16,float16
"""Every step is rounded to the half type, as model code is run without fused kernels; autograd."""

import torch


def gelu(x):
    return x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))
