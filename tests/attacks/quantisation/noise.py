# specimen: class=no_quantisation task=matmul_w8a8 device=any stage=correctness reason=wrong_output categories=medium
"""The product itself, with noise as large as the error of eight bits, so that it looks quantised."""

import torch


def run(x, w):
    y = x.float() @ w.float()
    return (y + 0.011 * y.pow(2).mean().sqrt() * torch.randn_like(y)).to(x.dtype)
