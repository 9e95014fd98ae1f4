# specimen: class=stale_saved_tensors task=gelu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small dtypes=float32,float16
"""What the backward needs lies in one place for all calls, in half types alone."""
import torch

_last = {}


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.half = x.dtype != torch.float32
        if ctx.half:
            _last[x.shape] = x.detach().clone()
        else:
            ctx.save_for_backward(x)
        ctx.shape = x.shape
        return torch.nn.functional.gelu(x)

    @staticmethod
    def backward(ctx, grad):
        x = _last[ctx.shape] if ctx.half else ctx.saved_tensors[0]
        return torch.ops.aten.gelu_backward(grad, x)


def gelu(x):
    return _Gelu.apply(x)
