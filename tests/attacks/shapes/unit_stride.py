# specimen: class=ignored_strides task=exp device=any stage=correctness reason=wrong_output categories=small
"""Takes the pitch of the rows from the tensor and the step within them for one."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, out, pitch, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * pitch + at, mask=at < columns)
    tl.store(out + row * columns + at, tl.exp(value), mask=at < columns)


def exp(x):
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        _kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out
