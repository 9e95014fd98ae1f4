# specimen: class=triton_dot task=matmul device=any verdict=passed distributions=standard categories=tiny,small allow=custom
"""Block products with tl.dot in full precision, sums over K in a loop."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(a, b, out, M, N, K, am, ak, bk, bn, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * am + k[None, :] * ak, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(
            b + k[:, None] * bk + columns[None, :] * bn, mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    at = rows[:, None] * N + columns[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(a, b):
    out = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    if out.numel():
        grid = triton.cdiv(a.shape[0], 64), triton.cdiv(b.shape[1], 64)
        _kernel[grid](a, b, out, a.shape[0], b.shape[1], a.shape[1], *a.stride(), *b.stride(), BLOCK=64)
    return out
