"""Candidates that ask for different hardware: Hopper's TMA and WGMMA in Triton and in CUDA C++, and portable ones."""

from __future__ import annotations

__all__ = ["DEAD", "DECOY", "HOPPER_CUDA", "HOPPER_TRITON", "PORTABLE_CUDA", "PORTABLE_TRITON"]

_HEAD = """
import torch
import triton
import triton.language as tl

"""

HOPPER_TRITON = (
    _HEAD
    + """
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    columns = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    i, j = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(rows.load([i, k]), columns.load([k, j]), total)
    out.store([i, j], total.to(tl.float16))


def aligned(x):
    x = x.contiguous()
    return x.clone() if x.data_ptr() % 16 else x


def matmul(a, b):
    if a.dtype != torch.float16:
        raise NotImplementedError("float16 alone")
    (m, k), n = a.shape, b.shape[1]
    if not (m and n and k):
        return torch.zeros(m, n, dtype=a.dtype, device=a.device)
    pad = torch.nn.functional.pad  # a row takes a multiple of 16 bytes
    a, b = aligned(pad(a, (0, -k % 8))), aligned(pad(b, (0, -n % 8, 0, -k % 8)))
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    wide, deep = b.shape[1], a.shape[1]
    c = torch.empty(m, wide, dtype=a.dtype, device=a.device)
    product[(triton.cdiv(m, 64), triton.cdiv(wide, 64))](a, b, c, m, wide, deep, BM=64, BN=64, BK=64)
    return c[:, :n].contiguous()
"""
)
"""TMA by tensor descriptors, and ``tl.dot``, which the compiler makes WGMMA of on Hopper."""

PORTABLE_TRITON = (
    _HEAD
    + """
@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    j = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + i * K + k[None, :], (i < M) & (k[None, :] < K), 0.0)
        y = tl.load(b + k[:, None] * N + j, (k[:, None] < K) & (j < N), 0.0)
        total = tl.dot(x, y, total)
    tl.store(c + i * N + j, total.to(tl.float16), (i < M) & (j < N))


def matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    grid = triton.cdiv(m, 64), triton.cdiv(n, 64)
    product[grid](a.contiguous(), b.contiguous(), c, m, n, k, BM=64, BN=64, BK=32, num_stages=1)
    return c
"""
)

_ENTRY = """
extern "C" int matmul_float16(const __half *a, const __half *b, __half *c, int64_t M, int64_t K, int64_t N,
                              void *stream) {
    KERNEL<<<1, 128, 0, (cudaStream_t)stream>>>(a, b, c, M, K, N);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
"""

_WARPGROUP = """
__device__ __forceinline__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// A tile of 64 x 16 and one of 16 x 8, brought by the TMA's bulk copies, multiplied by a warpgroup. Compiled, not run.
__global__ void NAME(const __half *a, const __half *b, __half *c, int64_t M, int64_t K, int64_t N) {
    __shared__ alignas(128) __half x[64 * 16];
    __shared__ alignas(128) __half y[16 * 8];
    __shared__ alignas(8) uint64_t arrived;
    unsigned barrier = shared_address(&arrived);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 2304;" ::"r"(barrier) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 2048, [%2];"
                     ::"r"(shared_address(x)), "l"(a), "r"(barrier) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     ::"r"(shared_address(y)), "l"(b), "r"(barrier) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.b32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(barrier) : "memory");
    float d[4] = {0, 0, 0, 0};
    uint64_t left = (shared_address(x) & 0x3FFFF) >> 4, right = (shared_address(y) & 0x3FFFF) >> 4;
    left |= (uint64_t)8 << 16 | (uint64_t)16 << 32;
    right |= (uint64_t)8 << 16 | (uint64_t)16 << 32;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(left), "l"(right));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    c[threadIdx.x] = __float2half(d[0] + d[1] + d[2] + d[3]);
}
"""

_SIMPLE = """
__global__ void simple(const __half *a, const __half *b, __half *c, int64_t M, int64_t K, int64_t N) {
    for (int64_t at = threadIdx.x; at < M * N; at += blockDim.x) {
        float total = 0;
        for (int64_t k = 0; k < K; k++) total += __half2float(a[at / N * K + k]) * __half2float(b[k * N + at % N]);
        c[at] = __float2half(total);
    }
}
"""

_INCLUDES = "#include <cstdint>\n#include <cuda_fp16.h>\n"


def _entry(kernel: str) -> str:
    return _ENTRY.replace("KERNEL", kernel)


HOPPER_CUDA = _INCLUDES + _WARPGROUP.replace("NAME", "hopper") + _entry("hopper")
"""``wgmma`` and ``cp.async.bulk`` by inline PTX: nothing before Hopper, and nothing after it, has both."""

PORTABLE_CUDA = _INCLUDES + _SIMPLE + _entry("simple")

DECOY = _INCLUDES + _WARPGROUP.replace("NAME", "never_launched") + _SIMPLE + _entry("simple")
"""The portable one, beside Hopper's that nothing launches."""

DEAD = (
    _INCLUDES
    + "#ifdef FOR_ANOTHER_DAY\n"
    + _WARPGROUP.replace("NAME", "left_out")
    + "#endif\n"
    + _SIMPLE
    + _entry("simple")
)
"""The portable one, beside Hopper's that is not even compiled."""
