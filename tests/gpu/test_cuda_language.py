"""CUDA and Triton candidates on a real NVIDIA GPU: the examples of the docs, both ways to build, streams, errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from kerneleval import languages
from kerneleval.languages import BuildError, LoadError, OutputSpec, cuda
from kerneleval.languages.binaries import nvidia
from kerneleval.records import Candidate

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or torch.version.cuda is None, reason="no NVIDIA GPU"),
]

ROOT = Path(__file__).resolve().parents[2]
SHAPES = [(5, 7), (1, 1), (1000, 333), (0, 4)]
SPEC = OutputSpec(shape=(64, 32), dtype="float32")
DIMS = {"M": 64, "N": 32}
DEVICE_CODE = (
    "// kerneleval-launch: gelu_{0} grid=cdiv(M*N,128) block=128\n"
    'extern "C" __global__ void gelu_{0}(const {1} *x, {1} *out, long long M, long long N) {{\n'
    "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n"
    "    if (i < M * N) out[i] = x[i] * ({1})2;\n}}\n"
)
# Doubles its input after about 20 ms, so that a launch on the wrong stream reads what is not there yet.
SLOW = (
    "#include <cstdint>\n__global__ void slow(const float *x, float *out, int64_t n) {\n"
    "    long long end = clock64() + 30000000;\n    while (clock64() < end) {}\n"
    "    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;\n    if (i < n) out[i] = x[i] * 2;\n}\n"
    'extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {\n'
    "    slow<<<(M * N + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, M * N);\n"
    "    return cudaGetLastError() == cudaSuccess ? 0 : 2;\n}\n"
)


def arch() -> str:
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def example(name: str) -> str:
    text = (ROOT / "docs" / "candidates.md").read_text()
    match = re.search(rf"<!-- example: {re.escape(name)} -->\n```[a-z+]+\n(.*?)```", text, re.DOTALL)
    assert match, name
    return match.group(1)


@pytest.fixture
def load(tmp_path):
    loaded = []

    def build_and_load(text, language="cuda", device="cuda", **fields):
        found = languages.find(language)
        suffix = found.suffixes[0]
        candidate = Candidate(files=((f"candidate{suffix}", text),), language=language, **fields)
        folder = tmp_path / f"build{len(loaded)}"
        found.build(candidate, folder, device, arch())
        loaded.append(found.load(candidate, folder, device, names=("gelu",)))
        return loaded[-1]

    yield build_and_load
    for one in loaded:
        one.watch(False)


def needs_compiler(name: str) -> None:
    if name == "cuda" and cuda.find_nvcc() is None:
        pytest.skip("nvcc is not installed")
    if name == "cuda-device" and cuda.find_nvcc() is None and nvidia.find_nvrtc() is None:
        pytest.skip("neither nvcc nor NVRTC is installed")


def check(loaded, shape):
    x = torch.randn(shape, device="cuda", dtype=torch.float64)
    grad = torch.randn(shape, device="cuda", dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    want = torch.nn.functional.gelu(leaf)
    (want_grad,) = torch.autograd.grad(want, leaf, grad)
    spec = OutputSpec(shape=shape, dtype="float32")
    dims = {"M": shape[0], "N": shape[1]}
    got = loaded.forward([x.float()], [spec], dims)
    assert got.is_cuda
    torch.testing.assert_close(got.double(), want.detach(), rtol=2e-6, atol=2e-6)
    (got_grad,) = loaded.backward([grad.float()], [x.float()], [spec], dims)
    torch.testing.assert_close(got_grad.double(), want_grad, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("name", ["cuda", "cuda-device", "triton", "torch"])
def test_examples_are_right(load, name):
    needs_compiler(name)
    loaded = load(example(name), name.split("-")[0])
    for shape in SHAPES:
        check(loaded, shape)
    transposed = torch.randn(32, 64, device="cuda").t()
    got = loaded.forward([transposed], [SPEC], DIMS)
    want = torch.nn.functional.gelu(transposed.double()).float()
    torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("compiler", ["nvrtc", "nvcc"])
def test_device_code_runs_whichever_compiler_made_it(load, monkeypatch, compiler):
    if compiler == "nvrtc" and nvidia.find_nvrtc() is None:
        pytest.skip("NVRTC is not installed")
    if compiler == "nvcc":
        needs_compiler("cuda")
        monkeypatch.setattr(cuda, "find_nvrtc", lambda: None)
    x = torch.randn(64, 32, device="cuda")
    assert torch.equal(load(DEVICE_CODE.format("float32", "float")).forward([x], [SPEC], DIMS), x * 2)


@pytest.mark.parametrize(
    ("dtype", "element", "include"),
    [
        ("float64", "double", ""),
        ("float16", "__half", "#include <cuda_fp16.h>\n"),
        ("bfloat16", "__nv_bfloat16", "#include <cuda_bf16.h>\n"),
    ],
)
def test_device_code_in_other_dtypes(load, dtype, element, include):
    needs_compiler("cuda-device")
    library = nvidia.find_nvrtc()
    if include and library is not None and not nvidia.include_folders(library):
        pytest.skip("no CUDA headers beside NVRTC")
    source = DEVICE_CODE.format(dtype, element).replace("extern", include + "extern", 1)
    source = source.replace(f"({element})2", f"({element})2.0f" if include else "2")
    loaded = load(source)
    x = torch.randn(64, 32, device="cuda").to(getattr(torch, dtype))
    spec = OutputSpec(shape=(64, 32), dtype=dtype)
    assert torch.equal(loaded.forward([x], [spec], DIMS), x * 2)
    with pytest.raises(NotImplementedError, match="no entry point for float32"):
        loaded.forward([x.float()], [SPEC], DIMS)


def test_large_dynamic_shared_memory_and_scalars(load):
    needs_compiler("cuda-device")
    if torch.cuda.get_device_properties(0).shared_memory_per_block_optin < 64 * 1024:
        pytest.skip("this GPU has less than 64 KiB of shared memory a block")
    source = (
        "// kerneleval-launch: gelu grid=(1,1,1) block=(N,1,1) shared=65536\n"
        'extern "C" __global__ void gelu(const float *x, long long k, double s, float *out, long long M,\n'
        "                                long long N) {\n"
        "    extern __shared__ float cache[];\n    cache[threadIdx.x + 16000] = x[threadIdx.x];\n    __syncthreads();\n"
        "    for (long long m = 0; m < M; m++)\n"
        "        out[m * N + threadIdx.x] = cache[16000 + (N - 1 - threadIdx.x)] * s + k + m;\n}\n"
    )
    x = torch.randn(32, device="cuda")
    got = load(source).forward([x, 3, 0.5], [SPEC], DIMS)
    want = x.flip(0) * 0.5 + 3 + torch.arange(64.0, device="cuda")[:, None]
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("host", [True, False])
def test_launches_go_to_the_current_stream(load, host):
    needs_compiler("cuda" if host else "cuda-device")
    slow, double = torch.cuda.Stream(), SLOW
    if not host:
        double = DEVICE_CODE.format("float32", "float").replace(
            "    long long i",
            "    long long end = clock64() + 30000000;\n    while (clock64() < end) {}\n    long long i",
            1,
        )
    loaded = load(double)
    x = torch.randn(64, 32, device="cuda")
    loaded.forward([x], [SPEC], DIMS)
    torch.cuda.synchronize()
    with torch.cuda.stream(slow):
        made = loaded.forward([loaded.forward([x], [SPEC], DIMS)], [SPEC], DIMS)
        assert not slow.query()  # the work is there, and not yet done
        total = made.sum()
    slow.synchronize()
    torch.testing.assert_close(total, (x * 4).sum())
    assert torch.equal(made, x * 4)


def test_outputs_are_on_the_device_and_calls_are_counted_and_muted(load):
    needs_compiler("cuda")
    loaded = load(SLOW)
    x = torch.randn(64, 32, device="cuda")
    loaded.forward([x], [SPEC], DIMS)
    loaded.watch(False)
    loaded.forward([x], [SPEC], DIMS)
    assert loaded.launches() == {"gelu_float32": 1}
    loaded.watch(True)
    loaded.mute(True)
    loaded.forward([x], [SPEC], DIMS)
    assert loaded.launches() == {"gelu_float32": 2}


def test_errors_of_the_driver_are_the_candidates(load):
    needs_compiler("cuda-device")
    x = torch.randn(64, 32, device="cuda")
    good = DEVICE_CODE.format("float32", "float")
    with pytest.raises(
        RuntimeError, match=r"cuLaunchKernel\(gelu_float32, .*block=\(4096, 1, 1\).*CUDA_ERROR_INVALID_VALUE"
    ):
        load(good.replace("block=128", "block=4096")).forward([x], [SPEC], DIMS)
    with pytest.raises(ValueError, match="names 'K'; the task's dims are M, N"):
        load(good.replace("cdiv(M*N,128)", "K")).forward([x], [SPEC], DIMS)
    with pytest.raises(BuildError):
        load(good.replace("x[i]", "y[i]"))
    with pytest.raises(LoadError, match="looked for other_<dtype>"):
        load(good, entry="other")
    assert torch.equal(load(good).forward([x], [SPEC], DIMS), x * 2)  # none of it broke the device


def test_architecture_specific_instructions_assemble(load):
    needs_compiler("cuda-device")
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is Hopper's")
    source = DEVICE_CODE.format("float32", "float").replace(
        "    long long i", '    asm volatile("wgmma.fence.sync.aligned;\\n" ::: "memory");\n    long long i', 1
    )
    x = torch.randn(64, 32, device="cuda")
    assert torch.equal(load(source).forward([x], [SPEC], DIMS), x * 2)


KERNEL = """
import torch, triton, triton.language as tl
{decorator}
@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)
def gelu(x):
    out = torch.zeros_like(x)
    {launch}
    return out
"""


def test_triton_launches_are_counted_and_muted(load):
    launch = "double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)"
    loaded = load(KERNEL.format(decorator="", launch=launch), "triton")
    x = torch.randn(1000, device="cuda", dtype=torch.bfloat16)  # judged on a GPU, unlike in the interpreter
    assert torch.equal(loaded.forward([x], (), {}), x * 2)
    assert loaded.launches() == {"double": 1}
    loaded.mute(True)
    assert torch.equal(loaded.forward([x], (), {}), torch.zeros_like(x))
    loaded.mute(False)
    loaded.watch(False)
    assert torch.equal(loaded.forward([x], (), {}), x * 2)
    assert loaded.launches() == {"double": 2}
    from triton.runtime.jit import JITFunction

    assert JITFunction.run.__name__ == "run"  # put back


def test_triton_kernels_from_warmup_are_counted(load):
    launch = (
        "kernel = double.warmup(x, out, x.numel(), BLOCK=64, grid=(1,)); kernel._init_handles(); "
        "kernel[(triton.cdiv(x.numel(), 64), 1, 1)](x, out, x.numel(), 64)"
    )
    loaded = load(KERNEL.format(decorator="", launch=launch), "triton")
    x = torch.randn(1000, device="cuda")
    assert torch.equal(loaded.forward([x], (), {}), x * 2)
    assert loaded.launches() == {"double": 1}


def test_autotuned_triton_kernels_run(load):
    decorator = "@triton.autotune([triton.Config({'BLOCK': 64}), triton.Config({'BLOCK': 256})], key=['n'])"
    launch = "double[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, out, x.numel())"
    loaded = load(KERNEL.format(decorator=decorator, launch=launch), "triton")
    x = torch.randn(1000, device="cuda")
    assert torch.equal(loaded.forward([x], (), {}), x * 2)
    assert loaded.launches()["double"] > 2  # tuning launches too
    before = loaded.launches()["double"]
    assert torch.equal(loaded.forward([x], (), {}), x * 2)
    assert loaded.launches()["double"] == before + 1


def test_modules_are_moved_to_the_gpu(load):
    source = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self, n):\n        super().__init__()\n"
        "        self.linear = torch.nn.Linear(n, n)\n    def forward(self, x): return self.linear(x)\n"
    )
    loaded = load(source, "torch")
    module = loaded.make_module([8], seed=1)
    assert all(p.is_cuda for p in module.parameters())
    x = torch.randn(3, 8, device="cuda")
    assert torch.equal(loaded.forward([x], (), {}), module(x))
