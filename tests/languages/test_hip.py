"""HIP candidates, and CUDA sources on AMD GPUs, as far as they go without one: real compilation, refusals, binaries."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest

from kerneleval import languages
from kerneleval.devices.rocm import Rocm
from kerneleval.languages import BuildError
from kerneleval.languages.binaries import amd
from kerneleval.languages.binaries.kernels import read_binary, unpack
from kerneleval.languages.common import native
from kerneleval.records import Candidate, InfrastructureError, UsageError

needs_hipcc = pytest.mark.skipif(amd.find_hipcc() is None, reason="hipcc is not installed")

BROKEN = "#include <hip/hip_runtime.h>\n__global__ void k(float *x) { x[0] = nothing; }\n"


def of(text: str, language: str, *more: tuple[str, str]) -> Candidate:
    name = {"hip": "candidate.hip", "cuda": "candidate.cu"}[language]
    return Candidate(files=((name, text), *more), language=language)


def target() -> str:
    """One that the hipcc here knows."""
    found = next((a for a in ("gfx90a", "gfx942", "gfx1100", "gfx906") if not amd.unknown_target(a)), "")
    assert found, amd.unknown_target("gfx90a")
    return found


@needs_hipcc
@pytest.mark.parametrize(("name", "language"), [("hip", "hip"), ("cuda", "cuda"), ("cuda-device", "cuda")])
def test_examples_compile_for_an_amd_gpu(name: str, language: str, example, tmp_path: Path) -> None:
    candidate = of(example(name), language)
    found = languages.find(language)
    found.build(candidate, tmp_path, "rocm", target())
    (built,) = tmp_path.iterdir()
    kernels = [k for _, code in amd.code_objects(built.read_bytes()) for k in read_binary(code)]
    assert len(kernels) == 2  # forward and backward
    for kernel in kernels:
        assert (kernel.arch, kernel.spilled, kernel.shared_bytes) == (target(), 0, 0)
        assert 1 < kernel.registers <= 256
    if built.suffix == ".so":
        assert {"gelu_backward_float32", "gelu_float32"} < set(native.Library(built).symbols())
        assert found.foreign(candidate, tmp_path) == ()
    else:
        assert {k.name for k in kernels} == {"gelu_float32", "gelu_backward_float32"}


@needs_hipcc
def test_device_code_alone_in_hip(example, tmp_path: Path) -> None:
    text = "#include <hip/hip_runtime.h>\n" + example("cuda-device")
    lines = text.splitlines()
    text = "\n".join([*lines[1:3], lines[0], *lines[3:]])
    languages.find("hip").build(of(text, "hip"), tmp_path, "rocm", target())
    with pytest.raises(BuildError, match=r"kerneleval-launch names gelu_f64; kernels there are gelu_.*"):
        renamed = text.replace("// kerneleval-launch: gelu_float32", "// kerneleval-launch: gelu_f64")
        languages.find("hip").build(of(renamed, "hip"), tmp_path / "other", "rocm", target())


@needs_hipcc
def test_headers_of_a_cuda_candidate_are_translated_too(tmp_path: Path) -> None:
    header = (
        "#pragma once\n#include <cuda_runtime.h>\nstatic int status() { return cudaGetLastError() != cudaSuccess; }\n"
    )
    main = (
        '#include "parts/status.cuh"\n__global__ void k() {}\n'
        'extern "C" int gelu(void *stream) { k<<<1, 1, 0, (cudaStream_t)stream>>>(); return status(); }\n'
    )
    candidate = of(main, "cuda", ("parts/status.cuh", header))
    languages.find("cuda").build(candidate, tmp_path, "rocm", target())
    (built,) = tmp_path.iterdir()
    assert "gelu" in native.Library(built).symbols()


@pytest.mark.parametrize("name", ["json.py", "hipify/__init__.py", "contextlib.py", "sitecustomize.py"])
def test_nothing_of_a_candidate_runs_while_it_is_translated(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    folder = tmp_path / "source"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).write_text(f"open({str(marker)!r}, 'w')\nraise SystemExit(3)\n")
    (folder / "a.cu").write_text("#include <cuda_runtime.h>\n")
    assert amd.hipified(folder, ["a.cu"]) == ["a.hip"]
    assert "hip/hip_runtime.h" in (folder / "a.hip").read_text()
    assert not marker.exists()


def test_translation_stays_within_the_candidate(tmp_path: Path) -> None:
    """A header elsewhere is neither read nor translated."""
    folder = tmp_path / "source"
    folder.mkdir()
    (tmp_path / "outside.h").write_text("#include <cuda_runtime.h>\n")
    (folder / "a.cu").write_text('#include "../outside.h"\n#include <cuda_fp16.h>\n')
    amd.hipified(folder, ["a.cu"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside.h", "source"]


@needs_hipcc
@pytest.mark.parametrize("language", ["hip", "cuda"])
def test_errors_are_the_compilers(language: str, tmp_path: Path) -> None:
    text = BROKEN if language == "hip" else BROKEN.replace("hip/hip_runtime.h", "cuda_runtime.h")
    with pytest.raises(BuildError, match="use of undeclared identifier 'nothing'"):
        languages.find(language).build(of(text, language), tmp_path, "rocm", target())
    assert list(tmp_path.iterdir()) == []


@needs_hipcc
def test_the_compiler_itself_says_which_targets_it_knows() -> None:
    assert amd.unknown_target(target()) == ""
    assert "gfx9999" in amd.unknown_target("gfx9999") and "error:" in amd.unknown_target("gfx9999")


@needs_hipcc
@pytest.mark.parametrize("arch", ["gfx906", "gfx908", "gfx90a", "gfx1030", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_binaries_say_what_they_are_for(arch: str, example, tmp_path: Path) -> None:
    if why := amd.unknown_target(arch):
        pytest.skip(why)
    languages.find("hip").build(of(example("hip"), "hip"), tmp_path, "rocm", arch)
    (built,) = tmp_path.iterdir()
    ((named, code),) = amd.code_objects(built.read_bytes())
    assert named.partition(":")[0] == arch
    assert {kernel.arch for kernel in read_binary(code)} == {arch}


@needs_hipcc
def test_the_build_directory_depends_on_compiler_target_and_translator() -> None:
    hip, cuda = languages.find("hip"), languages.find("cuda")
    assert hip.toolchain("rocm", "gfx90a") != hip.toolchain("rocm", "gfx942")
    assert "HIP version" in hip.toolchain("rocm", "gfx90a")
    assert "hipify" in cuda.toolchain("rocm", "gfx90a") and "hipify" not in cuda.toolchain("cuda", "sm_90")


@pytest.mark.parametrize("flag", ["-fplugin=x", "-Wl,-rpath,/", "-mllvm", "--offload-arch=gfx90a", "-include", "-x"])
def test_flags_that_name_files_or_load_programs_are_refused(flag: str, tmp_path: Path) -> None:
    text = f"// kerneleval-flags: {flag}\n"
    with pytest.raises(BuildError, match=r"candidate.hip:1: flag '.*' is not allowed for hipcc"):
        languages.find("hip").build(of(text, "hip"), tmp_path, "rocm", "gfx90a")


def test_flags_of_nvcc_become_those_of_hipcc() -> None:
    asked = ["-O2", "-DN=3", "-std=c++20", "--use_fast_math", "-fmad=false"]
    assert amd.translated_flags(asked, "a.cu") == ["-O2", "-DN=3", "-std=c++20", "-ffast-math", "-ffp-contract=off"]
    with pytest.raises(BuildError, match=r"a\.cu: the flag '-maxrregcount=32' of nvcc has no counterpart"):
        amd.translated_flags(["-maxrregcount=32"], "a.cu")


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(amd, "find_hipcc", lambda: None)
    assert "hipcc: install ROCm" in languages.find("hip").missing("rocm")
    assert "hipcc: install ROCm" in languages.find("cuda").missing("rocm")
    with pytest.raises(InfrastructureError, match="no hipcc on PATH"):
        languages.find("hip").build(of("", "hip"), tmp_path, "rocm", "gfx90a")
    with pytest.raises(UsageError, match="hip candidates do not run on device 'cuda': they run on rocm"):
        languages.find("hip").build(of("", "hip"), tmp_path, "cuda", "sm_90")


# -- binaries ---------------------------------------------------------------------------------------------------------


def bundle(*entries: tuple[str, bytes]) -> bytes:
    head, body = b"", b""
    size = 32 + sum(24 + len(name) for name, _ in entries)
    for name, code in entries:
        head += struct.pack("<QQQ", size + len(body), len(code), len(name)) + name.encode()
        body += code
    return b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries)) + head + body


def test_bundles_are_found_wherever_they_lie() -> None:
    data = bundle(("host-x86_64-unknown-linux--", b"host"), ("hipv4-amdgcn-amd-amdhsa--gfx90a", b"code"))
    assert amd.code_objects(data) == amd.code_objects(b"\0" * 7 + data) == [("gfx90a", b"code")]
    for cut in range(len(data)):
        assert all(len(code) <= 4 for _, code in amd.code_objects(data[:cut]))
    endless = b"__CLANG_OFFLOAD_BUNDLE__" + b"\xff" * 4000
    assert amd.code_objects(endless) == []
    assert len(amd.code_objects(data * 1000)) == 64


def test_messagepack_is_read_and_nothing_else() -> None:
    data = b"\x83\xa2ab\x07\xa1c\x93\xcd\x01\x00\xff\xc0\xd9\x01d\xde\x00\x01\xa1x\xce\x00\x01\x00\x00"
    assert unpack(data, 0, 0) == ({"ab": 7, "c": [256, -1, None], "d": {"x": 65536}}, len(data))
    for bad in (b"", b"\xa5ab", b"\x92\x01", b"\xc1", b"\xcb" + b"\0" * 8, b"\x91" * 100, b"\x81\x90\x01"):
        with pytest.raises((IndexError, struct.error, ValueError, TypeError)):
            value, end = unpack(bad, 0, 0)
            if end > len(bad):
                raise ValueError(f"cut off: {value}")


# -- the HIP runtime itself, where it is installed --------------------------------------------------------------------


def runtime() -> ctypes.CDLL | None:
    try:
        return amd.hip_runtime()
    except InfrastructureError:
        return None


@pytest.mark.skipif(runtime() is None or Path("/dev/kfd").exists(), reason="needs the HIP runtime and no AMD GPU")
def test_the_real_runtime_has_every_function_and_says_that_there_is_no_gpu() -> None:
    library = runtime()
    assert library is not None
    calls = Rocm.calls
    for name in (calls.allocate, calls.free, calls.share, calls.open, calls.close, "hipGetErrorString"):
        assert getattr(library, name)
    pointer = ctypes.c_uint64()
    with pytest.raises(InfrastructureError, match=r"hipMalloc failed with HIP error 10[01]: \w+"):
        Rocm()._check(calls.allocate, ctypes.byref(pointer), ctypes.c_size_t(512))
    with pytest.raises(RuntimeError, match=r"hipModuleLoadData failed: hipError\w+ \(\d+\)"):
        amd.HipModule(b"\0" * 64)
