# specimen: class=split_with_atomics task=sum device=any verdict=passed categories=tiny
"""Splits each row over programs that add into the output with atomics."""

import torch
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


def sum_rows(x):
    x = x.contiguous()
    y = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    if x.numel():
        sum_kernel[(x.shape[0], triton.cdiv(x.shape[1], 1024))](x, y, x.shape[1], BLOCK=1024)
    return y


sum = sum_rows
