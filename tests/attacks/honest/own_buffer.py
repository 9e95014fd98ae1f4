# specimen: class=buffer_views task=add_rms_norm device=any verdict=passed categories=tiny,small
"""Both outputs are views of one new buffer, which is larger than they are; given as a list."""

import torch


def add_rms_norm(x, residual, weight, eps):
    rows, columns = x.shape
    buffer = torch.empty(2, rows, columns + 8, dtype=x.dtype, device=x.device)
    total, out = buffer[0, :, :columns], buffer[1, :, 4 : columns + 4]
    torch.add(x, residual, out=total)
    out.copy_(total * torch.rsqrt(total.square().mean(-1, keepdim=True) + eps) * weight)
    return [out, total]
