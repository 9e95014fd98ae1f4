"""The benchmark of generators by several judges side by side: what they share out, and what is told of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks import generators
from kerneleval import tasks
from kerneleval.judge import Judge
from kerneleval.pipeline import running
from kerneleval.records import InfrastructureError, UsageError
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


@pytest.fixture
def told(judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the benchmark in this process with some work_through, and gives its text and which jobs were judged."""
    real = generators.judged
    began: list[str] = []

    def judged(job: generators.Job) -> None:
        began.append(str(job))
        real(job)

    def run(*options: str, work: Any = None) -> tuple[str, list[str]]:
        def through(jobs: Sequence[Any], function: Any, processes: int, **how: Any) -> Iterator[Any]:
            if function is generators.measured:
                return iter([(jobs[0], judge.machine, "")])
            return (work or each_in_turn)(jobs, function, processes, **how)

        began.clear()
        monkeypatch.setattr(generators, "work_through", through)
        command = ["generators", "--generators", "robust", "--store", str(tmp_path / "all.db"), "--device", "cpu"]
        monkeypatch.setattr(sys, "argv", [*command, "--out", str(tmp_path), *options])
        generators.main()
        (text,) = (path.read_text() for path in tmp_path.glob("*.txt"))
        return text, list(began)

    monkeypatch.setattr(generators, "judged", judged)
    monkeypatch.setattr(generators, "_own_judge", lambda _device: judge)
    return run


def each_in_turn(jobs: Sequence[Any], function: Any, _processes: int, **_how: Any) -> Iterator[Any]:
    return ((job, function(job), "") for job in jobs)


def rows(text: str) -> list[list[str]]:
    table = [line.split() for line in text.splitlines() if line.startswith("robust ")]
    return [row[1:3] for row in table if not row[2].startswith("#")]


def test_what_was_not_asked_for_is_not_missing_and_other_ways_of_judging_are_not_known(told: Any) -> None:
    text, began = told("--tasks", "softmax/backward")
    assert began == ["softmax/backward"] and "not reached" not in text
    text, began = told("--tasks", "softmax/backward", "--tier", "standard", "--dtypes", "float16")
    assert began == ["softmax/backward"] and "1 of 1 candidates judged, standard tier, float16" in text
    text, began = told("--tasks", "softmax/backward,softmax/forward")
    assert began == ["softmax/forward"] and rows(text) == [["softmax", "backward"], ["softmax", "forward"]]
    text, began = told("--tasks", "softmax", "--processes", "2")
    assert began == [] and len(rows(text)) == 2  # both halves are there


def test_a_task_in_two_runs_is_told_once(told: Any) -> None:
    told("--tasks", "relu/backward")
    text, began = told("--tasks", "relu", "--processes", "2")
    assert began == ["relu"] and rows(text) == [["relu", "both"]]


def test_what_was_judged_is_kept_when_the_rest_breaks_down(told: Any, tmp_path: Path, capsys: Any) -> None:
    def breaks(jobs: Sequence[Any], function: Any, _processes: int, **_how: Any) -> Iterator[Any]:
        yield jobs[0], function(jobs[0]), ""
        raise InfrastructureError("a process ended before its first job")

    with pytest.raises(InfrastructureError, match="before its first job"):
        told("--tasks", "softmax,relu", "--processes", "2", work=breaks)
    text, began = told("--tasks", "softmax,relu", "--processes", "2")
    assert began == ["relu"] and rows(text) == [["relu", "both"], ["softmax", "both"]]
    folder = tempfile.mkdtemp(dir=tmp_path)
    (Path(folder) / "1.db").write_text("no store")
    with pytest.raises(UsageError, match=r"1\.db is not an SQLite database"):
        generators._keep(folder, str(tmp_path / "all.db"))
    assert Path(folder).is_dir() and f"the verdicts are in {folder}" in capsys.readouterr().out


def test_why_it_was_lost_is_told_when_there_was_no_time_to_try_again(told: Any) -> None:
    rounds: list[int] = []

    def ends(jobs: Sequence[Any], function: Any, processes: int, **_how: Any) -> Iterator[Any]:
        rounds.append(processes)
        if len(rounds) == 1:
            yield jobs[0], function(jobs[0]), ""
            yield jobs[1], None, "too little device memory"

    text, _ = told("--tasks", "softmax,relu", "--processes", "6", work=ends)
    assert rounds == [6, 2] and "relu: too little device memory\n" in text
    assert "not reached, and left out of the scores: relu" in text


def test_of_a_job_that_is_tried_again_the_whole_run_counts(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two generators the first was judged already when the second found no room."""
    real, asked = running._Work.judged, []

    def no_room_once(self: Any, *args: Any, **options: Any) -> Any:
        asked.append(1)
        if len(asked) == 2:
            raise InfrastructureError("too little device memory")
        return real(self, *args, **options)

    def each_in_its_process(jobs: Sequence[Any], function: Any, processes: int, **_how: Any) -> Iterator[Any]:
        monkeypatch.setattr(generators.os, "getpid", lambda: processes)
        for job in jobs:
            try:
                yield job, function(job), ""
            except InfrastructureError as error:
                yield job, None, str(error)

    monkeypatch.setattr(running._Work, "judged", no_room_once)
    text, _ = told("--generators", "robust,fragile", "--tasks", "relu", "--processes", "3", work=each_in_its_process)
    assert len(asked) == 4 and "2 of 2 candidates judged" in text and len(rows(text)) == 1


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
