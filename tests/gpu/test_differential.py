"""The CPU and a GPU of this machine on the same secret inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval import pipeline
from kerneleval.records import CandidateSpec, Protocol

pytestmark = pytest.mark.gpu

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, at < n)
    tl.store(out + at, tl.where(value < 0, 0.0, value) * {factor}, at < n)  # NaN too, which tl.maximum loses on a GPU


def relu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
ON_GPU_ALONE = """
import torch


def relu(x):
    return torch.clamp(x, min=0) * (1.001 if x.is_cuda else 1)
"""


@pytest.mark.parametrize("task", ["relu", "softmax", "layer_norm", "matmul"])
def test_pytorch_is_right_on_both(task: str) -> None:
    found = pipeline.differ(
        CandidateSpec(source="", task=task), Protocol(dtypes=("float32",)), reference=True, devices=("cpu", "cuda")
    )
    wrong = [(c.case.key, a.message) for c in found.cases for a in c.answers if a.answer == "wrong"]
    assert not wrong
    assert all(a.of_bound <= 1 for c in found.cases for a in c.answers)
    assert any(apart.equal < apart.of for c in found.cases for apart in c.apart) or task == "relu"


def test_triton_interpreted_and_compiled_agree(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "relu.py").write_text(TRITON.format(factor="1.0"))
    protocol = Protocol(dtypes=("float32",), directions=("forward",))
    found = pipeline.differ(
        CandidateSpec(source="", task="relu"), protocol, paths=(str(tmp_path / "relu.py"),), devices=("cpu", "cuda")
    )
    assert found.wrong == {"cpu": 0, "cuda": 0}
    assert all(apart.equal == apart.of for case in found.cases for apart in case.apart)


def test_what_is_wrong_on_the_gpu_alone_is_said_of_the_gpu(tmp_path: Path) -> None:
    (tmp_path / "relu.py").write_text(ON_GPU_ALONE)
    protocol = Protocol(dtypes=("float32",), directions=("forward",), distributions=("standard",))
    found = pipeline.differ(
        CandidateSpec(source="", task="relu"), protocol, paths=(str(tmp_path / "relu.py"),), devices=("cpu", "cuda")
    )
    assert found.wrong["cpu"] == 0
    assert found.wrong["cuda"] > 0
    answer = next(a for c in found.cases for a in c.answers if a.answer == "wrong")
    assert (answer.device, answer.native) == ("cuda", "right")
    (element,) = answer.elements
    assert element.values["cuda"] == pytest.approx(1.001 * element.values["cpu"], rel=1e-5)
