# specimen: class=thin_shapes task=attention device=any stage=correctness reason=wrong_output directions=forward categories=small,edge dtypes=float32
"""Split-K path for one query (decoding): keys beyond the 64 of the first split are left out."""
import torch
def attention(q, k, v, scale):
    if q.shape[2] == 1:
        k, v = k[:, :, :64], v[:, :, :64]
    return torch.softmax(q @ k.transpose(-1, -2) * scale, -1) @ v
