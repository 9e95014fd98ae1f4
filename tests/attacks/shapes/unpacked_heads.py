# specimen: class=ignored_strides task=attention device=any stage=correctness reason=wrong_output allow=library categories=tiny,small,medium dtypes=float32,float16
"""Heads that lie between the positions are taken to be all that lies there: one packed projection holds three times as many."""

import torch


def _heads(t):
    B, H, L, D = t.shape
    if t.stride(-1) != 1 or t.stride(1) != D or 0 in t.stride():
        return t.contiguous()
    return t.as_strided(t.shape, (L * H * D, D, H * D, 1), t.storage_offset())


def attention(q, k, v, scale):
    return torch.nn.functional.scaled_dot_product_attention(_heads(q), _heads(k), _heads(v), scale=scale)
