"""The self-test of the library: it goes on where it was stopped, counts what it planted, and says what went wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.processes import work_through
from tests.benchmarks import jobs

from benchmarks import tasks_selftest
from kerneleval import tasks
from kerneleval.judge.selftest.mutants import KINDS
from kerneleval.records import InfrastructureError

ROOT = Path(__file__).parent.parent.parent
FEW = ("--tasks", "relu,add", "--device", "cpu", "--jobs", "1", "--dtype", "fp32")


def end(killed: int, survived: int, **more: Any) -> dict[str, Any]:
    """One task's result."""
    survivor = {"kind": "constant", "name": "output 0: zeros", "direction": "forward", "dtype": "float32", "why": "w|y"}
    return {
        "task": "t",
        "category": "gemm",
        "cases": 7,
        "seconds": 1.5,
        "passed": True,
        "findings": [],
        "kinds": {"constant": {"killed": killed, "survived": survived, "equivalent": 1}},
        "meetings": {"killed": 3 * killed, "survived": survived},
        "survivors": [survivor] * survived,
        "equivalent": [{"kind": "constant", "name": "n", "why": "it gives the same", "in": ["forward float32"]}],
        "not_planted": {"badly_drawn": {"it does not draw": 4}},
        **more,
    }


# --------------------------------------------------------------------------------------------------------------------
# Processes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_jobs_are_done_and_a_bad_one_costs_itself_alone() -> None:
    given = [1, "raises", 2, "dies", 3, "hangs", 4]
    found = {job: (result, error) for job, result, error in work_through(given, jobs.double, 2, seconds_each=5.0)}
    assert {job: found[job][0] for job in (1, 2, 3, 4)} == {1: 2, 2: 4, 3: 6, 4: 8}
    assert found["raises"] == (None, "ValueError: no such job")
    assert found["dies"] == (None, "its process died (exit code 3)")
    assert found["hangs"] == (None, "took longer than 5 s")


def test_a_process_that_is_beyond_use_gets_no_further_job() -> None:
    """After an illegal access every call on that GPU fails, at once: it would take up all the jobs that are left."""
    found = [*work_through(["process", "process", "breaks", "process"], jobs.double, 1, seconds_each=60.0)]
    (first, second, broken, third) = [(result, error) for _, result, error in found]
    assert broken == (None, "the device is gone")
    assert first == second
    assert third[0] != first[0]


def test_processes_that_cannot_start_are_an_error_and_no_endless_loop() -> None:
    with pytest.raises(InfrastructureError, match="ended before its first job"):
        list(work_through([1, 2], jobs.found_by_no_name(), 1, seconds_each=5.0))


def test_no_job_is_begun_when_time_is_up() -> None:
    done: list[Any] = []
    for job, *_ in work_through([1, 2, 3], jobs.double, 1, seconds_each=5.0, go_on=lambda: not done):
        done.append(job)
    assert done == [1]


# --------------------------------------------------------------------------------------------------------------------
# What a result depends on
# --------------------------------------------------------------------------------------------------------------------


def test_every_task_is_a_job_of_its_own() -> None:
    options = tasks_selftest._options([])
    names = list(tasks.all_tasks())
    jobs = tasks_selftest._jobs(options, "cpu", names)
    assert [job["task"] for job in jobs.values()] == names


def test_a_result_depends_on_the_family_and_on_those_that_it_takes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("gelu", "silu", "conv2d", "conv_transpose2d")
    own = {name: tasks_selftest.code_of(name) for name in names}
    assert own["gelu"] == own["silu"] != own["conv2d"] != own["conv_transpose2d"]
    read = tasks_selftest._source
    changed = "kerneleval.tasks.operators.convolution.convolution"
    monkeypatch.setattr(tasks_selftest, "_source", lambda module: read(module) + "#" * (module == changed))
    after = {name: tasks_selftest.code_of(name) for name in names}
    assert [name for name in names if after[name] != own[name]] == ["conv2d", "conv_transpose2d"]


# --------------------------------------------------------------------------------------------------------------------
# Counting
# --------------------------------------------------------------------------------------------------------------------


def test_the_score_leaves_out_what_is_right() -> None:
    total = tasks_selftest.summarise([end(3, 1), end(4, 0, category="fused", passed=False)])
    assert (total["planted"], total["killed"], total["survived"], total["equivalent"]) == (10, 7, 1, 2)
    assert total["score"] == pytest.approx(7 / 8)
    assert (total["tasks"], total["passed"], total["cases"]) == (2, 1, 14)
    assert total["categories"]["gemm"]["score"] == pytest.approx(3 / 4)
    assert total["kinds"]["constant"]["score"] == pytest.approx(7 / 8)
    assert total["tasks_without"] == {"badly_drawn": {"it does not draw": 2}}
    assert tasks_selftest.score(0, 0) is None


def test_the_report_lists_survivors_failures_and_what_is_right() -> None:
    finding = {"test": "depends", "case": "t/forward", "message": "hardly depends"}
    results = [
        end(3, 1),
        end(4, 0, passed=False, findings=[finding]),
        end(0, 0, passed=False, error="its process died"),
    ]
    text = tasks_selftest.written(results, {"date": "today"})
    assert "1 of 3 tasks passed" in text
    assert "Mutation score 87.50 %" in text
    assert "- `t` constant (forward, float32): output 0: zeros: w|y" in text
    assert "- `t` depends: t/forward: hardly depends" in text
    assert "- `t`: its process died" in text
    assert "- constant: it gives the same: 1 tasks: t" in text
    assert all(f"| {kind} |" in text for kind in KINDS)


def test_a_mutant_is_killed_by_one_case_and_a_kind_without_mutants_says_why() -> None:
    from kerneleval.judge.selftest.mutants import Fate

    def fate(kind: str, name: str, *fates: str) -> list[Fate]:
        return [Fate(kind=kind, name=name, fate=f, why=f"because {f}") for f in fates]  # type: ignore[arg-type]

    found = tasks_selftest._counted(
        {
            ("forward", "float32", "constant", "a"): fate("constant", "a", "survived", "killed", "not_applicable"),
            ("forward", "float32", "constant", "b"): fate("constant", "b", "survived", "equivalent"),
            ("forward", "float32", "constant", "c"): fate("constant", "c", "equivalent", "not_applicable"),
            ("forward", "float32", "wrong_axis", ""): fate("wrong_axis", "", "not_applicable"),
        }
    )
    assert found["kinds"] == {"constant": {"killed": 1, "survived": 1, "equivalent": 1}}
    assert found["meetings"] == {"survived": 2, "killed": 1, "equivalent": 2}
    assert [(one["name"], one["why"]) for one in found["survivors"]] == [("b", "because survived")]
    assert [one["name"] for one in found["equivalent"]] == ["c"]
    assert found["not_planted"] == {"wrong_axis": {"because not_applicable": 1}}


# --------------------------------------------------------------------------------------------------------------------
# The program
# --------------------------------------------------------------------------------------------------------------------


def in_turn(jobs: Sequence[Any], function: Any, *_: Any, go_on: Any, **__: Any) -> Iterator[tuple[Any, Any, str]]:
    """As ``work_through``, in this process: one of its own takes two seconds to load PyTorch."""
    for job in jobs:
        if not go_on():
            return
        yield job, function(job), ""


@pytest.mark.slow
def test_it_tests_reports_and_takes_what_it_knows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, out = tmp_path / "kept" / "j.jsonl", tmp_path / "out"
    words = [*FEW, "--journal", str(journal), "--out", str(out)]
    assert tasks_selftest.main(words) == 0
    monkeypatch.setattr(tasks_selftest, "work_through", in_turn)
    said = capsys.readouterr().out
    assert "2 of 2 tasks passed" in said
    assert "mutation score 100.00 %" in said
    (report,), (data,) = out.glob("*-some.md"), out.glob("*-some.json")
    assert report.name.startswith("tasks_selftest-CPU-")
    body = json.loads(data.read_text())
    assert {one["task"] for one in body["tasks"]} == {"relu", "add"}
    assert body["total"]["score"] == 1.0
    assert body["machine"]["device"] == "cpu"
    first = journal.read_text()
    assert len(first.splitlines()) == 2
    # a run that was killed while it wrote, and then goes on
    lines = first.splitlines()
    journal.write_text(lines[0] + "\n" + lines[1][: len(lines[1]) // 2])
    assert tasks_selftest.main(words) == 0
    assert "1 of them in" in capsys.readouterr().out
    assert len([line for line in journal.read_text().splitlines() if line.endswith("}")]) == 2
    # all of it is known now
    assert tasks_selftest.main([*words, "--jobs", "2"]) == 0
    assert "2 of them in" in capsys.readouterr().out
    # what another shard has found is taken, too
    assert tasks_selftest.main([*FEW, "--journal", str(tmp_path / "n"), "--out", str(out), "--with", str(journal)]) == 0
    assert "2 of them in" in capsys.readouterr().out
    assert tasks_selftest.main([*words, "--fresh", "--shard", "2/2"]) == 0
    said = capsys.readouterr().out
    assert "1 tasks on" in said
    assert "0 of them in" in said
    assert list(out.glob("*-some-shard_2_of_2.md"))


def test_what_is_not_begun_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_selftest, "work_through", in_turn)
    words = [*FEW, "--journal", str(tmp_path / "j"), "--out", str(tmp_path), "--limit-seconds", "1e-9"]
    assert tasks_selftest.main(words) == 2
    assert "no task was tested" in capsys.readouterr().err
    assert tasks_selftest.main([*words[:-2], "--tasks", "relu"]) == 0
    assert tasks_selftest.main(words) == 1
    assert "1 tasks were not begun in 1e-09 s" in capsys.readouterr().out
    assert list(tmp_path.glob("*-some-unfinished.md"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--tasks", "reluu"), "no task is called 'reluu'; did you mean relu"),
        (("--dtype", "f8"), "--dtype 'f8' is unknown"),
        (("--direction", "back"), "--direction 'back' is unknown; did you mean backward?"),
        (("--shard", "3/2"), "--shard '3/2' is no part"),
        (("--jobs", "0"), "--jobs 0 is no number of processes"),
        (("--device", "cudo"), "no device is called 'cudo'"),
        (("--with", "nowhere.jsonl"), "cannot read the journal nowhere.jsonl"),
        (("--journal", "/proc/none/j"), "cannot write to the journal /proc/none/j"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = ("--device", "cpu", "--journal", str(tmp_path / "j"), "--out", str(tmp_path))
    assert tasks_selftest.main([*first, *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_interrupted_and_goes_on(sent: signal.Signals, tmp_path: Path) -> None:
    journal = tmp_path / "j.jsonl"
    words = ("--device", "cpu", "--jobs", "1", "--dtype", "fp32", "--journal", str(journal), "--out", str(tmp_path))
    command = [sys.executable, "-m", "benchmarks.tasks_selftest", *words]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    began = time.monotonic()
    while time.monotonic() - began < 120 and not (journal.exists() and journal.read_text().count("\n") >= 2):
        time.sleep(0.2)
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; " in err
    assert "Traceback" not in err
    known = tasks_selftest.kept(journal)
    assert len(known) >= 2
    assert not list(tmp_path.glob("*.md"))
    names = ",".join(one["task"] for one in known.values())
    assert tasks_selftest.main([*words, "--tasks", names]) == 0
