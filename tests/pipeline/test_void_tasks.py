"""Runs over problem files of which some do not settle what is right: they end, and count nowhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerneleval import cli, pipeline
from kerneleval.judge import Judge
from kerneleval.pipeline import audit
from kerneleval.records import AuditSpec, Passed
from kerneleval.store import open_store
from kerneleval.tasks import open_task

FILE = """
import torch
import torch.nn as nn

class Model{new}(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.randn(n, n))
    def forward(self, x):
        {forward}

rows, n = 6, 24
def get_inputs():
    return [torch.rand(rows, n)]
def get_init_inputs():
    return [n]
"""

TASKS = {
    "good": "return torch.relu(x @ self.w)",
    "void": "return torch.softmax(x.mean(1, keepdim=True), 1)",
    "drawn": "return x @ self.w + torch.randn_like(x)",
    "unsound": "return torch.sin(x * 1e9)",
}
"""Name -> forward; the last three settle nothing."""

REASONS = {"void": "void", "drawn": "random", "unsound": "unsound"}


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Problem files, a generator that is right where that can be said, and one whose sources do not load."""
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "broken"):
        (tmp_path / folder).mkdir()
    for name, forward in TASKS.items():
        path = tmp_path / f"{name}.py"
        path.write_text(FILE.format(new="", forward=forward))
        task = open_task(str(path))
        (tmp_path / "mine" / f"{task.name}.py").write_text(FILE.format(new="New", forward=forward))
        (tmp_path / "broken" / f"{task.name}.py").write_text("import no_such_module\nclass ModelNew: pass\n")
    return tmp_path


def run(judge: Judge, *names: str, generators: tuple[str, ...] = ("mine", "broken"), **more: Any) -> str:
    tasks = [f"{name}.py" for name in names]
    return pipeline.run(generators, tasks, judge=judge, store_url="s.db", tier="quick", timed=False, **more)


@pytest.mark.slow
@pytest.mark.usefixtures("suite")
def test_a_run_ends_and_tasks_that_settle_nothing_count_nowhere(
    judge: Judge, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, mixed = run(judge, "good"), run(judge, *TASKS)
    with open_store("s.db") as store:
        info = store.run(mixed)
        assert info.complete and info.planned == 2 * len(TASKS)
        assert sorted(name.partition(":")[2].partition("@")[0] for name in info.not_judged) == sorted(REASONS)
        assert "void task" in info.not_judged[next(name for name in info.not_judged if ":void@" in name)]
        found = {(a.generator, a.task.split(":")[1].split("@")[0]): v for a, v in store.verdicts(mixed)}
        for name, reason in REASONS.items():
            for generator in ("mine", "broken"):
                verdict = found[generator, name]
                assert (verdict.verdict, verdict.reason, verdict.cells) == ("not_judged", reason, ())
        assert found["mine", "good"].verdict == "passed" and found["broken", "good"].verdict == "failed"
        assert {r.task for r in store.results(mixed)} == {r.task for r in store.results(alone)}
    scores = pipeline.score("s.db", mixed)["scores"]
    assert scores == pipeline.score("s.db", alone)["scores"]
    assert scores["mine"]["pass_at_k"]["1"]["value"] == scores["mine"]["c_op"]["value"] == 1
    assert cli.main(["score", mixed, "--store", "s.db"]) == 0
    assert capsys.readouterr().out.count("is not judged, and counts nowhere") == len(REASONS)


@pytest.mark.usefixtures("suite")
def test_reports_and_tables_name_what_is_not_judged(judge: Judge) -> None:
    pytest.importorskip("plotly", reason="the report's packages are not installed (pip install 'kerneleval[report]')")
    found = run(judge, "good", "void")
    pipeline.report(found, store_url="s.db", html_to="r.html", markdown_to="r.md")
    assert "is not judged, and counts nowhere" in Path("r.html").read_text()
    assert "**1 task not judged:**" in Path("r.md").read_text()
    pipeline.export("out", found, store_url="s.db", file_format="jsonl")
    attempts = [json.loads(line) for line in Path("out/attempts.jsonl").read_text().splitlines()]
    assert sorted(row["verdict"] for row in attempts) == ["failed", "not_judged", "not_judged", "passed"]
    assert len(Path("out/samples.jsonl").read_text().splitlines()) == 2, "nothing to train on"


@pytest.mark.usefixtures("suite")
def test_a_run_of_nothing_else_says_so(judge: Judge, capsys: pytest.CaptureFixture[str]) -> None:
    found = run(judge, "void")
    assert cli.main(["score", found, "--store", "s.db"]) == 0
    assert "No results: no task of this run can be judged." in capsys.readouterr().out


@pytest.mark.usefixtures("suite")
def test_a_run_that_goes_on_does_not_try_it_again(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    check: Callable[..., Any] = judge.check

    def stops(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(judge, "check", stops)
        run(judge, "void", "good")
    looked: list[str] = []
    unsettled = judge.unsettled
    monkeypatch.setattr(judge, "check", check)
    monkeypatch.setattr(judge, "unsettled", lambda task, *rest: looked.append(task.name) or unsettled(task, *rest))
    found = run(judge, "void", "good")
    assert [name.split("@")[0] for name in looked] == ["kernelbench:good"]
    with open_store("s.db") as store:
        assert [info.id for info in store.runs()] == [found] and store.run(found).complete


@pytest.mark.usefixtures("suite")
def test_what_shows_while_a_candidate_is_judged_is_stored_too(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "unsettled", lambda *_: None)
    found = run(judge, "good", "void")
    with open_store("s.db") as store:
        assert store.run(found).complete
        verdicts = {(a.generator, a.task.split("@")[0]): v.verdict for a, v in store.verdicts(found)}
        assert (
            verdicts["mine", "kernelbench:void"] == "not_judged" and verdicts["broken", "kernelbench:void"] == "failed"
        )
        assert {r.task.split("@")[0] for r in store.results(found)} == {"kernelbench:good"}


@pytest.mark.usefixtures("suite")
def test_an_audit_leaves_out_what_was_not_judged(judge: Judge) -> None:
    found = run(judge, "good", "void", generators=("mine",))
    document = audit.audit(AuditSpec(run=found, store_url="s.db"), judge=judge)
    assert (document["audited"], document["changed"], document["skipped"]) == (1, 0, 1)


LEFT_OUT = """
import torch
import torch.nn as nn

class Model{new}(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.w = nn.Parameter(torch.rand(n, n))
    def forward(self, x):
        {forward}

batch, rows, n = 4, 6, 24
def get_inputs():
    return [torch.rand(batch, rows, n)]
def get_init_inputs():
    return [n]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "shapes", "gone", "why"),
    [
        ("return torch.log(x @ self.w)", "default", {"negative", "small_scale", "outlier"}, "are not finite there"),
        (
            "assert x.max() < 2\n        return x @ self.w",
            "default",
            {"large_scale", "outlier"},
            "the file itself raises there",
        ),
        ("return x.view(-1, x.shape[-1]) @ self.w", "sweep", {"transposed", "sliced"}, "itself takes no"),
    ],
)
def test_cases_that_a_file_does_not_settle_are_left_out_of_verdict_and_scores(
    judge: Judge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    forward: str,
    shapes: str,
    gone: set[str],
    why: str,
) -> None:
    # as of a file that is too large to try
    monkeypatch.setattr("kerneleval.tasks.formats.distributions._TRIED_FLOPS", -1)
    monkeypatch.chdir(tmp_path)
    Path("ref.py").write_text(LEFT_OUT.format(new="", forward=forward))
    name = open_task("ref.py").name
    Path("mine").mkdir()
    Path("mine", f"{name}.py").write_text(LEFT_OUT.format(new="New", forward=forward))
    run = pipeline.run(("mine",), ("ref.py",), judge=judge, store_url="s.db", tier="quick", timed=False, shapes=shapes)
    with open_store("s.db") as store:
        ((_, verdict),) = store.verdicts(run)
        results = list(store.results(run))
    left = [f.message for f in verdict.findings if f.message.startswith("left out: ")]
    assert verdict.verdict == "passed" and all(why in message for message in left)
    assert {part for part in gone for message in left if f"/{part}" in message} == gone
    assert all(isinstance(r.outcome, Passed) for r in results)
    assert not {r.case.distribution for r in results} & gone and not {r.case.layout for r in results} & gone
    assert pipeline.score("s.db", run)["scores"]["mine"]["c_op"]["value"] == 1
