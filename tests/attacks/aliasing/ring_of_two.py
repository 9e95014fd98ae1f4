# specimen: class=output_aliasing task=gelu device=any stage=correctness reason=output_reused,wrong_output categories=small
"""Two outputs in turn: enough for whoever compares each output before the next but one call."""

import itertools

import torch

_turn = itertools.count()
_kept = {}


def gelu(x):
    pair = _kept.setdefault(x.shape, (torch.empty(x.shape, device=x.device), torch.empty(x.shape, device=x.device)))
    return pair[next(_turn) % 2].copy_(torch.nn.functional.gelu(x))
