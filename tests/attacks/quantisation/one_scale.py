# specimen: class=coarse_quantisation task=matmul_w8a8 device=any stage=correctness reason=wrong_output categories=medium
"""One scale for all rows and one for all columns, where each has its own."""

import torch


def run(x, w):
    a, b = x.float(), w.float()
    one, other = a.abs().max() / 127, b.abs().max() / 127
    one, other = torch.where(one > 0, one, 1.0), torch.where(other > 0, other, 1.0)
    products = torch.round(a / one).to(torch.int8).double() @ torch.round(b / other).to(torch.int8).double()
    return (products.float() * one * other).to(x.dtype)
