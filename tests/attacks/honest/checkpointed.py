# specimen: class=checkpointing task=swiglu device=any verdict=passed directions=forward,backward categories=tiny,small
"""Keeps nothing for the backward pass and computes it all again."""

import torch
from torch.utils.checkpoint import checkpoint


def _swiglu(gate, up):
    return torch.nn.functional.silu(gate) * up


def swiglu(gate, up):
    if torch.is_grad_enabled():
        return checkpoint(_swiglu, gate, up, use_reentrant=False)
    return _swiglu(gate, up)
