# specimen: class=output_aliasing task=add_rms_norm device=any stage=correctness reason=output_alias categories=tiny,small
"""Adds into the residual and gives it back as the sum, as fused kernels of inference engines do."""

import torch


def add_rms_norm(x, residual, weight, eps):
    residual += x
    return torch.nn.functional.rms_norm(residual, residual.shape[-1:], weight, eps), residual
