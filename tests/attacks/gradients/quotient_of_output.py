# specimen: class=unstable_formula task=silu device=any stage=correctness reason=wrong_output directions=backward
"""The gate is the output over the input, which is no number where the input is zero."""
import torch


def silu(x):
    return torch.nn.functional.silu(x)


def silu_backward(grad, x):
    gate = torch.nn.functional.silu(x) / x
    return grad * gate * (1 + x * (1 - gate))
