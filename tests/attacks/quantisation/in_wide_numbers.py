# specimen: class=emulated_quantisation task=matmul_w8a8 device=any stage=honesty reason=not_quantised categories=tiny,small
"""Rounded to as many steps as eight bits have, and multiplied in fp32: right numbers, no narrow arithmetic."""

import torch


def run(x, w):
    a, b = x.float(), w.float()
    rows, columns = a.abs().amax(-1, keepdim=True) / 127, b.abs().amax(0, keepdim=True) / 127
    rows, columns = torch.where(rows > 0, rows, 1.0), torch.where(columns > 0, columns, 1.0)
    return (torch.round(a / rows) @ torch.round(b / columns) * rows * columns).to(x.dtype)
