"""``torch.compile`` as the baseline: of problem files too, and where it cannot compile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.commands import kerneleval

from kerneleval.judge.timing import timer
from kerneleval.judge.windows import worker_pool
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Protocol
from kerneleval.tasks import open_task

FILE = """
import torch
import torch.nn as nn

class Model{new}(nn.Module):
    def __init__(self, n):
        super(Model{new}, self).__init__()
        self.fc = nn.Linear(n, n)
        self.register_buffer("scale", torch.full((n,), 2.0))
    def forward(self, x):
        return torch.relu(self.fc(x)) * self.scale

rows, n = 64, 96
def get_inputs():
    return [torch.rand(rows, n)]
def get_init_inputs():
    return [n]
"""

QUICKER = """
torch._inductor.config.cpp.vec_isa_ok = True  # no programs are compiled to try them: 10 s
torch._inductor.config.cpp_cache_precompile_headers = False  # of which few kernels make use: 10 s in each process
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("ref.py").write_text(FILE.format(new=""))
    Path("new.py").write_text(FILE.format(new="New"))
    return tmp_path


def check(*more: str) -> tuple[int, str, str]:
    fixed = ("check", "new.py", "--task", "ref.py", "--device", "cpu", "--quick", "--allow", "library", "--json")
    done = kerneleval(*fixed, "--distribution", "standard", "--baseline", "compile", *more)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_the_module_is_compiled_and_keeps_its_weights_names() -> None:
    candidate = baseline_candidate(open_task("ref.py"), Protocol(baseline="compile"))
    space: dict[str, object] = {"__name__": "baseline"}
    exec(candidate.main, space)
    made = space[candidate.entry](96)  # type: ignore[operator]
    assert made._compiled_call_impl is not None
    assert sorted(made.state_dict()) == ["fc.bias", "fc.weight", "scale"]


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_a_problem_file_is_timed_against_its_compiled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "_COMPILED", worker_pool._COMPILED + QUICKER)
    sweep = ("--shapes", "sweep", "--category", "tiny,small")
    code, out, err = check(*sweep, "--direction", "forward")
    assert code == 0, err
    verdict = json.loads(out)
    assert verdict["protocol"]["baseline"] == "compile" and verdict["speedup"]["cells"] > 1


@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_without_a_compiler_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/no/such/compiler")
    code, out, err = check()
    assert (code, err.count("\n"), json.loads(out)["error"]["kind"]) == (2, 1, "infrastructure")
    assert "torch.compile has no working compiler here; install one" in err and "/no/such/compiler" in err


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("InvalidCxxCompiler: No working C++ compiler found  Set TORCHDYNAMO_VERBOSE=1", "no working compiler here"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC", "no working compiler here"),
        ("CppCompileError: fatal error: Python.h: No such file", "no working compiler here"),
        ("TritonMissing: Cannot find a working triton installation.", "no working compiler here"),
        ("Unsupported: Tensor.item() call\nwith capture off", "the compile baseline of relu failed; use --baseline"),
    ],
)
def test_what_a_compiled_baseline_fails_of_is_told_apart(said: str, wanted: str) -> None:
    text = str(timer._baseline_failed("relu failed", RuntimeError(said), Protocol(baseline="compile")))
    assert wanted in text and "VERBOSE" not in text and "\n" not in text
    eager = str(timer._baseline_failed("relu failed", RuntimeError(said), Protocol()))
    assert eager.startswith("the baseline of relu failed: ")
