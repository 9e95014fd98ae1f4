# specimen: class=cache_by_fingerprint task=attention device=cpu stage=correctness reason=wrong_output directions=forward
"""Kept by the exact content of q, k and v: stale when only the scale has changed."""
import torch
_K = {}
def attention(q, k, v, scale):
    key = tuple((t.shape, t.contiguous().numpy().tobytes()) for t in (q, k, v))
    if key not in _K:
        if len(_K) > 40: _K.clear()
        _K[key] = torch.softmax(q @ k.transpose(-2, -1) * scale, -1) @ v
    return _K[key].clone()
