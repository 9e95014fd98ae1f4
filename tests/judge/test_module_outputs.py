"""What a problem file's module returns: its form and its numbers are judged."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.records import Candidate, Protocol, Task, Verdict
from kerneleval.tasks import open_task

FILE = """
import torch
from torch import nn

class Model{new}(nn.Module):
    def forward(self, x, y):
        {forward}

def get_inputs():
    return [torch.randn(12, 20), torch.rand(12, 20)]
def get_init_inputs():
    return []
"""

READ: dict[str, Task] = {}
"""Problem files by the body of their ``forward``: several candidates have one."""


def judged(judge: Judge, folder: Path, reference: str, forward: str) -> Verdict:
    """The verdict on a candidate with this body of ``forward``, at the file's own sizes, up to the first failure."""
    if reference not in READ:
        path = folder / "problem.py"
        path.write_text(FILE.format(new="", forward=reference.replace("\n", "\n        ")))
        READ[reference] = open_task(str(path))
    source = FILE.format(new="New", forward=forward.replace("\n", "\n        ")).partition("\ndef get_inputs")[0]
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    protocol = Protocol(timed=False, allow=("library",), tier="quick")
    return judge.check(candidate, READ[reference], protocol, fail_fast=True)


NORM = "n = x.norm().item()\nreturn x / n, n"
NAMED = 'return {"mean": x.mean(0), "var": x.var(0), "none": None, "n": len(x)}'
NESTED = 'return {"maps": [x * 2, x + 1], "logits": x.sum(1)}'


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("reference", "forward"),
    [
        (NORM, "n = float((x * x).sum().sqrt())\nreturn [x * (1 / n), n]"),
        (NORM, "n = (x * x).sum().sqrt().numpy()[()]\nreturn x / float(n), n"),
        ("return x.norm().item()", "return float((x * x).sum().sqrt())"),
        (
            "return x > 0, bool((x > 0).any()), int((x > 0).sum())",
            "k = x > 0\nreturn k, k.any().item(), k.sum().item()",
        ),
        (NAMED, 'return {"n": 12, "var": x.var(0), "mean": x.sum(0) / 12}'),
        (NESTED, 'return {"logits": x.sum(1), "maps": (x + x, 1 + x)}'),
        ("return x * 2, None", 'return (x + x, "text")'),
        ("return x * 2, {0: x + 1, 1: x}", "return x + x, {0: 1 + x, 1: x.clone()}"),
    ],
)
def test_equal_forms_pass(judge, tmp_path, reference, forward):
    verdict = judged(judge, tmp_path, reference, forward)
    assert verdict.verdict == "passed", verdict.message


@pytest.mark.parametrize(
    ("reference", "forward", "reason", "message"),
    [
        (NORM, "n = float(x.norm())\nreturn x / n, 0.0", "wrong_output", "output 1"),
        (NORM, "n = float(x.norm())\nreturn x / n", "wrong_count", r"expected \(tensor, number\), as Model returns it"),
        (NORM, "n = x.norm()\nreturn x / n, n", "wrong_type", r"the call returns \(tensor, tensor\); expected"),
        ("return x.sum() * 1", "return float(x.sum())", "wrong_type", "the call returns number; expected tensor"),
        ("return len(x), x * 2", "return float(len(x)), x + x", "wrong_dtype", "a Python float; expected one of int64"),
        (NAMED, 'return {"mu": x.mean(0), "var": x.var(0), "n": 12}', "wrong_type", r"'mu': tensor.*'mean': tensor"),
        (NAMED, 'return {"mean": x.mean(0), "var": x.var(0)}', "wrong_count", "'n': number"),
        (NESTED, "return x.sum(1), x * 2, x + 1", "wrong_type", r"returns \(tensor, tensor, tensor\); expected \{"),
        ("return x * 2, {0: x + 1, 1: x}", "return x + x, {1: x + 1, 0: x.clone()}", "wrong_type", "expected"),
        ("return x * 2", "return (x + x,)", "wrong_type", r"returns \(tensor,\); expected tensor"),
        ("return x * 2", "return None", "wrong_count", "returns no tensor"),
    ],
)
def test_another_form_or_number_fails(judge, tmp_path, reference, forward, reason, message):
    verdict = judged(judge, tmp_path, reference, forward)
    assert (verdict.verdict, verdict.reason) == ("failed", reason), verdict.message
    assert re.search(message, verdict.message), verdict.message


ADDS = "x[:, :3] += y[:, :3]\nreturn x"
FILLS = "torch.mul(y, 2, out=x)\nreturn x, x[0]"
DATA = "x.data[:, :3] += y[:, :3]\nreturn x.sum(0)"  # counts no version
KEEPS = "return torch.relu(x), y.view(-1)"


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("reference", "forward"),
    [
        (ADDS, ADDS),
        (ADDS, "x = x.clone()\nx[:, :3] += y[:, :3]\nreturn x"),
        ("return nn.functional.leaky_relu_(x, 0.1) * 1", "return nn.functional.leaky_relu_(x, 0.1).clone()"),
        (FILLS, "x.copy_(y + y)\nreturn x, x[0]"),
        (FILLS, "return y + y, y[0] * 2"),
        (DATA, DATA),
        (DATA, "x[:, :3] += y[:, :3]\nreturn x.sum(0)"),
        (DATA, "return x.sum(0) + nn.functional.pad(y[:, :3].sum(0), (0, x.shape[1] - 3))"),
        (KEEPS, "return x.clamp(min=0), y.reshape(240)"),
    ],
)
def test_what_the_reference_does_to_its_inputs_candidates_may(judge, tmp_path, reference, forward):
    verdict = judged(judge, tmp_path, reference, forward)
    assert verdict.verdict == "passed", verdict.message


@pytest.mark.parametrize(
    ("reference", "forward", "reason"),
    [
        (ADDS, "y[:, 3:] = 0\nx[:, :3] += y[:, :3]\nreturn x", "input_mutation"),
        (ADDS, "x[:, :2] += y[:, :2]\nreturn x", "wrong_output"),
        (ADDS, "return x", "wrong_output"),
        (KEEPS, "return torch.relu_(x), y.view(-1)", "output_alias"),
        (KEEPS, "x = torch.relu_(x).clone()\nreturn x, y.view(-1)", "input_mutation"),
        (FILLS, "return x + 2 * y, 2 * y[0]", "wrong_output"),
        (DATA, "y[:, 3:] = 0\nx[:, :3] += y[:, :3]\nreturn x.sum(0)", "input_mutation"),
    ],
)
def test_nothing_else(judge, tmp_path, reference, forward, reason):
    verdict = judged(judge, tmp_path, reference, forward)
    assert (verdict.verdict, verdict.reason) == ("failed", reason), verdict.message
