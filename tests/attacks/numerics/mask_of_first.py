# specimen: class=dropped_parameter task=masked_attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Takes the first query's mask for all of them: right for a padding mask."""

import torch


def masked_attention(q, k, v, mask, scale):
    one = mask[:, :1].unsqueeze(1).expand(-1, q.shape[1], q.shape[2], -1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=one, scale=scale).nan_to_num(0)
