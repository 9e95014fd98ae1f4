# specimen: class=crash task=gelu device=any stage=call reason=crash
"""Dereferences a null pointer in the first call."""
import ctypes

import torch


def gelu(x):
    ctypes.string_at(0)
    return torch.nn.functional.gelu(x)
