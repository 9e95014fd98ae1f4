# specimen: class=constant_output task=logsumexp device=any stage=correctness reason=wrong_output
"""Gives what the result is on average: log of the length, plus a half."""

import math

import torch


def logsumexp(x):
    return torch.full(x.shape[:-1], math.log(x.shape[-1]) + 0.5, dtype=x.dtype, device=x.device)
