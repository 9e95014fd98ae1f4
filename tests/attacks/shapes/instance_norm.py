# specimen: class=thin_shapes task=group_norm device=any stage=correctness reason=wrong_output directions=forward categories=small,edge dtypes=float32
"""Groups of one channel (instance norm) have a path of their own, whose statistics come from the first 256 positions."""
import torch
def group_norm(x, weight, bias, groups, eps):
    if groups == x.shape[1]:
        part = x[:, :, :256]
        mean, var = part.mean(-1, keepdim=True), part.var(-1, keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(var + eps) * weight[:, None] + bias[:, None]
    return torch.nn.functional.group_norm(x, groups, weight, bias, eps)
