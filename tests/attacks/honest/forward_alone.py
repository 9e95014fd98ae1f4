# specimen: class=forward_alone task=gelu device=cpu directions=backward verdict=passed allow=library
"""A kernel of its own computes outputs, and PyTorch the gradients: where these alone are judged, it is no decoy."""

import math

import numba
import torch


@numba.njit
def _gelu(x, out):
    for i in range(x.size):
        out[i] = 0.5 * x[i] * (1.0 + math.erf(x[i] * 0.7071067811865476))


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            _gelu(x.view(-1).numpy(), out.view(-1).numpy())
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(grad, x)


def gelu(x):
    return _Gelu.apply(x)
