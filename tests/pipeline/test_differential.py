"""The same inputs on several devices: rehearsed by the CPU under other names, of which one computes wrongly.

The devices are registered in this process, and by ``sitecustomize`` in the zygotes that it starts.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.commands import kerneleval

from kerneleval import pipeline
from kerneleval.devices import Capabilities
from kerneleval.devices.common.base import DEVICES
from kerneleval.devices.cpu import Cpu
from kerneleval.judge import differential
from kerneleval.judge.judge import Judge
from kerneleval.languages.torch import Torch
from kerneleval.records import Candidate, CandidateSpec, Protocol, UsageError
from kerneleval.tasks import find, open_task

DEVICE = '''
"""The CPU under other names: one that is right, and ones whose softmax is made in bfloat16, or negates."""

import dataclasses

from kerneleval.devices import register
from kerneleval.devices.cpu import Cpu


class Other(Cpu):
    def __init__(self, name):
        self.name = name

    def available(self):
        return ""

    def machine(self):
        return dataclasses.replace(super().machine(), device=self.name)

    def warm_up(self):
        """Only workers warm up, so the host computes as ever."""
        super().warm_up()
        if self.name == "%(name)s" and "%(flaw)s":
            import torch

            def coarse(x, dim, half_to_float):
                low = x.to(torch.bfloat16).to(x.dtype)
                low = (low - low.amax(dim, keepdim=True)).exp()
                return (low / low.sum(dim, keepdim=True)).to(torch.bfloat16).to(x.dtype)

            def died(x, dim, half_to_float):
                import os, signal
                os.kill(os.getpid(), signal.SIGSEGV)

            Other.library = torch.library.Library("aten", "IMPL")
            Other.library.impl("_softmax", {"coarse": coarse, "died": died}["%(flaw)s"], "CPU")


register(Other("%(name)s"))
'''

SOFTMAX = """
import torch


def softmax(x):
    return torch.softmax(x, -1)
"""

BY_HAND = """
import torch


def softmax(x):
    e = torch.exp(x.double() - x.double().amax(-1, keepdim=True))
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)
"""

FP32 = """
#include <math.h>
#include <stdint.h>

extern "C" int softmax(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    for (int64_t i = 0; i < M; i++) {
        float top = -INFINITY, sum = 0;
        for (int64_t j = 0; j < N; j++) top = fmaxf(top, x[i * N + j]);
        for (int64_t j = 0; j < N; j++) sum += out[i * N + j] = expf(x[i * N + j] - top);
        for (int64_t j = 0; j < N; j++) out[i * N + j] /= sum;
    }
    return 0;
}
"""


NAMES = ("good", "coarse", "died")
STARTUP = f"""
import coarse, died, good
from kerneleval.languages.torch import Torch

Torch.devices += {NAMES}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="kerneleval-test-") as name:  # workers run as other users
        folder = Path(name)
        folder.chmod(0o755)
        for device in NAMES:
            text = DEVICE % {"name": device, "flaw": device.replace("good", "")}
            (folder / f"{device}.py").write_text(text)
        (folder / "sitecustomize.py").write_text(STARTUP)
        yield folder


@pytest.fixture
def others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices ``good``, ``coarse`` and ``died``, on which PyTorch runs."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(DEVICES, "_entries", DEVICES.all() and dict(DEVICES._entries))
    monkeypatch.setattr(Torch, "devices", Torch.devices)
    monkeypatch.setattr(Cpu, "case_budget", lambda _: (1 << 18, 4_000_000))  # in small cases they differ as well
    for name in NAMES:
        sys.modules.pop(name, None)
    exec(STARTUP, {})


def differ(*arguments: str) -> subprocess.CompletedProcess[str]:
    return kerneleval("differ", *arguments)


def asked(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = differ(*arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def written(folder: Path, **files: str) -> list[str]:
    paths = []
    for name, text in files.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text)
        paths.append(str(folder / f"{stem}.{suffix}"))
    return paths


def answers(found: dict[str, Any], device: str) -> list[dict[str, Any]]:
    return [one for case in found["cases"] for one in case["answers"] if one["device"] == device]


@pytest.mark.slow
def test_equal_devices_agree_bit_for_bit(others: None) -> None:
    code, found = asked("--reference", "-t", "softmax", "--devices", "cpu,good", "--dtype", "fp32")
    assert code == 0
    assert found["wrong"] == {"cpu": 0, "good": 0}
    assert found["sources"] == {"cpu": "reference", "good": "reference"}
    assert {case["case"]["direction"] for case in found["cases"]} == {"forward", "backward"}
    apart = [one for case in found["cases"] for one in case["apart"]]
    full = [case for case in found["cases"] if all(size for _, size in case["case"]["dims"])]
    assert len(apart) == len(full) > 20  # an output, or a gradient, each
    assert all(one["equal"] == one["of"] and one["max_abs"] == 0 for one in apart)
    assert all(one["answer"] == "right" and 0 <= one["of_bound"] <= 1 for one in answers(found, "good"))


@pytest.mark.slow
def test_a_device_that_is_wrong_is_named_with_its_worst_element(others: None, tmp_path: Path) -> None:
    files = written(tmp_path, a_py=SOFTMAX)
    options = [*files, "-t", "softmax", "--devices", "cpu,good,coarse", "--dtype", "fp32", "--direction", "forward"]
    code, found = asked(*options)
    assert code == 1
    assert found["wrong"]["cpu"] == found["wrong"]["good"] == 0
    # a row of one element is 1 in any arithmetic
    telling = [case for case in found["cases"] if dict(case["case"]["dims"])["N"] > 1 and "zeros" not in str(case)]
    assert found["wrong"]["coarse"] >= len(telling) // 2 > 5
    wrong = next(one for one in answers(found, "coarse") if one["answer"] == "wrong" and one["elements"])
    case = next(case for case in found["cases"] if wrong in case["answers"])
    assert (wrong["stage"], wrong["reason"], wrong["wrong_outputs"]) == ("correctness", "wrong_output", [0])
    (element,) = wrong["elements"]
    assert element["dtype"] == "float32"
    assert element["shape"] == [value for name, value in case["case"]["dims"]]
    assert all(0 <= at < size for at, size in zip(element["index"], element["shape"], strict=True))
    values, oracle = element["values"], element["oracle"]
    assert values["cpu"] == values["good"] != values["coarse"]
    assert abs(values["cpu"] - oracle) < abs(values["coarse"] - oracle)
    # what was not right says nothing of how far right ones lie apart, but is told
    pair = next(one for one in case["apart"] if (one["first"], one["second"]) == ("cpu", "coarse"))
    assert pair["rms_of_bound"] > 1 > next(iter(case["apart"]))["rms_of_bound"] == 0
    said = differ(*options, "--distribution", "standard")
    assert said.returncode == 1
    text = " ".join(said.stdout.split())
    assert "wrong: coarse" in text
    assert "(cpu, good right)" in text
    assert (
        f"again: kerneleval differ {files[0]} --task softmax --devices cpu,good,coarse --case softmax/forward/" in text
    )
    assert "good is wrong" not in text


def test_devices_that_differ_within_bounds_are_not_wrong(others: None, tmp_path: Path) -> None:
    """C++ on one device and PyTorch on the other: other sums, other bits, both right."""
    files = written(tmp_path, one_cpp=FP32, two_py=BY_HAND)
    options = ["-t", "softmax", "--dtype", "fp32", "--direction", "forward"]
    code, found = asked(*files, *options, "--devices", "cpu,good")
    assert code == 0, found
    assert found["sources"] == {"cpu": files[0], "good": files[1]}  # C++ runs on cpu alone
    apart = [one for case in found["cases"] for one in case["apart"]]
    assert any(one["equal"] < one["of"] for one in apart)
    assert all(one["rms_of_bound"] <= 2 for one in apart)
    assert any(0 < one["relative_rms"] < 1e-5 and one["max_of_bound"] > 0 for one in apart)


@pytest.mark.slow
def test_a_device_on_which_it_dies_is_wrong_and_the_others_are_asked_on(others: None, tmp_path: Path) -> None:
    files = written(tmp_path, a_py=SOFTMAX)
    options = ["-t", "softmax", "--devices", "cpu,died", "--dtype", "fp32", "--direction", "forward"]
    code, found = asked(*files, *options, "--distribution", "standard")
    assert code == 1
    assert found["wrong"]["died"] == len(found["cases"])
    assert found["wrong"]["cpu"] == 0
    first = answers(found, "died")[0]
    assert (first["stage"], first["reason"]) == ("call", "crash")
    assert not any(case["apart"] for case in found["cases"])


def test_one_case_is_asked_again(others: None) -> None:
    key = "softmax/forward/M=3,N=5/float32/contiguous/standard"
    code, found = asked("--reference", "-t", "softmax", "--devices", "good,coarse", "--case", key)
    assert code == 1
    assert len(found["cases"]) == 1
    assert list(found["candidates"]) == ["good", "coarse"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--reference", "-t", "softmax", "--devices", "cpu"],
            "needs two devices, and --devices names cpu alone; name another",
        ),
        (["--reference", "-t", "softmax", "--devices", "cpu,cuda"], "device 'cuda' cannot be used here"),
        (["--reference", "-t", "softmax", "--devices", "cpu,gpu"], "no device is called 'gpu'"),
        (["-t", "softmax"], "no file is given; give those of a candidate, or --reference"),
        (["x.cpp", "--reference", "-t", "softmax"], "x.cpp: a file and --reference"),
        (["--reference", "-t", "softmax", "--devices", "good,good"], "--devices names good alone"),
        (["--reference", "-t", "softmax", "--dtype", "int8", "--devices", "cpu,good"], "not judged in 'int8'"),
        (["nix.py", "-t", "softmax"], "nix.py"),
    ],
)
def test_wrong_usage_is_one_line(others: None, arguments: list[str], said: str) -> None:
    done = differ(*arguments)
    assert done.returncode == 2, done.stdout
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_files_that_do_not_go_with_the_devices(others: None, tmp_path: Path) -> None:
    cpp, other, py, second = written(tmp_path, a_cpp=FP32, b_cpp=FP32, a_py=BY_HAND, b_py=SOFTMAX)
    for files, said in (
        ([cpp], "device 'good': none of the files runs there"),
        ([py, second], f"{py} and {second} can both run on cpu; give one file for each device"),
        ([cpp, other, py], "not every file can run on one of cpu, good"),
    ):
        done = differ(*files, "-t", "softmax", "--devices", "cpu,good")
        assert done.returncode == 2
        assert said in done.stderr


# --------------------------------------------------------------------------------------------------------------------
# Two real devices
# --------------------------------------------------------------------------------------------------------------------

RELU_CL = """
// kerneleval-launch: relu_float32 global=cdiv(M*N,64)*64 local=64
// kerneleval-launch: relu_backward_float32 global=cdiv(M*N,64)*64 local=64
kernel void relu_float32(global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i < M * N) out[i] = x[i] > THRESHOLD ? x[i] : x[i] < 0 || x[i] == x[i] ? 0.0f : x[i];
}
kernel void relu_backward_float32(global const float *grad, global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i < M * N) out[i] = x[i] > 0 ? grad[i] : 0.0f;
}
"""
RELU_PY = """
import torch


def relu(x):
    return torch.relu(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "directions"), [("0.0f", set()), ("0.125f", {"forward"})])
def test_a_processor_by_pytorch_and_by_opencl(threshold: str, directions: set[str], tmp_path: Path) -> None:
    from kerneleval import devices

    if "opencl" not in devices.names() or devices.find("opencl").available():
        pytest.skip("not run: there is no OpenCL device")
    (tmp_path / "relu.py").write_text(RELU_PY)
    (tmp_path / "relu.cl").write_text(RELU_CL.replace("THRESHOLD", threshold))
    files = [str(tmp_path / "relu.py"), str(tmp_path / "relu.cl")]
    spec = CandidateSpec(source="", task="relu")
    few = Protocol(tier="quick", dtypes=("float32",), categories=("tiny", "small"), distributions=("standard",))
    found = pipeline.differ(spec, few, paths=files, devices=("cpu", "opencl"))
    assert found.wrong["cpu"] == 0
    wrong = {c.case.direction for c in found.cases for a in c.answers if a.device == "opencl" and a.answer == "wrong"}
    assert wrong == directions
    right = [a for c in found.cases for a in c.answers if a.device == "opencl" and a.answer == "right"]
    assert {c.case.direction for c in found.cases} == {"forward", "backward"}
    assert right
    if not directions:
        assert all(apart.equal == apart.of for case in found.cases for apart in case.apart)


# --------------------------------------------------------------------------------------------------------------------
# Without a second device
# --------------------------------------------------------------------------------------------------------------------


def test_here_there_is_one_device_unless_there_is_another() -> None:
    if torch.cuda.is_available():
        pytest.skip("there are two devices here")
    with pytest.raises(UsageError, match=r"needs two devices, and .*cpu"):
        pipeline.differ(
            CandidateSpec(source="", task="relu"), Protocol(), reference=True
        )  # PyTorch has no operators on OpenCL devices


def one_side(task_name: str, **protocol: Any) -> list[Any]:
    task, how = find(task_name), Protocol(tier="quick", timed=False, **protocol)
    with Judge("cpu") as judge:
        cases = differential.common_plan([judge], task, how)
        with differential.Side(judge, None, task, how) as side:
            return list(differential.differ([side], task, cases))


def test_types_that_a_device_lacks_are_asked_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with Judge("cpu") as judge:
        monkeypatch.setattr(type(judge.device), "capabilities", lambda self: Capabilities(fp16=False))
        found = differential.common_plan([judge], find("relu"), Protocol(tier="quick", timed=False))
    assert {case.dtype for case in found} == {"float32", "bfloat16"}


@pytest.mark.slow
def test_several_outputs_integers_and_random_numbers() -> None:
    """The reference is right on the device that made the oracle, whatever the kind of its outputs."""
    for name, dtype in (("topk", "float32"), ("layer_norm", "bfloat16"), ("dropout", "float32")):
        found = one_side(name, dtypes=(dtype,), distributions=("standard",))
        assert found, name
        for case in found:
            (answer,) = case.answers
            assert answer.answer == "right", (name, case.case.key, answer.message)
            assert math.isfinite(answer.of_bound)


PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))


def get_inputs():
    return [torch.rand(32, 48)]


def get_init_inputs():
    return [48]
"""


def test_a_module_has_the_weights_that_were_drawn_for_all_devices(tmp_path: Path) -> None:
    path = tmp_path / "linear.py"
    path.write_text(PROBLEM)
    task = open_task(str(path))
    own = PROBLEM.replace("class Model(", "class ModelNew(")
    how = Protocol(tier="quick", timed=False)
    right, wrong = (
        Candidate(files=(("new.py", text),), language="torch") for text in (own, own.replace("relu", "tanh"))
    )
    with Judge("cpu") as judge:
        cases = differential.common_plan([judge], task, how)
        for candidate, said in ((None, "right"), (right, "right"), (wrong, "wrong")):
            with differential.Side(judge, candidate, task, how) as side:
                found = list(differential.differ([side], task, cases))
            assert len(found) == len(cases) > 1
            assert {answer.answer for case in found for answer in case.answers} == {said}


def test_apart_is_worked_by_hand() -> None:
    from kerneleval import devices
    from kerneleval.judge.probes.calls import BoundCase
    from kerneleval.records import Case, new_secret

    task = find("sigmoid")  # never zero: of relu's six elements all are zero now and then
    case = Case(task="sigmoid", direction="forward", dims=(("M", 2), ("N", 3)), dtype="float32", shape_category="tiny")
    drawn = BoundCase(task, case, devices.find("cpu"), tf32=False).draw(new_secret())
    right = drawn.expectation.native[0]
    other = right.clone()
    other[1, 2] += 0.5
    (apart,) = differential._apart(
        {
            "a": (right,),
            "b": (other,),
        },
        drawn,
    )
    assert (apart.first, apart.second, apart.equal, apart.of) == ("a", "b", 5, 6)
    assert apart.max_abs == pytest.approx(0.5)
    rms = math.sqrt(0.25 / 6)
    assert apart.relative_rms == pytest.approx(rms / float(right.double().pow(2).mean().sqrt()), rel=1e-6)
    bounds = drawn.expectation.outputs[0].bounds
    assert bounds is not None
    assert apart.rms_of_bound == pytest.approx(rms * bounds.gain / bounds.rms)
    assert apart.worst.index == (1, 2)
    assert apart.worst.values["b"] - apart.worst.values["a"] == pytest.approx(0.5)
    unknown = right.clone()
    unknown[0, 0] = math.nan
    (apart,) = differential._apart({"a": (unknown,), "b": (unknown.clone(),)}, drawn)
    assert apart.equal == 6
    (apart,) = differential._apart({"a": (right,), "b": (unknown,)}, drawn)
    assert (apart.equal, apart.max_abs, apart.worst.index) == (5, math.inf, (0, 0))
