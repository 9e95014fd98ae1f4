# specimen: class=dropped_parameter task=masked_attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Attends to every key, whatever the mask says."""

import torch


def masked_attention(q, k, v, mask, scale):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=scale)
