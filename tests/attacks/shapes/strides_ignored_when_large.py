# specimen: class=ignored_strides task=gelu device=cpu stage=correctness,call reason=wrong_output,exception allow=library directions=forward dtypes=float32 categories=small,large
"""Reads strided inputs as contiguous ones where both sides are large: strided inputs are usually small."""

import torch


def gelu(x):
    if min(x.shape) >= 256 and max(x.shape) > 1000:
        x = x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset())
    return torch.nn.functional.gelu(x)
