# specimen: class=precision_downgrade task=conv2d device=any stage=correctness reason=wrong_output categories=tiny
"""An fp32 convolution on inputs and weights rounded to bfloat16."""

import torch


def conv2d(x, weight, bias, stride, padding):
    return torch.nn.functional.conv2d(x.bfloat16().float(), weight.bfloat16().float(), bias, stride, padding)
