# specimen: class=ignored_offset task=gelu device=any stage=correctness reason=wrong_output categories=small,medium
"""Honours strides and forgets where in its storage a tensor begins."""

import torch


def gelu(x):
    start = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    return torch.nn.functional.gelu(start.as_strided(x.shape, x.stride(), 0))
