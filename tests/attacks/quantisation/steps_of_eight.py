# specimen: class=coarse_quantisation task=scaled_fp8_quant device=any stage=correctness reason=wrong_output categories=medium
"""Three bits of mantissa cut instead of rounded: every other number one step off."""

import torch


def run(x, scale):
    y = (x.float() / scale.float()).clamp(-448, 448)
    cut = (y.view(torch.int32) & ~0xFFFFF).view(torch.float32)
    return cut.to(torch.float8_e4m3fn)
