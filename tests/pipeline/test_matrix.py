"""The portability matrix: candidates compiled for GPUs that are not there, and judged on the device that is."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.commands import kerneleval

from kerneleval import devices, pipeline
from kerneleval.devices.cpu import Cpu
from kerneleval.languages.binaries.amd import unknown_target
from kerneleval.languages.binaries.kernels import read_binary
from kerneleval.languages.crosscompile.targets import TARGETS
from kerneleval.records import DIRECTIONS, CandidateSpec, MatrixRow, Protocol, UsageError

pytest.importorskip("triton", reason="Triton is not installed (pip install triton)")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="not run: the jail is Linux's")

HEAD = """
import torch
import triton
import triton.language as tl

"""
KERNEL = """
@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(y + at, tl.where(value < 0, 0.0, value).to(value.dtype), at < n)

"""
ENTRY = """
def relu(x):
    assert x.is_cuda and x.device.type == "cuda" and torch.cuda.is_available()
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
RIGHT = HEAD + KERNEL + ENTRY

TUNED = KERNEL.replace(
    "@triton.jit",
    '@triton.autotune([triton.Config({"BLOCK": 1 << 21}), triton.Config({"BLOCK": 512}), '
    'triton.Config({"BLOCK": 64})], key=["n"])\n@triton.jit',
)
DIFFERENTIABLE = (
    HEAD
    + TUNED
    + """
@triton.jit
def slope_kernel(x, g, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.where(tl.load(x + at, at < n) > 0, tl.load(g + at, at < n), 0.0), at < n)


class Relu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        ctx.save_for_backward(x)
        ctx.on_gpu = x.is_cuda
        y = torch.empty_like(x)
        relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

    @staticmethod
    def backward(ctx, g):
        (x,), g = ctx.saved_tensors, g.contiguous()
        assert g.is_cuda == x.is_cuda == ctx.on_gpu
        y = torch.empty_like(x)
        slope_kernel[(triton.cdiv(x.numel(), 256),)](x, g, y, x.numel(), BLOCK=256)
        return y


def relu(x):
    return Relu.apply(x)
"""
)


def rows(
    tmp_path: Path, text: str, *targets: str, name: str = "relu.py", directions: Sequence[str] = ("forward",)
) -> dict[str, MatrixRow]:
    path = tmp_path / name
    path.write_text(text)
    spec = CandidateSpec(source=str(path), task="relu")
    protocol = Protocol(dtypes=("float32",), directions=tuple(directions))
    found = pipeline.matrix(spec, protocol, targets=targets, judged=False)
    assert [row.target for row in found.rows] == list(targets)
    return {row.target: row for row in found.rows}


@pytest.mark.slow
def test_backward_launches_and_a_tuners_first_configuration_that_fits_are_compiled(tmp_path: Path) -> None:
    found = rows(tmp_path, DIFFERENTIABLE, "sm_80", "gfx1100", directions=DIRECTIONS)
    for row in found.values():
        assert row.compiles.answer == "yes", row.compiles.why
        assert {kernel.name for kernel in row.kernels} == {"relu_kernel", "slope_kernel"}
        assert {kernel.error for kernel in row.kernels} == {""}


@pytest.mark.slow
def test_one_vendors_instructions_fail_for_the_other_by_the_compilers_words(tmp_path: Path) -> None:
    inline = KERNEL.replace(
        "tl.where(value < 0, 0.0, value).to(value.dtype)",
        'tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=f,f", [value], tl.float32, True, 1)',
    )
    found = rows(tmp_path, HEAD + inline + ENTRY, "sm_90", "gfx942")
    assert found["sm_90"].compiles.answer == "yes", found["sm_90"].compiles.why
    assert found["gfx942"].compiles.answer == "no"
    assert "relu_kernel: the compiler ended without a result: error: couldn't allocate output register" in (
        found["gfx942"].compiles.why
    )


@pytest.mark.slow
def test_more_shared_memory_than_a_target_has(tmp_path: Path) -> None:
    text = (
        HEAD
        + """
@triton.jit
def product(a, b, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = at[:, None] * BLOCK + at[None, :]
    tl.store(c + place, tl.dot(tl.load(a + place), tl.load(b + place)))


def relu(x):
    a = torch.empty(128, 128, dtype=torch.float32, device=x.device)
    product[(1,)](a, a, torch.empty_like(a), BLOCK=128, num_warps=8)
    return x
"""
    )
    found = rows(tmp_path, text, "sm_90", "sm_86")
    assert found["sm_90"].compiles.answer == "yes", found["sm_90"].compiles.why
    assert found["sm_90"].kernels[0].shared_bytes > TARGETS["sm_86"].shared_bytes
    assert found["sm_86"].compiles.answer == "no"
    assert f"sm_86 has {TARGETS['sm_86'].shared_bytes}" in found["sm_86"].compiles.why


@pytest.mark.slow
def test_kernels_are_compiled_for_every_target_and_the_units_of_a_product_told(tmp_path: Path) -> None:
    units = {"sm_75": "", "sm_80": "mma", "sm_90": "wgmma", "sm_100": "tcgen05", "gfx942": "mma", "gfx1201": "mma"}
    text = (
        HEAD
        + KERNEL
        + """
@triton.jit
def product(a, b, c, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = at[:, None] * BLOCK + at[None, :]
    tl.store(c + place, tl.dot(tl.load(a + place), tl.load(b + place)))

"""
        + ENTRY.replace(
            "    return y",
            f"""    if torch.cuda.get_device_name() in {[TARGETS[target].product for target in units]}:
        a = torch.empty(64, 64, dtype=torch.float16, device=x.device)
        product[(1,)](a, a, torch.empty(64, 64, device=x.device), BLOCK=64)
    return y""",
        )
    )
    found = rows(tmp_path, text, *TARGETS)
    for target, row in found.items():
        assert row.compiles.answer == "yes", row.compiles.why
        kernels = {kernel.name: kernel for kernel in row.kernels}
        relu, product = kernels.pop("relu_kernel"), kernels.pop("product", None)
        assert not kernels
        assert 4 <= relu.registers <= 128
        assert (relu.spilled, relu.error, relu.instructions) == (0, "", ())
        assert row.seconds > 0
        assert row.runs.answer == row.correct.answer == row.fast.answer == "not evaluated"
        assert (product is not None) == (target in units), target
        if product is not None:
            classes = dict(product.instructions)
            assert set(classes) - {"spill", "ldmatrix", "mbarrier"} == {units[target]} - {""}, target
            assert product.widest_bytes == 16, target
            assert (classes.get("spill", 0) > 0) == (product.spilled > 0), target


INSTEAD = {
    "sm_75": ("os._exit(0)", "ended without a result"),
    "sm_80": ("os.abort()", "ended without a result"),
    "sm_86": ("raise ValueError('no GPU of mine')", "ValueError: no GPU of mine"),
    "sm_89": ("open('/etc/shadow').read()", "PermissionError"),
    "sm_90": (f"open({str(Path(pipeline.__file__))!r}).read()", "PermissionError"),
    # Folders that are deeper than shutil.rmtree climbs ended the judge itself.
    "sm_100": (
        "os.chdir(os.environ['TRITON_HOME']); [(os.mkdir('d'), os.chdir('d')) for _ in range(1200)]; os._exit(0)",
        "",
    ),
    "sm_120": ("os.kill(os.getppid(), 9)", "without a result"),
}
"""By target: what a candidate does there, and what is said of it."""


def on_each(does: Mapping[str, str]) -> str:
    """A candidate that does something else than its kernel on each of these targets."""
    by_product = {TARGETS[target].product: text for target, text in does.items()}
    call = f"    exec({by_product!r}.get(torch.cuda.get_device_name(), ''))\n    x = x.contiguous()"
    return "import os\n" + RIGHT.replace("    x = x.contiguous()", call)


@pytest.mark.slow
@pytest.mark.parametrize("targets", [list(INSTEAD)[:-1], list(INSTEAD)[-1:]], ids=["alone", "to all"])
def test_what_a_candidate_does_instead_is_its_own_affair(tmp_path: Path, targets: list[str]) -> None:
    found = rows(tmp_path, on_each({target: INSTEAD[target][0] for target in targets}), *targets)
    for target, row in found.items():
        assert row.compiles.answer == "no"
        assert INSTEAD[target][1] in row.compiles.why and row.compiles.why


def test_a_forged_result_needs_a_binary(tmp_path: Path) -> None:
    forged = """
import json, pathlib
place = pathlib.Path(os.environ["TRITON_CACHE_DIR"]).parent
row = {"kernel": "relu_kernel", "error": "", "file": "1.cubin", "shared": 0, "seconds": 0.1}
(place / "1.cubin").write_bytes(BINARY)
(place / "found.json").write_text(json.dumps({"calls": [], "kernels": [row]}))
os._exit(0)
"""
    true = Path(shutil.which("true") or "/bin/true").read_bytes()[:4000]
    binaries = {"sm_86": b"", "sm_89": b"\x7fELF\x02\x01" + b"\0" * 100, "sm_90": true}
    text = on_each({target: forged.replace("BINARY", repr(binary)) for target, binary in binaries.items()})
    found = rows(tmp_path, text, "sm_80", *binaries)
    assert found.pop("sm_80").compiles.answer == "yes"
    for target, row in found.items():
        assert row.compiles.answer == "no"
        assert f"there is no binary of it for {target}" in row.compiles.why


def test_foreign_bytes_are_no_binaries(tmp_path: Path) -> None:
    assert read_binary(b"") == read_binary(b"\x7fELF\x02\x01" + b"\xff" * 300) == ()
    assert read_binary(Path(sys.executable).resolve().read_bytes()[: 1 << 20]) == ()


CUDA = """
#include <cstdint>

__global__ void relu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0 ? 0 : x[i];
}

extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    relu_kernel<<<(M * N + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, M * N);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="not run: no nvcc")
def test_cuda_sources(tmp_path: Path) -> None:
    found = rows(tmp_path, CUDA, "sm_80", "gfx942", name="relu.cu")
    assert found["sm_80"].compiles.answer == "yes", found["sm_80"].compiles.why
    assert found["sm_80"].kernels[0].registers > 4
    if shutil.which("hipcc") is None:
        assert found["gfx942"].compiles.answer == "not evaluated"
        assert "it takes hipcc" in found["gfx942"].compiles.why
    hopper = CUDA.replace("if (i < n)", 'asm volatile("wgmma.fence.sync.aligned;");\n    if (i < n)')
    found = rows(tmp_path, hopper, "sm_80", "sm_90", name="relu.cu")
    assert found["sm_90"].compiles.answer == "yes", found["sm_90"].compiles.why
    assert found["sm_90"].kernels[0].registers > 4
    assert found["sm_80"].compiles.answer == "no"
    assert "wgmma" in found["sm_80"].compiles.why


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="not run: no hipcc")
def test_sources_are_compiled_for_amd(tmp_path: Path) -> None:
    """CUDA as translated, and HIP as it is; a target that the compiler does not know tells nothing of the candidate."""
    known = [name for name in ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201") if not unknown_target(name)]
    assert known, "hipcc knows none of the targets"
    hip = CUDA.replace("<cstdint>", "<cstdint>\n#include <hip/hip_runtime.h>").replace("cuda", "hip")
    for text, name in ((CUDA, "relu.cu"), (hip, "relu.hip")):
        found = rows(tmp_path, text, "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201", name=name)
        for target, row in found.items():
            assert row.compiles.answer == ("yes" if target in known else "not evaluated"), row
            assert row.kernels or "does not compile for " + target in row.compiles.why
        kernels = found[known[0]].kernels
        assert [(k.spilled, k.shared_bytes) for k in kernels] == [(0, 0)] and kernels[0].registers > 1
    ptx = CUDA.replace("out[i] = x[i] < 0 ? 0 : x[i];", 'asm volatile("wgmma.fence.sync.aligned;");')
    row = rows(tmp_path, ptx, known[0], name="relu.cu")[known[0]]
    assert row.compiles.answer == "no"
    assert "wgmma" in row.compiles.why


@pytest.mark.parametrize(
    ("tool", "target", "name"), [("nvcc", "sm_80", "relu.cu"), ("hipcc", "", "relu.cu"), ("hipcc", "", "relu.hip")]
)
def test_compilers_read_no_file_of_the_users(tmp_path: Path, tool: str, target: str, name: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"not run: no {tool}")
    target = target or next(known for known in ("gfx90a", "gfx942", "gfx1100") if not unknown_target(known))
    (tmp_path / "secret.txt").write_text("the_secret of the user\n")
    (tmp_path / "source").mkdir()
    text = CUDA.replace("<cstdint>", f'<cstdint>\n#include "{tmp_path}/secret.txt"')
    row = rows(tmp_path / "source", text, target, name=name)[target]
    assert row.compiles.answer == "no" and "secret.txt" in row.compiles.why, row.compiles.why
    assert "the_secret" not in row.compiles.why


def test_hip_is_not_compiled_for_nvidia(tmp_path: Path) -> None:
    row = rows(tmp_path, "// HIP\n", "sm_90", name="relu.hip")["sm_90"]
    assert row.compiles.answer == "not evaluated"
    assert "AMD's GPUs alone" in row.compiles.why


def test_what_has_no_kernels_is_not_evaluated(tmp_path: Path) -> None:
    row = rows(tmp_path, "import torch\n\n\ndef relu(x):\n    return torch.relu(x)\n", "sm_90")["sm_90"]
    assert row.compiles.answer == "not evaluated"
    spec = CandidateSpec(source=str(tmp_path / "relu.py"), task="relu")
    with pytest.raises(UsageError, match=r"target 'sm_91' is unknown; did you mean sm_90"):
        pipeline.matrix(spec, Protocol(), targets=("sm_91",))
    with pytest.raises(UsageError, match=r"target 'zz' is unknown; known are sm_75, .*gfx1201, cpu"):
        pipeline.matrix(spec, Protocol(), targets=("zz",))
    absent = next(name for name in devices.names() if devices.find(name).available())
    with pytest.raises(
        UsageError, match=f"target '{absent}' cannot be used here: {re.escape(devices.find(absent).available())}"
    ):
        pipeline.matrix(spec, Protocol(), targets=(absent,))


def test_a_device_that_was_named_has_a_row(tmp_path: Path) -> None:
    named = rows(tmp_path, "// HIP\n", "sm_90", "cpu", name="relu.hip")
    assert list(named) == ["sm_90", "cpu"]
    assert named["cpu"].runs.answer == "not evaluated"
    assert named["cpu"].compiles.why == "hip candidates do not run there: they run on rocm"


CPP = """
#include <cstdint>

extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
#pragma omp parallel for simd if (M * N > 65536)
    for (int64_t i = 0; i < M * N; i++) out[i] = x[i] < 0 ? 0 : x[i];
    return 0;
}
"""


def test_the_command_judges_on_the_device_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"directions": ("forward",), "categories": ("tiny", "small"), "distributions": ("standard",)}
    judged = pipeline.matrix  # few and small cases: what is tested is the table
    monkeypatch.setattr(pipeline, "matrix", lambda spec, asked, **more: judged(spec, replace(asked, **few), **more))
    monkeypatch.setattr(Cpu, "case_budget", lambda _: (1 << 18, 4_000_000))
    path = tmp_path / "relu.cpp"
    path.write_text(CPP)
    command = ["matrix", str(path), "--task", "relu", "--quick", "--dtype", "fp32"]
    done = kerneleval(*command, "--targets", "sm_90,cpu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    there, here = json.loads(done.stdout)["rows"]
    assert (there["target"], there["compiles"]["answer"], there["runs"]["answer"]) == (
        "sm_90",
        "not evaluated",
        "not evaluated",
    )
    assert here["target"] == "cpu"
    assert [here[rung]["answer"] for rung in ("compiles", "runs", "correct")] == ["yes"] * 3
    assert here["fast"]["answer"] in ("yes", "no") and here["speedup"] > 0
    assert there["hardware"] is None
    assert (here["representation"]["level"], here["hardware"]["level"]) == (3, 1)  # the compiler vectorises the loop

    path.write_text(CPP.replace(": x[i]", ": 2 * x[i]"))
    done = kerneleval(*command, "--targets", "cpu")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cpu, correct: wrong_output" in done.stdout


def test_the_command_compiles_alone(tmp_path: Path) -> None:
    path = tmp_path / "relu.py"
    path.write_text(RIGHT)
    command = ["matrix", str(path), "--task", "relu", "--compile-only"]
    done = kerneleval(*command, "--targets", "gfx90a,gfx942")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "compiles for 2 of 2 targets" in done.stdout
    done = kerneleval(*command, "--targets", "sm_91")
    assert done.returncode == 2
    assert "target 'sm_91' is unknown" in done.stderr
