# specimen: class=ignored_strides task=layer_norm device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small dtypes=float32
"""An upstream gradient that repeats along the first dim (y.mean(0).backward()): its one row is taken once for the gradients of weight and bias."""
import torch
class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        mean = x.mean(-1, keepdim=True)
        r = torch.rsqrt(x.var(-1, keepdim=True, correction=0) + eps)
        h = (x - mean) * r
        ctx.save_for_backward(h, r, weight)
        return h * weight + bias
    @staticmethod
    def backward(ctx, g):
        h, r, w = ctx.saved_tensors
        gw = g * w
        dx = r * (gw - gw.mean(-1, keepdim=True) - h * (gw * h).mean(-1, keepdim=True))
        db = g[0].clone() if g.stride(0) == 0 and g.stride(1) == 1 else g.sum(0)
        return dx, (g * h).sum(0), db, None
def layer_norm(x, weight, bias, eps):
    return _Norm.apply(x, weight, bias, eps)
