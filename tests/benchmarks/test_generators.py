"""The benchmark of generators by several judges side by side: what they share out, and what is told of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generators
from kerneleval.judge import Judge
from kerneleval.records import UsageError
from kerneleval.store import open_store


def test_tasks_and_directions_of_tasks_are_shared_out() -> None:
    assert generators._parts(["gelu", "softmax/backward"]) == [("gelu", ""), ("softmax", "backward")]
    with pytest.raises(UsageError, match="argmax/backward: task argmax has the directions forward"):
        generators._parts(["argmax/backward"])
    with pytest.raises(UsageError, match="gelo"):
        generators._parts(["gelo/forward"])


def test_what_was_not_reached_is_named(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Candidates that there are none of: their verdicts take no time."""
    store, said = tmp_path / "all.db", tmp_path / "out"
    began: list[list[str]] = []

    def one_after_the_other(jobs: Sequence[Any], function: Any, _processes: int, **_how: Any) -> Iterator[Any]:
        began.append([str(job) for job in jobs])
        for job in jobs[:2]:
            yield job, function(job), ""
        for job in jobs[2:]:
            yield job, None, "took longer than 1 s"

    monkeypatch.setattr(generators, "work_through", one_after_the_other)
    monkeypatch.setattr(generators, "_own_judge", lambda _device: judge)
    monkeypatch.setattr(generators, "Judge", lambda _device: _Lent(judge))
    command = ["generators", "--generators", "robust", "--store", str(store), "--out", str(said), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*command, "--tasks", "softmax/backward,sigmoid,softmax/forward,relu"])
    generators.main()
    (text,) = (path.read_text() for path in said.glob("*.txt"))
    assert "softmax/forward: took longer than 1 s\nrelu: took longer than 1 s" in text
    assert "not reached, and left out of the scores: relu, softmax/forward" in text
    assert [line.split()[1:3] for line in text.splitlines() if line.startswith("robust ")][:2] == [
        ["sigmoid", "both"],
        ["softmax", "backward"],
    ]
    generators.main()  # goes on with what is left
    assert began[1] == ["softmax/forward", "relu"]
    with open_store(str(store), write=False) as opened:
        assert len(opened.runs()) == 4
    (text,) = (path.read_text() for path in said.glob("*.txt"))
    assert "not reached" not in text


class _Lent:
    def __init__(self, judge: Judge) -> None:
        self._judge = judge

    def __enter__(self) -> Judge:
        return self._judge

    def __exit__(self, *_exc: object) -> None:
        pass
