"""Single cases: the order of a window's calls, and what becomes of a candidate that refuses one."""

from __future__ import annotations

from pathlib import Path

from kerneleval.judge import Judge, cells
from kerneleval.pipeline import check
from kerneleval.records import Failed

DIES_WHEN_ASKED_AGAIN = """
import os
import torch

refused = False


def gelu(x):
    global refused
    if refused:
        os._exit(3)
    if x.numel() and float(x.abs().max()) > 300:
        refused = True
        raise NotImplementedError("too large")
    return torch.nn.functional.gelu(x)
"""


def test_no_ring_of_buffers_survives_the_order_of_calls() -> None:
    """Two buffers in turn did once in a thousand, when the order was merely drawn."""
    one, other = object(), object()
    for _ in range(20_000):
        calls = [one, other, *cells._turns((one, other))]
        for buffers in range(1, 12):
            kept = {number % buffers: call for number, call in enumerate(calls)}
            assert any(kept[number % buffers] is not call for number, call in enumerate(calls)), buffers


def test_a_candidate_that_dies_when_its_refusal_is_looked_into_has_died_there(tmp_path: Path) -> None:
    """It was told as ``unsupported``, and the case after it met the dead worker."""
    file = tmp_path / "gelu.py"
    file.write_text(DIES_WHEN_ASKED_AGAIN)
    with Judge("cpu", tmp_path / "cache") as judge:
        verdict = check(
            file,
            "gelu",
            judge=judge,
            allow=("custom", "mixed", "library"),
            dtypes=["float32"],
            directions=["forward"],
            categories=["small"],
            distributions=["standard", "large_scale"],
            timed=False,
        )
    large = next(cell.outcome for cell in verdict.cells if cell.case.distribution == "large_scale")
    assert isinstance(large, Failed)
    assert (verdict.verdict, large.reason) == ("failed", "exit")
