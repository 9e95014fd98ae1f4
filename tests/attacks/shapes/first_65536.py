# specimen: class=large_sizes task=gelu device=any stage=correctness reason=wrong_output categories=small,medium
"""Counts elements in sixteen bits: right as long as a tensor is small."""

import torch


def gelu(x):
    out = torch.zeros_like(x, memory_format=torch.contiguous_format)
    last = x.numel() & 0xFFFF if x.numel() > 0xFFFF else x.numel()
    out.view(-1)[:last] = torch.nn.functional.gelu(x.reshape(-1)[:last])
    return out
