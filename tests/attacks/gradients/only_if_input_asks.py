# specimen: class=partial_gradients task=linear_bias_gelu device=any stage=correctness reason=wrong_in_training directions=forward,backward categories=tiny,small
"""Gradients only where x asks for one: in a first layer, whose input asks for none, weight and bias never learn."""
import torch
import torch.nn.functional as F


def linear_bias_gelu(x, weight, bias):
    if not x.requires_grad:
        weight, bias = weight.detach(), bias.detach()
    return F.gelu(F.linear(x, weight, bias))
