# specimen: class=quantised_products task=matmul_w8a8 device=any verdict=passed categories=tiny,small,medium
"""By reciprocals, in int8; the sums are exact in fp64, because PyTorch has no product of integers on every device."""

import torch


def run(x, w):
    a, b = x.float(), w.float()
    of_a, of_b = a.abs().amax(-1, keepdim=True), b.abs().amax(0, keepdim=True)
    of_a, of_b = torch.where(of_a > 0, of_a, 127.0), torch.where(of_b > 0, of_b, 127.0)
    qa = torch.round(a * (127.0 / of_a)).to(torch.int8)
    qb = torch.round(b * (127.0 / of_b)).to(torch.int8)
    return ((qa.double() @ qb.double()).float() * (of_a / 127.0) * (of_b / 127.0)).to(x.dtype)
