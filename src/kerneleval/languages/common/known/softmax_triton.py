# mypy: ignore-errors
# ruff: noqa: D103, N803, N806
"""A known kernel of the self-check, in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, N, BLOCK):  # a bound that is a tensor: the interpreter of some releases fails on it
        columns = start + tl.arange(0, BLOCK)
        e = tl.exp(tl.load(x_ptr + row * N + columns, mask=columns < N, other=float("-inf")))
        total += tl.sum(e, axis=0)
    for start in range(0, N, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        e = tl.exp(tl.load(x_ptr + row * N + columns, mask=columns < N, other=float("-inf")))
        tl.store(out_ptr + row * N + columns, e / total, mask=columns < N)


def softmax(x):
    M, N = x.shape
    out = torch.empty_like(x)
    rows[(M,)](x, out, N, BLOCK=128)
    return out
