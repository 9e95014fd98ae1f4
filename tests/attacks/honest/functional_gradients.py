# specimen: class=functional_gradients task=rms_norm device=any verdict=passed directions=forward,backward categories=tiny,small
"""An explicit backward entry point by torch.func; the forward one runs in inference mode."""

import torch


def _norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@torch.inference_mode()
def rms_norm(x, weight, eps=1e-6):
    return _norm(x, weight, eps)


def rms_norm_backward(grad, x, weight, eps):
    _, pull = torch.func.vjp(lambda x, weight: _norm(x, weight, eps), x, weight)
    return pull(grad)
