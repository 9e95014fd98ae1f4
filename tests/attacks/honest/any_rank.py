# specimen: class=any_rank task=layer_norm verdict=passed directions=forward,backward dtypes=float32,float16
"""Takes any number of dims: rows are all but the last one."""

import torch


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        rows = x.reshape(-1, x.shape[-1]).float()
        centred = rows - rows.mean(1, keepdim=True)
        scale = torch.rsqrt(centred.square().mean(1, keepdim=True) + eps)
        normal = centred * scale
        ctx.save_for_backward(normal, scale, weight)
        return (normal * weight.float() + bias.float()).to(x.dtype).view(x.shape)

    @staticmethod
    def backward(ctx, grad):
        normal, scale, weight = ctx.saved_tensors
        rows = grad.reshape(normal.shape).float()
        g = rows * weight.float()
        dx = scale * (g - g.mean(1, keepdim=True) - normal * (g * normal).mean(1, keepdim=True))
        kind = grad.dtype
        return dx.to(kind).view(grad.shape), (rows * normal).sum(0).to(kind), rows.sum(0).to(kind), None


def layer_norm(x, weight, bias, eps):
    return LayerNorm.apply(x, weight, bias, eps)
