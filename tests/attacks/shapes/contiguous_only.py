# specimen: class=ignored_strides task=gelu device=any stage=correctness reason=wrong_output categories=small,medium,edge
"""Reads the storage from its start as if every tensor were contiguous."""

import torch


def gelu(x):
    flat = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())
    if flat.numel() < x.numel():
        flat = x.reshape(-1)
    return torch.nn.functional.gelu(flat[: x.numel()]).view(x.shape)
