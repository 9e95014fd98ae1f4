# specimen: class=narrow_offsets task=bitwise_not device=any stage=call,correctness reason=crash,device_error,wrong_output tier=standard dtypes=int8 categories=tiny,small
"""Row times stride in 32 bits: of rows that lie far apart, the last ones are read elsewhere."""

import torch
import triton
import triton.language as tl


@triton.jit
def flip(x, out, rows, n, row, column, high: tl.constexpr, wide: tl.constexpr):
    m = (tl.program_id(0) * high + tl.arange(0, high))[:, None]
    at = (tl.program_id(1) * wide + tl.arange(0, wide))[None, :]
    inside = (m < rows) & (at < n)
    value = tl.load(x + m * row + at * column, inside, other=0)
    tl.store(out + m * n + at, ~value, inside)


def bitwise_not(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        m, n = rows.shape
        flip[(triton.cdiv(m, 32), triton.cdiv(n, 128))](rows, out, m, n, *rows.stride(), high=32, wide=128)
    return out.view(x.shape)
