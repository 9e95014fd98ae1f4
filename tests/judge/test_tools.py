"""Tools of a language: a missing or broken one is never the candidate's failure, and nothing is said of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from kerneleval import cli, devices, languages
from kerneleval.judge import Judge
from kerneleval.judge.windows import self_check
from kerneleval.judge.windows.worker_pool import WorkerPool
from kerneleval.languages import cpp, cuda
from kerneleval.languages.binaries import amd
from kerneleval.languages.common import opencl_runtime, python_module
from kerneleval.languages.common.base import known_kernel
from kerneleval.pipeline import check, run
from kerneleval.pipeline.rewards import Rewarder
from kerneleval.records import Candidate, ToolError
from kerneleval.store import open_store

NOTHING_SAID = "; nothing is said of the candidate"
# All are wrong, so that no verdict on them takes a measurement.
NUMBA = """import numba
import torch

@numba.njit
def double(x, out):
    for i in range(x.size):
        out[i] = 2.0 * x[i]

def relu(x):
    out = torch.empty(x.numel(), dtype=x.dtype)
    double(x.reshape(-1).numpy(), out.numpy())
    return out.view(x.shape)
"""
TORCH = "import torch\n\ndef relu(x):\n    return 2.0 * x\n"
CPP = """#include <cstdint>
extern "C" int relu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) out[i] = 2 * x[i];
    return 0;
}
"""


def candidate(language: str, text: str = "x") -> Candidate:
    return Candidate(files=((f"candidate{languages.find(language).suffixes[0]}", text),), language=language)


def require(device: str, wanted: Candidate) -> None:
    """``WorkerPool.require`` up to the self-check, for devices that are not here."""
    pool = SimpleNamespace(
        device=SimpleNamespace(name=device),
        machine=SimpleNamespace(arch=""),
        zygote=SimpleNamespace(preload=lambda *_: None),
        _self_check=lambda *_: None,
    )
    WorkerPool.require(pool, wanted)  # type: ignore[arg-type]


def without_module(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    find_spec = python_module.importlib.util.find_spec
    monkeypatch.setattr(
        python_module.importlib.util, "find_spec", lambda name, *a: None if name == module else find_spec(name, *a)
    )


# --------------------------------------------------------------------------------------------------------------------
# Missing tools
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "device", "hint"),
    [
        ("numba", "cpu", "numba candidates need numba: pip install numba"),
        ("triton", "cpu", "triton candidates need triton: pip install triton"),
        ("torch", "cpu", "torch candidates need torch: pip install torch"),
        ("opencl", "opencl", "opencl candidates need pyopencl and an OpenCL platform: pip install pyopencl"),
    ],
)
def test_a_missing_package(monkeypatch, language, device, hint):
    require(device, candidate(language))
    without_module(monkeypatch, "pyopencl" if language == "opencl" else language)
    with pytest.raises(ToolError) as raised:
        require(device, candidate(language))
    assert str(raised.value).startswith(hint)
    assert str(raised.value).endswith(NOTHING_SAID)


@pytest.mark.parametrize(
    ("language", "device", "hint"),
    [
        ("cpp", "cpu", "cpp candidates need a C++ compiler: install g++"),
        ("cuda", "cuda", "cuda candidates need nvcc or NVRTC: install the CUDA toolkit"),
        ("cuda", "rocm", "cuda candidates need hipcc: install ROCm"),
        ("hip", "rocm", "hip candidates need hipcc: install ROCm"),
    ],
)
def test_a_missing_compiler(monkeypatch, language, device, hint):
    monkeypatch.setattr(cpp, "_find_compiler", lambda: None)
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda, "find_nvrtc", lambda: None)
    monkeypatch.setattr(amd, "find_hipcc", lambda: None)
    with pytest.raises(ToolError) as raised:
        require(device, candidate(language))
    assert str(raised.value).startswith(hint)


def test_nvrtc_is_enough_for_device_code(monkeypatch):
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda, "find_nvrtc", lambda: Path("libnvrtc.so"))
    device_code = candidate("cuda", known_kernel("softmax_device.cu"))
    require("cuda", device_code)
    assert languages.find("cuda").known_for(device_code) == "softmax_device.cu"
    with pytest.raises(ToolError, match="need nvcc, for sources with a host launcher"):
        require("cuda", candidate("cuda", known_kernel("softmax.cu")))


def test_extensions_need_compilers(monkeypatch):
    extension = candidate(
        "torch", "from torch.utils.cpp_extension import load_inline\nm = load_inline(cuda_sources='')"
    )
    monkeypatch.setattr(cuda, "find_nvcc", lambda: None)
    require("cpu", extension)
    with pytest.raises(ToolError, match="nvcc, for an extension"):
        require("cuda", extension)
    monkeypatch.setattr(cpp, "_find_compiler", lambda: None)
    for wanted in (extension, candidate("torch", "import torch\nf = torch.compile(torch.relu)")):
        with pytest.raises(ToolError, match=r"a C\+\+ compiler"):
            require("cpu", wanted)
    require("cuda", candidate("torch", "import torch\nf = torch.compile(torch.relu)"))
    without_module(monkeypatch, "ninja")
    with pytest.raises(ToolError, match="pip install ninja"):
        require("cpu", extension)
    assert languages.find("torch").missing_for(candidate("torch", TORCH), "cpu") == ""


def test_a_candidate_for_another_device_is_not_asked_for_tools(monkeypatch):
    monkeypatch.setattr(amd, "find_hipcc", lambda: None)
    require("cpu", candidate("hip"))  # its verdict says that it does not run there


@pytest.fixture
def numba_file(tmp_path: Path) -> Path:
    file = tmp_path / "numba_relu.py"
    file.write_text(NUMBA)
    return file


def test_the_command_ends_with_2(numba_file, monkeypatch, capsys):
    without_module(monkeypatch, "numba")
    assert cli.main(["check", str(numba_file), "--task", "relu", "--quick", "--device", "cpu"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "numba candidates need numba: pip install numba; nothing is said of the candidate" in said


def test_what_the_candidate_imports_itself_is_its_own(tmp_path, judge):
    file = tmp_path / "relu.py"
    file.write_text("import torch\nimport no_such_package\n\ndef relu(x):\n    return 2.0 * x\n")
    verdict = check(file, "relu", tier="quick", judge=judge)
    assert (verdict.verdict, verdict.reason) == ("failed", "load_error")
    assert "no_such_package" in verdict.message


def test_a_run_stores_nothing_of_what_cannot_be_judged(tmp_path, judge, monkeypatch):
    for name, text in {"by_cpp/relu.cpp": CPP, "by_torch/relu.py": TORCH}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    store = str(tmp_path / "results.db")
    options = {"tier": "quick", "directions": ["forward"], "categories": ["tiny"], "store_url": store, "judge": judge}
    both = [str(tmp_path / "by_cpp"), str(tmp_path / "by_torch")]
    with monkeypatch.context() as patched:
        patched.setattr(cpp, "_find_compiler", lambda: None)
        with pytest.raises(ToolError, match=r"^1 of the candidates cannot be judged here.*install g\+\+") as raised:
            run(both, ["relu"], **options)
    assert "goes on when the same command is given again" in str(raised.value)
    with open_store(store) as opened:
        (info,) = opened.runs()
        assert [attempt.generator for attempt, _ in opened.verdicts(info.id)] == ["by_torch"]
    assert run(both, ["relu"], **options) == info.id
    with open_store(store) as opened:
        stored = {attempt.generator: verdict.reason for attempt, verdict in opened.verdicts(info.id)}
    assert stored == {"by_cpp": "wrong_output", "by_torch": "wrong_output"}


def test_a_rewarder_goes_on_after_a_missing_tool(new_cache, monkeypatch):
    with Rewarder("cpu", cache_dir=new_cache(), directions=("forward",)) as rewarder:
        before = rewarder._judge
        with monkeypatch.context() as patched:
            without_module(patched, "numba")
            with pytest.raises(ToolError, match="pip install numba"):
                rewarder(NUMBA, "relu")
        assert rewarder._judge is before
        assert rewarder(NUMBA, "relu").value > 0


# --------------------------------------------------------------------------------------------------------------------
# Self-checks: tools that are there and work, or do not
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    device = devices.find("cpu")
    with WorkerPool(device, device.machine(), tmp_path / "cache") as pool:
        yield pool


@pytest.mark.parametrize("name", sorted(languages.all_languages()))
def test_every_built_in_language_has_a_known_kernel(name):
    language = languages.find(name)
    assert language.known, "its tools would not be self-checked"
    assert all(known_kernel(known) for known in language.known)


@pytest.mark.parametrize("name", ["cpp", "torch", "triton", "numba"])
def test_working_tools_pass_once(pool, name, monkeypatch):
    if missing := languages.find(name).missing("cpu"):
        pytest.skip(f"not run: {missing}")
    pool.require(candidate(name))
    monkeypatch.setattr(self_check, "failure", lambda *_: "asked again")
    pool._self_checks.clear()
    pool.require(candidate(name))  # from the cache
    shutil.rmtree(pool.cache_dir / "self-checks")
    pool._self_checks.clear()
    with pytest.raises(ToolError, match="asked again"):
        pool.require(candidate(name))


def test_a_pass_with_other_versions_is_no_pass(pool, monkeypatch):
    pool.require(candidate("torch"))
    monkeypatch.setattr(numpy, "__version__", "0.0")
    monkeypatch.setattr(self_check, "failure", lambda *_: "asked again")
    pool._self_checks.clear()
    with pytest.raises(ToolError, match="asked again"):
        pool.require(candidate("torch"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that workers can read, once ``PYTHONPATH`` or a choice of tools names it."""
    folder = Path(tempfile.mkdtemp(prefix="kerneleval-tools-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


INTERPRETER = """
import triton.language as tl
from triton.runtime import interpreter

patch = interpreter._patch_lang_tensor

def patched(tensor, scope):
    patch(tensor, scope)
    scope.set_attr(tensor, "__index__", refused)

def refused(self):
    raise TypeError("only 0-dimensional arrays can be converted to Python scalars")

interpreter._patch_lang_tensor = patched
"""


@pytest.mark.slow
def test_an_interpreter_of_triton_that_cannot_loop_is_refused(open_folder, monkeypatch, tmp_path):
    """As that of Triton 3.6 beside NumPy 2.5, where an array of one element is no integer any more."""
    (open_folder / "sitecustomize.py").write_text(INTERPRETER)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(open_folder), os.environ.get("PYTHONPATH", "")]))
    refused = pytest.raises(ToolError, match=r"softmax_triton.py does not run: .*only 0-dimensional arrays")
    with Judge("cpu", tmp_path) as judge, refused:
        judge.pool.require(candidate("triton"))


WRONG = "sed -i 's/std::exp(/std::expm1(/' *.cpp"
CRASH = "kill -SEGV $$"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "said"),
    [
        (WRONG, "the known kernel softmax.cpp computes wrongly"),
        (CRASH, "the known kernel softmax.cpp does not compile"),
    ],
)
def test_a_broken_compiler_is_refused_by_name(open_folder, first, said, monkeypatch, tmp_path):
    compiler = open_folder / "broken-g++"
    version = "Broken C++ 1.0"
    compiler.write_text(
        f'#!/bin/bash\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{first}\nexec g++ "$@"\n'
    )
    compiler.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(open_folder), os.environ.get("PYTHONPATH", "")]))
    source = 'extern "C" int relu_float32() { return 0; }'
    with Judge("cpu", tmp_path) as judge, pytest.raises(ToolError) as raised:
        judge.pool.require(candidate("cpp", source))
    assert said in str(raised.value)
    assert version in str(raised.value)
    assert str(raised.value).endswith(NOTHING_SAID)


@pytest.fixture
def doctored(open_folder, monkeypatch) -> Callable[[str], Path]:
    """Makes a copy of PoCL whose header has a further line, and chooses it."""
    import pyopencl

    source = Path(pyopencl.__file__).parent
    if not (source.parent / opencl_runtime._POCL_FILES).is_dir():
        pytest.skip("not run: PoCL is not that of pocl-binary-distribution")

    def make(line: str) -> Path:
        home = opencl_runtime.linked_pocl(source, open_folder)
        header = open_folder / opencl_runtime._POCL_FILES / "share/pocl/include"
        original = header.resolve()
        header.unlink()
        shutil.copytree(original, header)
        with (header / "_kernel.h").open("a") as file:
            file.write(f"\n{line}\n")
        (library,) = (home / ".libs").glob("libpocl*")
        monkeypatch.setenv(opencl_runtime.CHOICE, str(library))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(open_folder), os.environ.get("PYTHONPATH", "")]))
        return library

    return make


COMMANDS = """
import json, sys
from tests.commands import kerneleval
from tests.zygotes import Forked
from kerneleval.judge.machine import peaks
from kerneleval.judge.windows import worker_pool
from kerneleval.records import Limits

worker_pool.Zygote = Forked
# Measuring them takes ten seconds.
peaks.measure_limits = lambda *_, **__: Limits(bandwidth_bytes_per_s=1e13, flop_per_s=(("float32", 1e15),))
for words in json.load(sys.stdin):
    done = kerneleval(*words)
    print(json.dumps([done.returncode, done.stdout + done.stderr]))
"""


def _commands(*commands: Sequence[str], folder: Path) -> list[tuple[int, str]]:
    """Exit code and output of each command, in one process where no runtime was loaded before."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({str(Path(__file__).parents[2])!r})\n{COMMANDS}"],
        input=json.dumps(commands),
        env=os.environ | {"COLUMNS": "2000"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(bool(opencl_runtime.unusable()), reason=f"not run: {opencl_runtime.unusable()}")
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("#define exp(x) (1.0f + (x))", "the known kernel softmax.cl computes wrongly"),
        ("#define get_group_id(d) (*(volatile global long *)16)", "the known kernel softmax.cl does not run"),
    ],
)
def test_an_opencl_runtime_is_refused_by_name(doctored, line, said, tmp_path):
    """In a process of its own: a runtime is loaded once in a process."""
    library = doctored(line)
    file = tmp_path / "gelu.cl"
    file.write_text((Path(__file__).parents[1] / "attacks/honest/gelu.cl").read_text())
    options = ["--task", "gelu", "--device", "opencl", "--quick"]
    others = [["doctor"]] if "wrongly" in said else []  # of a crash it says the same
    told = _commands(["check", str(file), *options], *others, folder=tmp_path)
    code, output = told[0]
    assert code == 2, output
    assert said in output
    assert "PoCL" in output
    assert "nothing is said of the candidate" in output
    for _, of_doctor in told[1:]:
        assert said in of_doctor, library
