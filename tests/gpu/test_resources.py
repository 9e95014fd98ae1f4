"""On a GPU: what the kernels of a judged candidate take is in its verdict."""

from __future__ import annotations

import pytest

from kerneleval import languages, tasks
from kerneleval.judge import Judge
from kerneleval.records import Candidate, Protocol

pytestmark = pytest.mark.gpu

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value), at < n)


def relu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""

CUDA = """
#include <cstdint>

__global__ void relu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    if (M * N) relu_kernel<<<(M * N + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, M * N);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
"""


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_registers_and_memory_are_told(language: str) -> None:
    if language == "cuda":
        if why_not := languages.find("cuda").missing("cuda"):
            pytest.skip(f"not run: {why_not}")
        candidate, kernel = Candidate(files=(("relu.cu", CUDA),), language="cuda"), "relu_kernel"
    else:
        candidate, kernel = Candidate(files=(("relu.py", TRITON),), language="triton"), "relu_kernel"
    protocol = Protocol(tier="quick", dtypes=("float32",), directions=("forward",), timed=False)
    with Judge("cuda") as judge:
        verdict = judge.check(candidate, tasks.find("relu"), protocol)
    [finding] = [f for f in verdict.findings if f.check == "resources"]
    [row] = [row for row in finding.evidence.kernels if kernel in row.kernel]
    assert 8 <= row.registers[0] <= row.registers[1] <= 255
    assert row.local_bytes == (0, 0)
    assert row.kernel in finding.message and "registers a thread" in finding.message
