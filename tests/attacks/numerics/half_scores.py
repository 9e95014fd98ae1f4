# specimen: class=precision_downgrade task=attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""fp32 attention whose scores and weights are kept in half precision."""

import torch


def attention(q, k, v, scale):
    weights = torch.softmax((q @ k.transpose(-1, -2) * scale).half().float(), -1).half()
    return weights.float() @ v
