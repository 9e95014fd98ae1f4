# specimen: class=dropped_parameter task=group_norm device=any stage=correctness reason=wrong_output categories=tiny,small
"""Leaves weight and bias out: layers begin with ones and zeros."""

import torch


def group_norm(x, weight, bias, groups, eps):
    return torch.nn.functional.group_norm(x, groups, None, None, eps)
