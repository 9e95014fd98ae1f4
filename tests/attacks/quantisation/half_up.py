# specimen: class=coarse_quantisation task=scaled_int8_quant device=any stage=correctness reason=wrong_output categories=tiny,small,medium
"""Rounds by floor(x + 0.5): half way between two integers it goes up, not to the even one."""
import torch


def scaled_int8_quant(x, scale):
    steps = torch.floor(x.float() / scale.float() + 0.5)
    return steps.clamp(-128, 127).to(torch.int8)
