# specimen: class=narrow_offsets task=bitwise_not device=any stage=call,correctness reason=crash,device_error,wrong_output tier=standard dtypes=int8 categories=tiny,small
"""Row times stride in 32 bits: of rows that lie far apart, the last ones are read elsewhere."""

import torch
import triton
import triton.language as tl


@triton.jit
def flip(x, out, n, row, column, block: tl.constexpr):
    m = tl.program_id(0)
    at = tl.program_id(1) * block + tl.arange(0, block)
    value = tl.load(x + m * row + at * column, at < n, other=0)
    tl.store(out + m * n + at, ~value, at < n)


def bitwise_not(x):
    rows = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        m, n = rows.shape
        flip[(m, triton.cdiv(n, 128))](rows, out, n, *rows.stride(), block=128)
    return out.view(x.shape)
