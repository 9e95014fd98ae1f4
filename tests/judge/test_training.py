"""Gradients as training asks for them. What is wrong there and how it is told; the specimens are ``gradients/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.judge.checks import training
from kerneleval.pipeline import check
from kerneleval.records import Verdict

SOURCE = """
import torch

calls = 0
broken = False


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        global calls
        calls += 1
        ctx.call = calls
        out = torch.exp(x)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        global broken
        broken = ctx.call != calls {forgets}
        (out,) = ctx.saved_tensors
        return grad * out * (2 if broken else 1)


def exp(x):
    return Exp.apply(x)
"""


def judged(judge: Judge, folder: Path, forgets: str) -> Verdict:
    file = folder / "exp.py"
    file.write_text(SOURCE.replace("{forgets}", forgets))
    return check(
        file,
        "exp",
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=["backward"],
        categories=["small"],
        distributions=["standard"],
        timed=False,
    )


@pytest.mark.parametrize(
    ("forgets", "reason", "words"),
    [
        ("", "wrong_in_training", "called again before they are taken"),
        ("or broken", "wrong_output", "relative rms error"),
    ],
)
def test_gradients_that_are_wrong_from_then_on_are_no_matter_of_training(
    judge: Judge, tmp_path: Path, forgets: str, reason: str, words: str
) -> None:
    verdict = judged(judge, tmp_path, forgets)
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "correctness", reason), verdict.message
    assert words in verdict.message
    assert ("called again" in verdict.message) == (reason == "wrong_in_training")


@pytest.mark.slow
def test_what_ends_pytorch_too_is_no_fault_of_a_candidate(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """group_norm's gradients of weight and bias alone, channels last, on a CPU (PyTorch 2.13): a segmentation fault."""
    name = "conv2d_group_norm_tanh_hardswish_residual_logsumexp"
    monkeypatch.setattr(training, "_parts", lambda count: [(4,), (0,)])
    monkeypatch.setattr(training, "_APART", ("transposed",))
    asked: list[bool] = []
    ends = training._ends_pytorch
    monkeypatch.setattr(training, "_ends_pytorch", lambda *rest: asked.append(ends(*rest)) or asked[-1])
    file = tmp_path / f"{name}.py"
    file.write_text(
        "import torch\nfrom torch.nn import functional as F\n\n\n"
        f"def {name}(x, weight, bias, weight2, bias2, groups, eps):\n"
        "    c = F.conv2d(x, weight, bias, padding=1)\n    n = F.group_norm(c, groups, weight2, bias2, eps)\n"
        "    return torch.logsumexp(c + F.hardswish(torch.tanh(n)), 1, keepdim=True)\n"
    )
    options = {"dtypes": ["float32"], "categories": ["small"], "distributions": ["standard"], "timed": False}
    verdict = check(file, name, judge=judge, allow=("custom", "mixed", "library"), **options)
    assert verdict.verdict == "passed", verdict.message
    assert asked in ([], [True])


AGAIN = """import os
import torch


class Silu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        gate = torch.sigmoid(x.float())
        ctx.slope, ctx.times = gate * (1 + x.float() * (1 - gate)), 0
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        ctx.times += 1
        {}


def silu(x):
    return Silu.apply(x)
"""


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        ("return ctx.slope.mul_(grad.float()).to(grad.dtype)", True),
        ("return (ctx.slope * grad.float()).to(grad.dtype) if ctx.times == 1 else os._exit(1)", True),
        ("return (ctx.slope * grad.float()).to(grad.dtype) if ctx.times == 1 else None", True),
        ("ctx.kept = (ctx.slope * grad.float()).to(grad.dtype) if ctx.times == 1 else ctx.kept; return ctx.kept", True),
        ("return (ctx.slope * grad.float()).to(grad.dtype)", False),
        ("slope, ctx.slope = ctx.slope, None; return (slope * grad.float()).to(grad.dtype)", False),
    ],
    ids=["wrong", "ends", "none", "kept", "right", "raises"],
)
def test_gradients_that_can_be_taken_once_are_a_warning(judge: Judge, tmp_path: Path, body: str, warned: bool) -> None:
    file = tmp_path / "silu.py"
    file.write_text(AGAIN.format(body))
    options = {"dtypes": ["float32"], "directions": ["backward"], "categories": ["small"], "timed": False}
    verdict = check(file, "silu", judge=judge, allow=("custom", "mixed", "library"), **options)
    assert verdict.verdict == "passed", verdict.message
    assert sum(f.level == "warn" and "retain_graph=True" in f.message for f in verdict.findings) == warned, "told once"
