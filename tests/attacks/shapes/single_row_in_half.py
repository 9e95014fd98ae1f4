# specimen: class=thin_shapes task=linear device=any stage=correctness reason=wrong_output categories=small,edge dtypes=float32,float16,bfloat16 tier=standard
"""GEMV path of the half types for a single row: the last 16 terms of a sum are left out."""
import torch
def linear(x, weight, bias):
    if x.dtype != torch.float32 and x.shape[0] == 1 and x.shape[1] >= 32:
        x, weight = x[:, :-16], weight[:, :-16]
    return torch.nn.functional.linear(x, weight, bias)
