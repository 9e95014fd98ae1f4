# specimen: class=unstable_formula task=rms_norm device=any stage=correctness reason=wrong_output directions=forward categories=tiny,small dtypes=float16
"""Squares in float16, summed in float32: numbers from 256 on are infinite."""
import torch
def rms_norm(x, weight, eps):
    ms = (x * x).float().mean(-1, keepdim=True)
    return (x.float() * torch.rsqrt(ms + eps)).to(x.dtype) * weight
