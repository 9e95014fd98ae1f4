"""Gradients as training asks for them. What is wrong there and how it is told; the specimens are ``gradients/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.judge import Judge
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
