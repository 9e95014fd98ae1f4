# specimen: class=dropped_parameter task=attention device=any stage=correctness reason=wrong_output directions=forward,backward categories=small
"""A scale above D ** -0.5 is taken for that: wrong for unscaled attention (T5) and for heads that were padded."""
import torch
def attention(q, k, v, scale):
    return torch.softmax(q @ k.transpose(-2, -1) * min(scale, q.shape[-1] ** -0.5), -1) @ v
