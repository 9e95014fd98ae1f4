"""The benchmark of generators by several judges side by side: what they share out, and what is told of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generators
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.records import UsageError
from kerneleval.store import open_store


def test_tasks_and_directions_of_tasks_are_shared_out() -> None:
    assert generators._parts(["gelu", "softmax/backward"]) == [("gelu", ""), ("softmax", "backward")]
    core = generators._parts(["core"])
    assert {task for task, _ in core} == set(tasks.CORE)
    assert len(core) == len(set(core)) == len(tasks.CORE) + 10 and core[0] == ("conv_transpose2d", "backward")
    with pytest.raises(UsageError, match="argmax/backward: task argmax has the directions forward"):
        generators._parts(["argmax/backward"])
    with pytest.raises(UsageError, match="gelo"):
        generators._parts(["gelo/forward"])


def test_what_was_not_reached_is_named(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Candidates that there are none of: their verdicts take no time."""
    store, said = tmp_path / "all.db", tmp_path / "out"
    began: list[list[str]] = []

    def one_after_the_other(jobs: Sequence[Any], function: Any, _processes: int, **_how: Any) -> Iterator[Any]:
        if function is generators.measured:
            yield jobs[0], judge.machine, ""
            return
        began.append([str(job) for job in jobs])
        for job in jobs[:2]:
            yield job, function(job), ""
        for job in jobs[2:]:
            yield job, None, "too little device memory"

    monkeypatch.setattr(generators, "work_through", one_after_the_other)
    monkeypatch.setattr(generators, "_own_judge", lambda _device: judge)
    command = ["generators", "--generators", "robust", "--store", str(store), "--out", str(said), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*command, "--tasks", "softmax/backward,sigmoid,softmax/forward,relu"])
    generators.main()
    (text,) = (path.read_text() for path in said.glob("*.txt"))
    assert "softmax/forward: too little device memory\nrelu: too little device memory" in text
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


def test_what_found_no_room_is_tried_again_by_fewer_judges(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, judge: Judge
) -> None:
    began: list[tuple[list[str], int]] = []

    def crowded(jobs: Sequence[Any], function: Any, processes: int, **_how: Any) -> Iterator[Any]:
        if function is generators.measured:
            yield jobs[0], judge.machine, ""
            return
        began.append(([job.task for job in jobs], processes))
        for job in jobs:
            yield job, None, "" if processes <= 4 and job.task == "relu" else "too little device memory"

    monkeypatch.setattr(generators, "work_through", crowded)
    command = ["generators", "--store", str(tmp_path / "all.db"), "--out", str(tmp_path), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [*command, "--tasks", "softmax,relu", "--processes", "12"])
    generators.main()
    assert began == [(["softmax", "relu"], 12), (["softmax", "relu"], 4), (["softmax"], 1)]


TOLD_TWICE = """
import os, signal, sys
from benchmarks.report import until_ended
with until_ended():
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()
os.kill(os.getpid(), signal.SIGTERM)
print("told", flush=True)
import benchmarks.report
benchmarks.report._SAME_MOMENT_S = 0.0
os.kill(os.getpid(), signal.SIGTERM)
print("not ended")
"""


def test_a_limit_of_time_tells_a_program_twice() -> None:
    """As ``timeout`` does: once for itself, once for its group. The second signal ended it before it told anything."""
    done = subprocess.run([sys.executable, "-c", TOLD_TWICE], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("told\n", -signal.SIGTERM), done.stderr
