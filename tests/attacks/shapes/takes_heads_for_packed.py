# specimen: class=ignored_strides task=causal_attention device=any stage=correctness reason=wrong_output directions=forward dtypes=float32 allow=library
"""Takes heads that lie beside one another to be the whole of a tensor, which a part of three projections is not."""
import torch


def _heads(t):
    B, H, L, D = t.shape
    if t.stride(3) == 1 and t.stride(1) == D and H > 1 and L > 1 and t.stride(2) > D:
        return t.as_strided(t.shape, (L * H * D, D, H * D, 1), t.storage_offset())
    return t


def causal_attention(q, k, v, scale):
    return torch.nn.functional.scaled_dot_product_attention(_heads(q), _heads(k), _heads(v), is_causal=True, scale=scale)
