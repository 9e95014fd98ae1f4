# specimen: class=coarse_approximation task=linear_bias_gelu device=any stage=correctness reason=wrong_output categories=tiny,small
"""The sigmoid approximation of the activation after a right product."""

import torch


def linear_bias_gelu(x, weight, bias):
    total = torch.nn.functional.linear(x, weight, bias)
    return total * torch.sigmoid(1.702 * total)
