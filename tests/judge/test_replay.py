"""A replay line judges the same again: given back to the command line, it leads to the same candidate and protocol."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kerneleval import cli
from kerneleval.judge import judge as judging
from kerneleval.judge.verdicts import Job, Replay
from kerneleval.judge.windows.worker_pool import WorkerPool
from kerneleval.records import Candidate, Case, Failed, Passed, Protocol, UsageError
from kerneleval.tasks import find, shapes

PYTHON = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"
PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

rows = 48

def get_inputs():
    return [torch.rand(rows, 96)]

def get_init_inputs():
    return []
"""
KEY = "gelu/forward/M=8,N=5/float16/transposed/outlier"


@dataclass(frozen=True)
class Judged:
    """What the judge was asked."""

    candidate: Candidate
    task: str
    protocol: Protocol
    cases: tuple[Case, ...]
    replay: Replay


class _Unbuilt:
    """Stands in for a loaded candidate."""

    def __init__(self, _bench: WorkerPool, candidate: Candidate, *_names: Any, **_options: Any) -> None:
        self.candidate = candidate

    def close(self) -> None:
        """Nothing was opened."""


@pytest.fixture
def pool(judge: judging.Judge) -> WorkerPool:
    return judge.pool


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pool: WorkerPool) -> Callable[[list[str]], Judged]:
    """Gives words to the command line and tells what they ask of the judge, which judges nothing."""
    seen: list[Judged] = []

    def judge(_self: Any, job: Job, loaded: _Unbuilt, _prefetch: object) -> None:
        seen.append(Judged(loaded.candidate, job.task.name, job.protocol, job.cases, job.replay))
        raise UsageError("seen")

    def ask(words: list[str]) -> Judged:
        seen.clear()
        assert cli.main(words) == 2
        (one,) = seen
        return one

    for name, text in (("my gelu.py", PYTHON), ("gelu.txt", PYTHON), ("gelu.py", PYTHON), ("p.py", PROBLEM)):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(judging, "Loaded", _Unbuilt)
    monkeypatch.setattr(judging.Judge, "_judge", judge)
    monkeypatch.setattr(judging, "WorkerPool", lambda *_given: pool)
    for name in ("make_spare", "close"):
        monkeypatch.setattr(WorkerPool, name, lambda _self: None)
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return ask


OPTIONS = (
    "",
    "--dtype fp16,bf16 --direction forward --category small,medium --no-timing",
    "--distribution zeros,standard --quick",
    "--precise --baseline compile --allow library --tf32 --time call",
    "--direction backward --dtype float32 --entry gelu --backward-entry back --language triton",
    f"--case {KEY} --precise --dtype fp16",
    "--suite-seed 12345 --quick --patience 90.5",
)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_line_of_a_candidate_asks_the_same_again(options: str, asked: Callable[[list[str]], Judged]) -> None:
    first = asked(["check", "my gelu.py", "--task", "gelu", "--device", "cpu", *options.split()])
    words = shlex.split(first.replay.line())
    assert words[:2] == ["kerneleval", "check"]
    again = asked(words[1:])
    assert (again.candidate, again.task, again.protocol) == (first.candidate, first.task, first.protocol)
    assert again.cases == first.cases
    assert again.replay.line() == first.replay.line()


def test_the_line_of_a_stored_candidate_asks_the_same_again(asked: Callable[[list[str]], Judged]) -> None:
    from kerneleval import devices
    from kerneleval.store import NewRun, Planned, open_store

    made = Candidate(files=(("x.py", PYTHON), ("y.py", "")), language="triton", entry="gelu", backward_entry="back")
    task = find("gelu")
    case = Case(task="gelu", direction="forward", dims=(("M", 8), ("N", 5)), dtype="float32")
    plan = [Planned(generator="g", task="gelu", category=task.category, level=1, cases=(case,), candidate=made)]
    with open_store("the store.db") as store:
        store.begin_run(
            NewRun(
                name="r",
                generators=("g",),
                machines=(devices.find("cpu").machine(),),
                protocol=Protocol(),
                plan=tuple(plan),
            )
        )
    words = ["check", made.stored_name, "--task", "gelu", "--device", "cpu", "--store", "the store.db", "--quick"]
    first = asked(words)
    assert first.candidate == made
    for line in (first.replay.line(), first.replay.line_of(case, "correctness")):
        assert asked(shlex.split(line)[1:]).candidate == made
    assert asked(shlex.split(first.replay.line())[1:]).replay.line() == first.replay.line()


def test_the_line_of_a_models_shape_asks_the_same_again(asked: Callable[[list[str]], Judged]) -> None:
    options = "--task gelu --device cpu --shapes real --dtype fp32 --direction forward --quick"
    words = ["check", "gelu.py", *options.split()]
    first = asked(words)
    assert {c.shape_category.partition(":")[0] for c in first.cases or ()} <= {"real"}
    again = asked(shlex.split(first.replay.line())[1:])
    assert (again.task, again.protocol, again.cases) == (first.task, first.protocol, first.cases)
    case = Case(
        task="gelu",
        direction="forward",
        dims=(("M", 32), ("N", 14336)),
        dtype="float32",
        shape_category="real:llama3_8b.decode_mlp",
    )
    assert asked(shlex.split(first.replay.line_of(case, "correctness"))[1:]).cases == (case,)


def test_the_line_of_a_problem_asks_the_same_again(asked: Callable[[list[str]], Judged]) -> None:
    first = asked(["check", "gelu.py", "--task", "p.py", "--device", "cpu", "--shapes", "sweep", "--quick"])
    again = asked(shlex.split(first.replay.line())[1:])
    assert (again.task, again.protocol, again.cases) == (first.task, first.protocol, first.cases)


@pytest.mark.parametrize(
    ("path", "language", "named"),
    [
        ("gelu.py", "torch", False),
        ("gelu.py", "triton", True),
        ("gelu.txt", "torch", True),
        (".", "torch", True),
    ],
)
def test_the_language_is_named_where_the_path_does_not_tell_it(
    path: str, language: str, named: bool, asked: Callable[[list[str]], Judged]
) -> None:
    first = asked(["check", path, "--task", "gelu", "--device", "cpu", "--language", language])
    words = shlex.split(first.replay.line())
    assert ("--language" in words) == named
    assert asked(words[1:]).candidate == first.candidate


def test_the_line_of_a_case_asks_for_it_alone(asked: Callable[[list[str]], Judged]) -> None:
    options = "--dtype fp16 --direction forward --precise --baseline compile --allow library --tf32"
    first = asked(["check", "gelu.py", "--task", "gelu", "--device", "cpu", *options.split()])
    assert shapes.is_timed(first.cases[0], find("gelu"), first.protocol)
    for case in (first.cases[0], first.cases[-1]):  # the last is an edge case, never timed
        for stage in ("correctness", "timing"):
            outcome = first.replay.attach(case, Failed(stage=stage, reason="wrong_output", message=""))
            assert isinstance(outcome, Failed)
            again = asked(shlex.split(outcome.replay)[1:])
            (found,) = again.cases
            assert found.key == case.key
            assert again.candidate == first.candidate
            assert (again.protocol.allow, again.protocol.tf32) == (first.protocol.allow, first.protocol.tf32)
            if stage == "timing":
                assert (again.protocol.tier, again.protocol.baseline) == ("precise", "compile")
                assert shapes.is_timed(found, find("gelu"), again.protocol) == shapes.is_timed(
                    case, find("gelu"), first.protocol
                )
            else:
                assert "--precise" not in outcome.replay
                assert "--baseline" not in outcome.replay


def test_what_did_not_fail_in_a_case_has_no_line_of_its_own(asked: Callable[[list[str]], Judged]) -> None:
    first = asked(["check", "gelu.py", "--task", "gelu", "--device", "cpu", "--quick"])
    case = first.cases[0]
    for outcome in (Passed(), Failed(stage="build", reason="build_error", message="")):
        assert first.replay.attach(case, outcome) is outcome
