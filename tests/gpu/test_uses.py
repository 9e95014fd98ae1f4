"""On a GPU: what the launched kernels of a judged candidate use is in its verdict, and H and R rest on it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.pipeline import uses_specimens as specimens

from kerneleval import languages, tasks
from kerneleval.analysis import rubric
from kerneleval.judge import Judge
from kerneleval.records import Candidate, CodeUse, Protocol, Verdict

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.version.cuda is None, reason="no NVIDIA GPU"),
]

FLOAT4 = """
#include <cstdint>

__global__ void wide(const float4 *x, float4 *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 v = x[i];
    out[i] = make_float4(v.x < 0 ? 0 : v.x, v.y < 0 ? 0 : v.y, v.z < 0 ? 0 : v.z, v.w < 0 ? 0 : v.w);
}

__global__ void narrow(const float *x, float *out, int64_t from, int64_t n) {
    int64_t i = from + blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0 ? 0 : x[i];
}

__global__ void never(const double2 *x, double2 *out) { out[threadIdx.x] = x[threadIdx.x]; }

extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N, wides = ((uintptr_t)x | (uintptr_t)out) % 16 ? 0 : n / 4;
    if (wides) wide<<<(wides + 255) / 256, 256, 0, (cudaStream_t)stream>>>((const float4 *)x, (float4 *)out, wides);
    int64_t rest = n - 4 * wides;
    if (rest) narrow<<<(rest + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, 4 * wides, n);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
"""

ONE_BINARY = """
import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["x", "out", "n"], do_not_specialize_on_alignment=["x", "out", "n"])
def kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.maximum(tl.load(x + i, i < n), 0.0, propagate_nan=tl.PropagateNan.ALL), i < n)


def relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("cuda") as made:
        yield made


def judged(judge: Judge, candidate: Candidate, task: str, dtype: str) -> tuple[Verdict, dict[str, CodeUse]]:
    protocol = Protocol(tier="quick", dtypes=(dtype,), directions=("forward",), timed=False)
    verdict = judge.check(candidate, tasks.find(task), protocol)
    assert verdict.verdict == "passed", verdict.message
    [finding] = [f for f in verdict.findings if f.check == "uses"]
    assert (finding.evidence.complete, finding.evidence.why) == (True, ""), finding
    return verdict, {use.kernel: use for use in rubric.compiled_in(verdict)}


def levels(candidate: Candidate, verdict: Verdict) -> list[int | None]:
    return [grade.level for grade in rubric.source_grades(candidate, rubric.seen(verdict))]


def test_a_product_in_triton_names_its_matrix_unit(judge: Judge) -> None:
    candidate = Candidate(files=(("matmul.py", specimens.PORTABLE_TRITON),), language="triton")
    verdict, found = judged(judge, candidate, "matmul", "float16")
    assert set(found) == {"product"}
    units = dict(found["product"].classes)
    assert units.get("wgmma") or units.get("mma") or units.get("tcgen05"), units
    if torch.cuda.get_device_capability() == (9, 0):
        assert any(line.mnemonic.startswith("HGMMA.") for line in found["product"].lines)
    assert levels(candidate, verdict) == [2, 2]


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (9, 0), reason="not run: no TMA before Hopper"
)
def test_tensor_descriptors_in_triton_are_tma(judge: Judge) -> None:
    candidate = Candidate(files=(("matmul.py", specimens.HOPPER_TRITON),), language="triton")
    verdict, found = judged(judge, candidate, "matmul", "float16")
    assert dict(found["product"].classes)["TMA"] > 0
    assert any(line.mnemonic.startswith("UTMALDG") for line in found["product"].lines)
    assert levels(candidate, verdict) == [2, 4]


def test_a_cuda_kernel_of_float4_moves_sixteen_bytes(judge: Judge) -> None:
    if why_not := languages.find("cuda").missing("cuda"):
        pytest.skip(f"not run: {why_not}")
    if shutil.which("objdump") is None:
        pytest.skip("not run: no objdump, by which the launched kernels are told from others (install binutils)")
    candidate = Candidate(files=(("relu.cu", FLOAT4),), language="cuda")
    verdict, found = judged(judge, candidate, "relu", "float32")
    by_name = {name: use for kernel, use in found.items() for name in ("wide", "narrow", "never") if name in kernel}
    assert set(by_name) == {"wide", "narrow"}  # nothing launches the third
    wide, narrow = by_name["wide"], by_name["narrow"]
    assert (wide.widest_bytes, wide.vectorised) == (16, 1.0)
    assert (narrow.widest_bytes, narrow.vectorised) == (4, 0.0)
    assert levels(candidate, verdict) == [4, 1]


def test_waiting_for_it_costs_little_and_nothing_the_second_time(judge: Judge, record_property: Any) -> None:
    candidate = Candidate(files=(("relu.py", ONE_BINARY),), language="triton")
    waited: list[float] = []
    end = judge._uses.end

    def timed(*args: Any) -> Iterator[Any]:
        started = time.perf_counter()
        found = list(end(*args))
        waited.append(time.perf_counter() - started)
        return iter(found)

    judge._uses.known.clear()
    judge._uses.end = timed  # type: ignore[method-assign]
    try:
        for _ in range(2):
            judged(judge, candidate, "relu", "float32")
    finally:
        judge._uses.end = end  # type: ignore[method-assign]
    record_property("waited_s", waited)
    print(f"waited for the disassembler: {waited[0] * 1e3:.0f} ms, then {waited[1] * 1e3:.0f} ms")
    assert waited[0] < 2 and waited[1] < 0.1
