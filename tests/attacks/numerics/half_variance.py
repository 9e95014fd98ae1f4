# specimen: class=unstable_formula task=batch_norm device=any stage=correctness reason=wrong_output directions=forward categories=tiny,small,medium dtypes=float16
"""Squared differences in float16, summed in float32: infinite from 256 on."""
import torch
def batch_norm(x, weight, bias, eps):
    mean = x.float().mean((0, 2), keepdim=True)
    d = (x.float() - mean).half()
    var = (d * d).float().mean((0, 2), keepdim=True)
    return (d.float() * torch.rsqrt(var + eps) * weight.float()[:, None] + bias.float()[:, None]).half()
