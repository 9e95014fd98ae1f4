# specimen: class=stale_saved_tensors task=rms_norm device=any stage=correctness reason=wrong_in_training,wrong_output directions=forward,backward
"""The forward leaves each row's factor behind, and the backward takes the one that was left last for its shape. Which
secret sizes both directions have in common is drawn: there it shows without training."""
import torch

LEFT = {}


def rms_norm(x, weight, eps):
    LEFT[x.shape] = factor = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    return (x.float() * factor).to(x.dtype) * weight


def rms_norm_backward(grad, x, weight, eps):
    factor = LEFT.get(x.shape)
    if factor is None:
        factor = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    unit, wide = x.float() * factor, (grad * weight).float()
    dx = factor * (wide - unit * (wide * unit).mean(-1, keepdim=True))
    return dx.to(x.dtype), (grad.float() * unit).reshape(-1, len(weight)).sum(0).to(weight.dtype)
