"""CUDA candidates as far as they go without a GPU: launch geometry, compilation, refusals. The rest: tests/gpu."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from kerneleval import languages
from kerneleval.languages import BuildError, LoadError, cuda
from kerneleval.languages.binaries import elf, nvidia
from kerneleval.languages.common import compiler, launches
from kerneleval.records import InfrastructureError, UsageError

DIMS = {"M": 1000, "N": 7}
LAUNCH = "// kerneleval-launch: gelu_float32 grid=(cdiv(M*N,256),1,1) block=(256,1,1) shared=0\n"
KERNEL = (
    'extern "C" __global__ void gelu_float32(const float *x, float *out, long long M, long long N) {\n'
    "    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;\n    if (i < M * N) out[i] = x[i] * 2;\n}\n"
)
HOST = (
    "#include <cstdint>\n"
    "__global__ void k(const float *x, float *o, int64_t n) { int i = threadIdx.x; if (i < n) o[i] = x[i]; }\n"
    'extern "C" int gelu_float32(const float *x, float *o, int64_t M, int64_t N, void *s) {\n'
    "    k<<<1, 256, 0, (cudaStream_t)s>>>(x, o, M * N);\n    return cudaGetLastError() != cudaSuccess;\n}\n"
)

needs_nvcc = pytest.mark.skipif(not cuda.find_nvcc(), reason="nvcc is not installed")
needs_nvrtc = pytest.mark.skipif(nvidia.find_nvrtc() is None, reason="NVRTC (nvidia-cuda-nvrtc) is not installed")
needs_either = pytest.mark.skipif(
    not cuda.find_nvcc() and nvidia.find_nvrtc() is None, reason="neither nvcc nor NVRTC is installed"
)


# -- geometry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("M", 1000),
        ("M*N", 7000),
        ("cdiv(M*N, 256)", 28),
        ("min(M, N) + max(M, N, 5000)", 5007),
        ("M // 3 - N % 4", 330),
        ("-(-M)", 1000),
        ("cdiv(0, 5)", 0),
        ("2 * (M + 1)", 2002),
    ],
)
def test_expressions(text, value):
    assert launches.evaluate(text, DIMS) == value


@pytest.mark.parametrize(
    "text",
    ["", "M.N", "M ** 2", "M / 2", "1.5", "'a'", "True", "f(M)", "cdiv(M)", "cdiv(a=1, b=2)", "M if N else 1", "[M]",
     "lambda: 1", "__import__('os')", "M and N", "M < N", "min()", "M\nN", "M;N", "(M", "1" * 401, "M << 2", "~M",
     "min(*M)", "(" * 300 + "M" + ")" * 99, str(2**63)],
)  # fmt: skip
def test_anything_else_is_refused(text):
    with pytest.raises(UsageError):
        launches.evaluate(text, DIMS)


def test_expressions_are_bounded_at_run_time():
    with pytest.raises(UsageError, match=r"K.*dims are M, N"):
        launches.evaluate("K", DIMS)
    with pytest.raises(UsageError, match="divides by zero"):
        launches.evaluate("M // (N - 7)", DIMS)
    with pytest.raises(UsageError, match="divides by zero"):
        launches.evaluate("cdiv(M, 0)", DIMS)
    with pytest.raises(UsageError, match="63 bits"):
        launches.evaluate("*".join(["M"] * 10), {"M": 2**40})


def test_launch_lines():
    text = LAUNCH + "// kerneleval-launch: other block=32 grid=(M, N) shared = 4*N\n"
    found = launches.read_launches(text)
    assert list(found) == ["gelu_float32", "other"]
    assert found["gelu_float32"].at(DIMS) == ((28, 1, 1), (256, 1, 1), 0)
    assert found["other"].at(DIMS) == ((1000, 7, 1), (32, 1, 1), 28)
    assert launches.read_launches("int x;") == {}
    with pytest.raises(UsageError, match="negative size"):
        launches.Geometry(kernel="k", grid=("M-N", "1", "1"), block=("1", "1", "1")).at({"M": 1, "N": 2})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "'' is no kernel name"),
        ("a-b grid=1 block=1", "no kernel name"),
        ("k grid=1", "block is missing"),
        ("k block=1", "grid is missing"),
        ("k grid=(1,2,3,4) block=1", "one to three sizes"),
        ("k grid=() block=1", "one to three sizes"),
        ("k grid=1 grid=2 block=1", "grid is given twice"),
        ("k 5 grid=1 block=1", "'5' is unexpected"),
        ("k grid=1 block=1 shared=(1,2)", "only integers"),
        ("k grid=1 block=1 cluster=2", "no integer expression"),
        ("k grid=exec(1) block=1", "only integers"),
    ],
)
def test_bad_launch_lines_name_their_line(make, tmp_path, line, message):
    with pytest.raises(BuildError, match="line 2: kerneleval-launch") as caught:
        languages.find("cuda").build(make(f"\n// kerneleval-launch: {line}\n", "cuda"), tmp_path, "cuda", "sm_90")
    assert message in str(caught.value)


def test_one_kernel_has_one_launch_line():
    with pytest.raises(UsageError, match=r"line 2: .*two launch lines"):
        launches.read_launches(LAUNCH * 2)


# -- architectures and flags ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "target"), [("sm_80", "80"), ("sm_89", "89"), ("sm_90", "90a"), ("sm_90a", "90a"), ("sm_100", "100a")]
)
def test_architecture_specific_targets(arch, target):
    assert nvidia.specific_arch(arch) == target


@pytest.mark.parametrize("arch", ["", "90", "gfx942", "sm_9", "sm_90;id", "sm_90x"])
def test_other_architectures_are_refused(arch):
    with pytest.raises(InfrastructureError, match="is no CUDA architecture"):
        nvidia.specific_arch(arch)


@pytest.mark.parametrize("tool", ["nvcc", "nvrtc"])
@pytest.mark.parametrize(
    "flag",
    ["-Xcompiler", "-Xcompiler=-fplugin=x", "-Xptxas=-v", "-ccbin=/tmp/x", "--compiler-bindir=/x", "-lcublas",
     "-include=x", "-arch=sm_70", "-gencode", "-o", "-keep", "--keep-dir=/tmp", "--options-file=x", "-optf=x", "-I/etc",
     "-run", "-dlto", "--pre-include=/etc/passwd", "-std=c++17,x", "-DA=/x"],
)  # fmt: skip
def test_dangerous_flags_are_refused(make, tool, flag):
    with pytest.raises(BuildError, match="is not allowed for"):
        compiler.candidate_flags(make(f"// kerneleval-flags: {flag}\n", "cuda"), tool)


@pytest.mark.parametrize("flag", ["-DA=1", "-use_fast_math", "--use_fast_math", "-fmad=false", "--maxrregcount=64"])
def test_useful_flags_are_allowed(make, flag):
    for tool in ("nvcc", "nvrtc"):
        assert compiler.candidate_flags(make(f"// kerneleval-flags: {flag}\n", "cuda"), tool) == [flag]


# -- building ---------------------------------------------------------------------------------------------------------


@needs_nvcc
def test_a_host_launcher_is_compiled_by_nvcc(make, tmp_path):
    languages.find("cuda").build(make(HOST, "cuda"), tmp_path, "cuda", "sm_90")
    (library,) = tmp_path.glob("*.so")
    assert elf.function_names(library) == ["gelu_float32"]
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "libcudart" not in needed  # linked statically


@needs_nvcc
def test_allowed_flags_are_understood_by_nvcc(make, tmp_path):
    flags = (
        "-O2 -DA=1 -std=c++20 -use_fast_math -fmad=false -ftz=true -prec-div=false -prec-sqrt=false -maxrregcount=64 "
        "-extra-device-vectorization -expt-relaxed-constexpr -expt-extended-lambda"
    )
    languages.find("cuda").build(make(f"// kerneleval-flags: {flags}\n" + HOST, "cuda"), tmp_path, "cuda", "sm_90")


@needs_either
def test_device_code_alone_is_compiled(make, tmp_path):
    languages.find("cuda").build(make(LAUNCH + KERNEL, "cuda"), tmp_path, "cuda", "sm_90")
    assert elf.kernel_names((tmp_path / "candidate.cubin").read_bytes()) == ["gelu_float32"]


@needs_nvcc
def test_device_code_alone_is_compiled_by_nvcc_where_nvrtc_is_absent(make, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "find_nvrtc", lambda: None)
    languages.find("cuda").build(make(LAUNCH + KERNEL, "cuda"), tmp_path, "cuda", "sm_80")
    assert elf.kernel_names((tmp_path / "candidate.cubin").read_bytes()) == ["gelu_float32"]


@needs_nvrtc
def test_allowed_flags_are_understood_by_nvrtc(make, tmp_path):
    flags = (
        "-DA=1 -std=c++20 -use_fast_math -fmad=false -ftz=true -prec-div=false -prec-sqrt=false -maxrregcount=64 "
        "-extra-device-vectorization"
    )
    text = f"// kerneleval-flags: {flags}\n" + LAUNCH + KERNEL
    languages.find("cuda").build(make(text, "cuda"), tmp_path, "cuda", "sm_90")


@needs_either
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUNCH + KERNEL.replace("x[i]", "y[i]"), 'identifier "y" is undefined'),
        (LAUNCH.replace("gelu_float32", "absent") + KERNEL, "names absent; kernels there are gelu_float32"),
        (LAUNCH + KERNEL.replace('extern "C" ', ""), 'must be extern "C"'),
        ("// kerneleval-flags: -lcublas\n" + LAUNCH + KERNEL, "'-lcublas' is not allowed"),
    ],
)
def test_build_errors_of_device_code(make, tmp_path, text, message):
    with pytest.raises(BuildError) as caught:
        languages.find("cuda").build(make(text, "cuda"), tmp_path, "cuda", "sm_90")
    assert message in str(caught.value)


@needs_nvcc
def test_build_errors_of_host_code(make, tmp_path):
    with pytest.raises(BuildError, match="nvcc failed") as caught:
        languages.find("cuda").build(make(HOST.replace("M * N", "Q"), "cuda"), tmp_path, "cuda", "sm_90")
    assert 'identifier "Q" is undefined' in caught.value.log
    assert "candidate.cu(4)" in caught.value.log


def test_missing_compilers_are_no_fault_of_the_candidate(make, tmp_path, monkeypatch):
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda, "find_nvrtc", lambda: None)
    language = languages.find("cuda")
    assert "pip install nvidia-cuda-nvrtc" in language.missing("cuda")
    for text in (HOST, LAUNCH + KERNEL):
        with pytest.raises(InfrastructureError, match="install the CUDA toolkit"):
            language.build(make(text, "cuda"), tmp_path, "cuda", "sm_90")


def test_loading_what_was_not_built(make, tmp_path):
    with pytest.raises(LoadError, match="was not built"):
        languages.find("cuda").load(make(HOST, "cuda"), tmp_path, "cuda", names=("gelu",))
    with pytest.raises(LoadError, match="was not built"):
        languages.find("cuda").load(make(LAUNCH + KERNEL, "cuda"), tmp_path, "cuda", names=("gelu",))


def test_nvrtc_is_found_in_wheels(tmp_path, monkeypatch):
    folder = tmp_path / "nvidia" / "cu99" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.alt.so.14", "libnvrtc-builtins.so.13.0"):
        (folder / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert nvidia.find_nvrtc() == folder / "libnvrtc.so.13"
    include = tmp_path / "nvidia" / "cu99" / "include"
    include.mkdir()
    (include / "cuda_fp16.h").touch()
    assert nvidia.include_folders(folder / "libnvrtc.so.13")[0] == include


def test_a_library_that_is_none_is_reported(tmp_path):
    (tmp_path / "libnvrtc.so.1").write_text("no library")
    with pytest.raises(InfrastructureError, match="does not load"):
        nvidia.Nvrtc(tmp_path / "libnvrtc.so.1")


@pytest.mark.parametrize("data", [b"", b"\x7fELF", os.urandom(4096), b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_damaged_binaries_have_no_names(tmp_path, data):
    (tmp_path / "x.so").write_bytes(data)
    assert elf.function_names(tmp_path / "x.so") == []
    assert elf.kernel_names(data) == []


# -- the driver -------------------------------------------------------------------------------------------------------

# Stands in for the driver library: "launches" on the host, from the same arguments that the driver would get.
DRIVER = r"""
#include <cstdint>
#include <cstring>
struct Call { unsigned grid[3], block[3], shared; int limit, launches; void *stream; };
static Call seen;
static char loaded[32];
extern "C" {
Call *last() { return &seen; }
int cuModuleLoadData(void **module, const void *image) {
    *module = strncpy(loaded, (const char *)image, 31);
    return 0;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)0x7fffffff12345678;
    return module == loaded && !strcmp(name, "gelu") ? 0 : 500;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    seen.limit = value;
    return function == (void *)0x7fffffff12345678 && attribute == 8 ? 0 : 1;
}
int cuGetErrorName(int code, const char **text) {
    *text = code == 500 ? "CUDA_ERROR_NOT_FOUND" : "CUDA_ERROR_X";
    return 0;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **args, void **extra) {
    if (function != (void *)0x7fffffff12345678 || extra || bx > 1024) return 1;
    int launches = seen.launches + 1, limit = seen.limit;
    seen = {{gx, gy, gz}, {bx, by, bz}, shared, limit, launches, stream};
    float *x = *(float **)args[0], *out = *(float **)args[3];
    int64_t k = *(int64_t *)args[1], n = *(int64_t *)args[4] * *(int64_t *)args[5];
    double s = *(double *)args[2];
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * s + k;
    return 0;
}
}
"""


class Call(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("limit", ctypes.c_int),
        ("launches", ctypes.c_int),
        ("stream", ctypes.c_void_p),
    ]


@pytest.fixture
def driver(tmp_path, monkeypatch):
    source, library = tmp_path / "driver.cpp", tmp_path / "libcuda.so"
    source.write_text(DRIVER)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    fake = ctypes.CDLL(str(library))
    fake.last.restype = ctypes.POINTER(Call)
    monkeypatch.setattr(nvidia.ctypes, "CDLL", lambda name, **_: fake)
    return fake


def test_the_driver_gets_geometry_and_arguments(driver):
    module = nvidia.DeviceModule(b"image")
    handle = module.function("gelu")
    x, out = (ctypes.c_float * 6)(*range(6)), (ctypes.c_float * 6)()
    values = [
        ctypes.c_void_p(ctypes.addressof(x)),
        ctypes.c_int64(-3),
        ctypes.c_double(0.5),
        ctypes.c_void_p(ctypes.addressof(out)),
        ctypes.c_int64(2),
        ctypes.c_int64(3),
    ]
    module.launch("gelu", handle, ((3, 2, 1), (256, 1, 1), 100), values, 2**40)
    assert list(out) == [i * 0.5 - 3 for i in range(6)]
    call = driver.last().contents
    assert (list(call.grid), list(call.block), call.shared, call.stream) == ([3, 2, 1], [256, 1, 1], 100, 2**40)
    assert (call.launches, call.limit) == (1, 0)
    for _ in range(2):  # more than 48 KiB is allowed once, then remembered
        module.launch("gelu", handle, ((1, 1, 1), (1, 1, 1), 65536), values, 0)
        assert driver.last().contents.limit == 65536
    module.launch("gelu", handle, ((0, 1, 1), (1, 1, 1), 0), values, 0)
    assert driver.last().contents.launches == 3  # an empty grid is not launched
    assert driver.last().contents.stream is None


def test_the_drivers_errors_are_named(driver):
    module = nvidia.DeviceModule(b"image")
    with pytest.raises(RuntimeError, match=r"cuModuleGetFunction\(absent\) failed: CUDA_ERROR_NOT_FOUND \(500\)"):
        module.function("absent")
    with pytest.raises(RuntimeError, match=r"cuLaunchKernel\(gelu, grid=\(1, 1, 1\), block=\(4096.*CUDA_ERROR_X \(1\)"):
        module.launch("gelu", module.function("gelu"), ((1, 1, 1), (4096, 1, 1), 0), [], 0)


def test_a_missing_driver_is_no_fault_of_the_candidate(monkeypatch):
    def absent(name, **_):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(nvidia.ctypes, "CDLL", absent)
    with pytest.raises(InfrastructureError, match="CUDA driver library does not load: libcuda"):
        nvidia.DeviceModule(b"image")
