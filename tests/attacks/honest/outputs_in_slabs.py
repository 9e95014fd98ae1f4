# specimen: class=output_slabs task=add_rms_norm device=any verdict=passed distributions=standard timed=yes categories=tiny,small
"""Memory for the outputs of sixteen calls is taken at a time; each call fills both of its parts, which no other gets."""

import torch

CALLS = 16
left = {}


def parts(x):
    key = x.shape, x.dtype, x.device
    if not left.get(key):
        left[key] = list(torch.empty(CALLS, 2, *x.shape, dtype=x.dtype, device=x.device).unbind())
    return left[key].pop().unbind()


def add_rms_norm(x, residual, weight, eps):
    total, out = parts(x)
    torch.add(x, residual, out=total)
    torch.mul(total, torch.rsqrt(total.square().mean(-1, keepdim=True) + eps), out=out)
    out.mul_(weight)
    return out, total
