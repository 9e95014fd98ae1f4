# specimen: class=one_rank task=rms_norm verdict=passed
"""Written for matrices: it raises where the input is none, and says so."""

import torch


def rms_norm(x, weight, eps):
    rows, columns = x.shape
    factor = torch.rsqrt((x * x).sum(1) / columns + eps)
    return x * factor.view(rows, 1) * weight
