# specimen: class=partial_gradients task=swiglu device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small
"""The gradient of the gate is right, that of the other input is zero."""

import torch


class _Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return torch.nn.functional.silu(gate) * up

    @staticmethod
    def backward(ctx, grad):
        gate, up = ctx.saved_tensors
        s = torch.sigmoid(gate)
        return grad * up * s * (1 + gate * (1 - s)), torch.zeros_like(up)


def swiglu(gate, up):
    return _Swiglu.apply(gate, up)
