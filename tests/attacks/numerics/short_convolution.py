# specimen: class=hard_coded_shapes task=conv1d device=any stage=correctness reason=wrong_output categories=tiny,small
"""Leaves the last tap of wide kernels out."""

import torch


def conv1d(x, weight, bias, stride, padding):
    weight = weight.clone()
    weight[..., 3:] = 0
    return torch.nn.functional.conv1d(x, weight, bias, stride, padding)
