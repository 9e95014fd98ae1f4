"""Candidates for problem files, judged: strides of inputs, buffers that are returned again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.records import Candidate, Passed, Protocol, Verdict
from kerneleval.tasks import open_task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {reference}

def get_inputs():
    return [torch.randn(48, 20)]
def get_init_inputs():
    return []
"""

CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    out = None
    def forward(self, x):
        {body}
"""


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge("cpu") as made:
        yield made


def judged(judge: Judge, folder: Path, body: str, layout: str, reference: str = "return x.sum(-1) * 2") -> Verdict:
    """The verdict on ``forward`` with this body, at the cases of one layout."""
    path = folder / "problem.py"
    path.write_text(TASK.format(reference=reference))
    task = open_task(str(path), sweep=True)
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), shapes="sweep", tier="quick")
    cases = [c for c in judge.plan(task, protocol) if c.layout == layout and c.distribution == "standard"][:1]
    own = judge.plan(task, protocol)[:1] if layout != "contiguous" else ()
    source = CANDIDATE.format(body=body.replace("\n", "\n        "))
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    return judge.check(candidate, task, protocol, cases=(*own, *cases))


DENSE = "return x.as_strided(x.shape, (x.shape[1], 1)).sum(-1) * 2"
STORAGE = "flat = x.as_strided((x.numel(),), (1,), 0)\nreturn flat.view(x.shape).sum(-1) * 2"


@pytest.mark.parametrize(("layout", "body"), [("transposed", DENSE), ("sliced", DENSE), ("offset", STORAGE)])
def test_inputs_read_as_if_they_were_dense_are_wrong(judge, tmp_path, layout, body):
    verdict = judged(judge, tmp_path, body, layout)
    assert (verdict.verdict, verdict.reason) == ("failed", "wrong_output")
    assert isinstance(verdict.cells[0].outcome, Passed)


def test_who_raises_on_strided_inputs_declares_them_unsupported(judge, tmp_path):
    verdict = judged(judge, tmp_path, "assert x.is_contiguous()\nreturn x.sum(-1) * 2", "transposed")
    assert verdict.verdict == "passed" and "1 declared unsupported" in verdict.message


def test_strides_that_the_reference_does_not_take_are_left_out(judge, tmp_path):
    verdict = judged(judge, tmp_path, "return x.relu().view(-1)", "transposed", "return x.view(-1).relu()")
    assert verdict.verdict == "passed" and len(verdict.cells) == 1
    (left_out,) = [f for f in verdict.findings if f.check == "reference"]
    assert left_out.level == "warn" and "takes no transposed inputs" in left_out.message


@pytest.mark.parametrize(
    "keep",
    [
        "if self.out is None: self.out = torch.empty(x.shape[0])",
        "self.out = torch.empty(64)[: x.shape[0]] if self.out is None else self.out",
        "ModelNew.out = torch.empty(x.shape[0]) if ModelNew.out is None else ModelNew.out",
    ],
)
def test_a_buffer_that_is_returned_again_is_called_so(judge, tmp_path, keep):
    verdict = judged(judge, tmp_path, f"{keep}\nself.out.copy_(x.sum(-1) * 2)\nreturn self.out", "contiguous")
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "correctness", "output_reused")
    assert "allocate them in every call" in verdict.message
