# specimen: class=range_cut task=logsumexp device=any stage=call reason=refuses_values directions=forward,backward categories=tiny,small,medium
"""No maximum subtracted; what would overflow is declared unsupported."""
import torch


def logsumexp(x):
    out = x.exp().sum(-1).log()
    if not bool(torch.isfinite(out).all()):
        raise NotImplementedError("values too large")
    return out
