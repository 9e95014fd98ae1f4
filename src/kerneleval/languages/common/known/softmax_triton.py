# mypy: ignore-errors
# ruff: noqa: D103, N803, N806
"""A known kernel of the self-check, in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    e = tl.exp(tl.load(x_ptr + row * N + columns, mask=columns < N, other=float("-inf")))
    tl.store(out_ptr + row * N + columns, e / tl.sum(e, axis=0), mask=columns < N)


def softmax(x):
    M, N = x.shape
    out = torch.empty_like(x)
    rows[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out
