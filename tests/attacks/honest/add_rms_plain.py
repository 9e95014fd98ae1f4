# specimen: class=two_outputs task=add_rms_norm device=any verdict=passed directions=forward,backward categories=tiny,small allow=library
"""Two outputs by autograd, of which one depends on no weight: with only the weight asking, it carries no gradient."""

from torch.nn import functional as F


def add_rms_norm(x, residual, weight, eps):
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps), total
