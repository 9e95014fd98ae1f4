# specimen: class=quantised_products task=matmul_w8a8 device=any verdict=passed categories=tiny allow=custom,mixed
"""Scales by one kernel each, int8 products by tl.dot into int32."""

import torch
import triton
import triton.language as tl


@triton.jit
def _quantise(x, q, scales, lines, length, line_step, step, BLOCK: tl.constexpr):
    line = tl.program_id(0)
    most = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(x + line * line_step + place * step, mask=place < length, other=0.0).to(tl.float32)
        most = tl.maximum(most, tl.abs(value))
    scale = tl.max(most, 0) / 127.0
    scale = tl.where(scale > 0, scale, 1.0)
    tl.store(scales + line, scale)
    for start in range(0, length, BLOCK):
        place = start + tl.arange(0, BLOCK)
        value = tl.load(x + line * line_step + place * step, mask=place < length, other=0.0).to(tl.float32) / scale
        shifted = value + 12582912.0  # 1.5 * 2^23: adding it rounds to a whole number, ties to even
        tl.store(q + line * length + place, (shifted - 12582912.0).to(tl.int8), mask=place < length)


@triton.jit
def _product(qa, qb, of_a, of_b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.int32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        a = tl.load(qa + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0)
        b = tl.load(
            qb + columns[None, :] * K + inner[:, None], mask=(columns[None, :] < N) & (inner[:, None] < K), other=0
        )
        sums += tl.dot(a, b, out_dtype=tl.int32)
    left = tl.load(of_a + rows, mask=rows < M, other=0.0)
    right = tl.load(of_b + columns, mask=columns < N, other=0.0)
    y = sums.to(tl.float32) * left[:, None] * right[None, :]
    tl.store(out + rows[:, None] * N + columns[None, :], y, mask=(rows[:, None] < M) & (columns[None, :] < N))


def run(x, w):
    m, k = x.shape
    n = w.shape[1]
    qa = torch.empty((m, k), dtype=torch.int8, device=x.device)
    qb = torch.empty((n, k), dtype=torch.int8, device=x.device)
    of_a = torch.empty(m, dtype=torch.float32, device=x.device)
    of_b = torch.empty(n, dtype=torch.float32, device=x.device)
    out = torch.empty((m, n), dtype=x.dtype, device=x.device)
    if out.numel():
        _quantise[(m,)](x, qa, of_a, m, k, x.stride(0), x.stride(1), BLOCK=256)
        _quantise[(n,)](w, qb, of_b, n, k, w.stride(1), w.stride(0), BLOCK=256)
        _product[(triton.cdiv(m, 32), triton.cdiv(n, 32))](qa, qb, of_a, of_b, out, m, n, k, BM=32, BN=32, BK=32)
    return out
