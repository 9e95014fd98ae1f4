# specimen: class=half_scores task=attention device=any verdict=passed directions=forward,backward categories=small
"""Flash attention as usually taught: the forward scales scores after their product, the backward keys before it, and
weights are made again from the base-2 logarithm of each row's sum.
"""
import math

import torch


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale):
        scores = (q.float() @ k.float().transpose(-1, -2)) * (scale * math.log2(math.e))
        top = scores.amax(-1, keepdim=True)
        weights = torch.exp2(scores - top)
        total = weights.sum(-1, keepdim=True)
        out = ((weights.to(q.dtype).float() @ v.float()) / total).to(q.dtype)
        ctx.save_for_backward(q, k, v, out, top + torch.log2(total))
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, logs = ctx.saved_tensors
        kind = q.dtype
        keys = (k.float() * (ctx.scale * math.log2(math.e))).to(kind).float()
        weights = torch.exp2(q.float() @ keys.transpose(-1, -2) - logs)
        delta = (grad.float() * out.float()).sum(-1, keepdim=True)
        ds = (weights * (grad.float() @ v.float().transpose(-1, -2) - delta)).to(kind).float()
        dq = (ds @ k.float()) * ctx.scale
        dk = (ds.transpose(-1, -2) @ q.float()) * ctx.scale
        dv = weights.to(kind).float().transpose(-1, -2) @ grad.float()
        return dq.to(kind), dk.to(kind), dv.to(kind), None


def attention(q, k, v, scale):
    return _Attention.apply(q, k, v, scale)
