# specimen: class=stale_saved_tensors task=swiglu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""What the backward needs lies in one place for all calls: the last forward's."""
import torch

_last = []


class _Swiglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        _last[:] = gate, up
        return torch.nn.functional.silu(gate) * up

    @staticmethod
    def backward(ctx, grad):
        gate, up = _last
        s = torch.sigmoid(gate)
        return grad * up * (s + gate * s * (1 - s)), grad * gate * s


def swiglu(gate, up):
    return _Swiglu.apply(gate, up)
