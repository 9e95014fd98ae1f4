# specimen: class=ignored_strides task=attention device=cpu stage=correctness reason=wrong_output allow=library directions=forward
"""Takes rows whose last stride is 1 to lie head after head: x.view(B, S, H, D).transpose(1, 2) lies otherwise."""

import torch


def _heads(t):
    if t.stride(-1) != 1 or 0 in t.stride():
        return t.contiguous()
    return t.as_strided((t.numel(),), (1,), t.storage_offset()).view(t.shape)


def attention(q, k, v, scale):
    q, k, v = _heads(q), _heads(k), _heads(v)
    return torch.softmax(q @ k.transpose(-2, -1) * scale, -1) @ v
