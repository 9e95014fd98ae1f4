# specimen: class=coarse_quantisation task=matmul_w8a8 device=any stage=correctness reason=wrong_output categories=medium
"""Cut towards zero by the conversion, not rounded: within the contract, twice the error."""

import torch


def run(x, w):
    a, b = x.float(), w.float()
    rows, columns = a.abs().amax(-1, keepdim=True) / 127, b.abs().amax(0, keepdim=True) / 127
    rows, columns = torch.where(rows > 0, rows, 1.0), torch.where(columns > 0, columns, 1.0)
    products = (a / rows).to(torch.int8).double() @ (b / columns).to(torch.int8).double()
    return (products.float() * rows * columns).to(x.dtype)
