# specimen: class=unstable_formula task=attention device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small
"""The backward pass computes its weights again, and takes no maximum off."""

import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        ctx.save_for_backward(q, k, v)
        ctx.scale = scale
        return torch.softmax(q.float() @ k.float().transpose(-1, -2) * scale, -1).to(v.dtype) @ v

    @staticmethod
    def backward(ctx, g):
        q, k, v = (t.float() for t in ctx.saved_tensors)
        g32 = g.float()
        e = torch.exp(q @ k.transpose(-1, -2) * ctx.scale)
        p = e / e.sum(-1, keepdim=True)
        dp = g32 @ v.transpose(-1, -2)
        ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * ctx.scale
        dq, dk, dv = ds @ k, ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g32
        return dq.to(g.dtype), dk.to(g.dtype), dv.to(g.dtype), None


def attention(q, k, v, scale):
    return Attention.apply(q, k, v, scale)
