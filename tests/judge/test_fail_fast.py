"""``fail_fast``: the verdict of the whole plan, without the cases after the first that fails."""

from __future__ import annotations

from pathlib import Path

from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.records import Failed

FEW = {"dtypes": ("float32",), "directions": ("forward",), "categories": ("tiny", "small"), "timed": False}


def written(folder: Path, body: str) -> Path:
    path = folder / "candidate.py"
    path.write_text(f"import torch\n\n\ndef gelu(x):\n    {body}\n")
    return path


def test_it_ends_at_the_first_failure_with_the_verdict_of_the_whole(judge: Judge, tmp_path: Path) -> None:
    path = written(tmp_path, "return torch.nn.functional.gelu(x) if x.shape[0] < 40 else torch.relu(x)")
    whole = pipeline.check(path, "gelu", judge=judge, allow=("library",), **FEW)
    fast = pipeline.check(path, "gelu", judge=judge, allow=("library",), fail_fast=True, **FEW)
    assert (fast.verdict, fast.stage, fast.reason) == (whole.verdict, whole.stage, whole.reason)
    assert fast.replay == whole.replay
    assert [c.case for c in fast.cells] == [c.case for c in whole.cells][: len(fast.cells)]
    assert 1 < len(fast.cells) < len(whole.cells)
    assert [isinstance(c.outcome, Failed) for c in fast.cells] == [False] * (len(fast.cells) - 1) + [True]


def test_what_is_declared_unsupported_ends_nothing(judge: Judge, tmp_path: Path) -> None:
    path = written(tmp_path, "raise NotImplementedError('not yet')")
    fast = pipeline.check(path, "gelu", judge=judge, fail_fast=True, **FEW)
    assert fast.reason == "unsupported"
    assert len(fast.cells) == len(pipeline.check(path, "gelu", judge=judge, **FEW).cells)


def test_tampering_at_load_stays_the_reason(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "candidate.py"
    path.write_text("import torch\n\ntorch.allclose = lambda *a: True\n\n\ndef gelu(x):\n    return torch.relu(x)\n")
    verdict = pipeline.check(path, "gelu", judge=judge, fail_fast=True, **FEW)
    assert (verdict.reason, len(verdict.cells)) == ("tampering", 1)


def test_a_right_candidate_is_judged_whole(judge: Judge, tmp_path: Path) -> None:
    path = written(tmp_path, "return torch.nn.functional.gelu(x)")
    verdict = pipeline.check(path, "gelu", judge=judge, allow=("library",), fail_fast=True, **FEW)
    assert verdict.verdict == "passed"
    assert {f.check for f in verdict.findings} >= {"track"}
