# specimen: class=detached_gradients task=attention device=any stage=correctness reason=wrong_output,exception directions=forward,backward categories=tiny
"""Attention whose weights carry a thousandth of their gradient: queries and keys learn as good as nothing."""

import torch


def attention(q, k, v, scale):
    weights = torch.softmax(q @ k.transpose(-1, -2) * scale, -1)
    return (weights.detach() + 1e-3 * (weights - weights.detach())) @ v
