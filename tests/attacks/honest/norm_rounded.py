# specimen: class=rounded_statistics task=group_norm device=any verdict=passed directions=forward,backward categories=tiny,small dtypes=bfloat16
"""Statistics in fp32, the normalised value rounded to the type before weight and bias, as Apex does; autograd."""
import torch
def group_norm(x, w, b, groups, eps):
    B, C, L = x.shape
    f = x.float().reshape(B, groups, -1)
    v, m = torch.var_mean(f, -1, keepdim=True, correction=0)
    return ((f - m) * torch.rsqrt(v + eps)).view(B, C, L).to(x.dtype) * w[:, None] + b[:, None]
