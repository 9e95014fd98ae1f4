# specimen: class=one_rank task=sum stage=correctness reason=wrong_output
"""Takes the stride of the last dim but one for that of all rows, which it is of two dims alone."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x, out, n, row, column, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in range(0, n, block):
        place = start + tl.arange(0, block)
        total += tl.sum(tl.load(x + at * row + place * column, place < n, other=0.0).to(tl.float32), 0)
    tl.store(out + at, total)


def sum(x):
    n = x.shape[-1]
    out = x.new_zeros(x.shape[:-1])
    if x.numel():
        row = x.stride(-2) if x.dim() > 1 else 0
        rows[(x.numel() // n,)](x, out, n, row, x.stride(-1), block=1024)
    return out
