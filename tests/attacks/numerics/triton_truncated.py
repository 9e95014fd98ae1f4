# specimen: class=precision_downgrade task=matmul device=any stage=correctness reason=wrong_output categories=tiny,small
"""A kernel with tensor-core products whose operands have the ten bits of TF32."""

import torch
import triton
import triton.language as tl


@triton.jit
def _short(value):
    bits = value.to(tl.uint32, bitcast=True)
    return ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)


@triton.jit
def _kernel(a, b, out, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + rows[:, None] * K + k[None, :], mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + columns[None, :], mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0)
        total += tl.dot(_short(left), _short(right), input_precision="ieee")
    at = rows[:, None] * N + columns[None, :]
    tl.store(out + at, total, mask=(rows[:, None] < M) & (columns[None, :] < N))


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    if out.numel():
        _kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, out, M, N, K, BLOCK=32)
    return out
