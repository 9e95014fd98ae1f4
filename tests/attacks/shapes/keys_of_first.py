# specimen: class=hard_coded_shapes task=attention device=any stage=correctness reason=wrong_output tier=standard
"""How many keys there are is remembered by the queries' shape, so that later keys go unseen."""
import torch

COUNTS = {}


def attention(q, k, v, scale):
    keys = COUNTS.setdefault(q.shape, k.shape[2])
    return torch.nn.functional.scaled_dot_product_attention(q, k[:, :, :keys], v[:, :, :keys], scale=scale)
