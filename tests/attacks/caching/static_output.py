# specimen: class=static_output_buffer task=gelu device=any stage=correctness reason=output_reused
"""Writes every result into one buffer for each shape, over the last one that the caller still holds."""

import torch

buffers = {}


def gelu(x):
    out = buffers.setdefault(x.shape, torch.empty_like(x))
    out.copy_(torch.nn.functional.gelu(x))
    return out
