"""The command line: what it passes on, what it prints where, and how it exits.

The pipeline is replaced by one that records how it was called, so that these run without a judge;
``tests/test_end_to_end.py`` runs the real one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import kerneleval
from kerneleval import __version__, cli, pipeline
from kerneleval.cli.options import OPTIONS, read_settings
from kerneleval.cli.program import COMMANDS
from kerneleval.records import (
    TRACKS,
    AuditSpec,
    CandidateSpec,
    Case,
    CellResult,
    Event,
    Failed,
    InfrastructureError,
    Machine,
    Passed,
    Protocol,
    RunSpec,
    SpeedupSummary,
    Trust,
    UsageError,
    Verdict,
    from_plain,
)

CASE = Case(task="gelu", direction="forward", dims=(("M", 4), ("N", 7)), dtype="float32")
MACHINE = Machine(
    device="cpu",
    name="a processor",
    arch="x86_64",
    memory_bytes=1 << 30,
    cache_bytes=1 << 20,
    units=2,
    driver="6.0",
    torch="2.13.0",
)


def verdict(outcome: Passed | Failed) -> Verdict:
    failed = isinstance(outcome, Failed)
    return Verdict(
        verdict="failed" if failed else "passed",
        stage=outcome.stage if failed else "timing",
        reason=outcome.reason if failed else "ok",
        message=outcome.message if failed else "right in 1 of 1 cells",
        task="gelu",
        candidate="ab" * 32,
        track="custom",
        trust=Trust(level="strong", layers=("process", "seccomp")),
        machine=MACHINE,
        protocol=Protocol(),
        speedup=None if failed else SpeedupSummary(value=1.5, low=1.4, high=float("inf"), claim="faster", cells=1),
        cells=(CellResult(case=CASE, outcome=outcome),),
        replay=f"kerneleval check k.py --task gelu --case {CASE.key}",
        seconds=0.5,
    )


WRONG = Failed(stage="correctness", reason="wrong_output", message="worst error 3.0 at [0, 1]", replay="replay")


SCORE = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 10, "note": ""}


class Recorder:
    """Stands in for one function of the pipeline."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls.append((args, options))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STORE", "DEVICE", "CACHE_DIR", "TRACEBACK"):
        monkeypatch.delenv(f"KERNELEVAL_{name}", raising=False)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(verdict(Passed()))
    monkeypatch.setattr(pipeline, "check_candidate", recorder)
    return recorder


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder("run-1")
    monkeypatch.setattr(pipeline, "run_suite", recorder)
    monkeypatch.setattr(pipeline, "score", Recorder({"run": None, "scores": {"robust": {"composite": SCORE}}}))
    return recorder


CHECK = ("check", "k.py", "--task", "gelu")


# --------------------------------------------------------------------------------------------------------------------
# check
# --------------------------------------------------------------------------------------------------------------------


def test_check_passes_defaults_on(check: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CHECK, "--json"]) == 0
    assert check.calls == [((CandidateSpec(source="k.py", task="gelu"), Protocol()), {"on_event": None})]


def test_check_passes_every_option_on(check: Recorder) -> None:
    words = (
        "--device cpu --shapes real --allow library --precise --dtype fp16,bf16 --dtype float32 --direction forward "
        "--distribution zeros --category tiny,large --no-timing --tf32 --baseline compile --entry f --language torch "
        "--suite-seed 7 --store s.db --patience 30 "
        f"--case {CASE.key} --json"
    )
    assert cli.main([*CHECK, *words.split()]) == 0
    ((records, _),) = check.calls
    spec = CandidateSpec(
        source="k.py", task="gelu", device="cpu", language="torch", entry="f", case=CASE.key, store_url="s.db"
    )
    protocol = Protocol(
        tier="precise",
        baseline="compile",
        shapes="real",
        dtypes=("float16", "bfloat16", "float32"),
        directions=("forward",),
        categories=("tiny", "large"),
        distributions=("zeros",),
        timed=False,
        allow=("library",),
        tf32=True,
        suite_seed=7,
        patience_s=30.0,
    )
    assert records == (spec, protocol)


def test_every_option_fills_a_field_of_a_record() -> None:
    fields = {field.name for record in (CandidateSpec, RunSpec, Protocol) for field in dataclasses.fields(record)}
    assert {option.field for option in OPTIONS.values()} <= fields


def test_options_of_one_field_exclude_each_other(check: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CHECK, "--quick", "--precise"]) == 2
    assert "--quick and --precise exclude each other" in capsys.readouterr().err
    assert not check.calls


@pytest.mark.parametrize(
    "act", [lambda: kerneleval.check("k.py", "gelu", teir="quick"), lambda: kerneleval.run(teir="quick")]
)
def test_the_python_api_names_an_unknown_option(act: Any) -> None:
    with pytest.raises(UsageError, match=r"no option 'teir'; did you mean tier\?"):
        act()


@pytest.mark.parametrize("given", ["0", "-1", "nan", "1e9", "soon", ""])
def test_patience_is_a_number_of_seconds(given: str, check: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CHECK, "--patience", given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: invalid value for '--patience': ")
    assert not check.calls


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"patience_s": 0.5}, r"Protocol: field 'patience_s' must be from 1 to 86400, got 0\.5"),
        ({"patience_s": float("nan")}, r"field 'patience_s' must be from 1 to 86400"),
        ({"patience_s": "long"}, r"field 'patience_s' must be float, got 'long'"),
        ({"tier": "quik"}, r"field 'tier' must be one of 'quick', 'standard', 'precise'; did you mean quick\?"),
        ({"suite_seed": "7"}, r"field 'suite_seed' must be int, got '7'"),
    ],
)
@pytest.mark.parametrize("act", [lambda **o: kerneleval.check("k.py", "gelu", **o), lambda **o: kerneleval.run(**o)])
def test_the_python_api_names_a_bad_value(act: Any, options: dict[str, Any], said: str) -> None:
    """An unknown tier was a KeyError deep inside, and ``time`` was not looked at."""
    with pytest.raises(UsageError, match=said):
        act(**options)


def test_check_prints_the_verdict_as_json(check: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CHECK, "--json"]) == 0
    out, err = capsys.readouterr()
    plain = json.loads(out)
    assert err == ""
    for field in ("verdict", "stage", "reason", "message", "track", "trust", "speedup", "cells", "replay"):
        assert field in plain
    assert plain["verdict"] == "passed"
    assert plain["trust"]["level"] == "strong"
    assert plain["speedup"] == {
        "value": 1.5,
        "low": 1.4,
        "high": "inf",
        "claim": "faster",
        "cells": 1,
        "direction": "forward",
    }
    assert plain["cells"][0]["outcome"]["passed"] is True
    assert plain.pop("format") == 1
    assert (plain.pop("layer"), plain.pop("layers")["numerical"]) == ("", "1/1 right")
    assert from_plain(Verdict, plain) == verdict(Passed())


def test_check_exits_1_when_the_candidate_failed(check: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    check.answer = verdict(WRONG)
    assert cli.main([*CHECK, "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    assert (plain["verdict"], plain["stage"], plain["reason"]) == ("failed", "correctness", "wrong_output")
    assert plain["speedup"] is None


@pytest.mark.parametrize("outcome", [Passed(), WRONG], ids=["passed", "failed"])
def test_check_prints_the_verdict_for_people(
    outcome: Passed | Failed, check: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    check.answer = verdict(outcome)
    assert cli.main(list(CHECK)) == isinstance(outcome, Failed)
    out = capsys.readouterr().out
    assert check.answer.message in out
    assert f"--case {CASE.key}" in out


def test_progress_of_a_run_goes_to_stderr_and_results_to_stdout(
    run: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*args: Any, on_event: Any, **options: Any) -> str:
        on_event(Event(kind="run", done=1, total=9, text="robust: gelu"))
        return "run-1"

    monkeypatch.setattr(pipeline, "run_suite", work)
    assert cli.main(["run"]) == 0
    out, err = capsys.readouterr()
    assert "run 1/9: robust: gelu" in err
    assert "run 1/9" not in out


# --------------------------------------------------------------------------------------------------------------------
# run and score
# --------------------------------------------------------------------------------------------------------------------


def test_run_without_options_leaves_generators_and_suite_to_the_pipeline(run: Recorder) -> None:
    assert cli.main(["run", "--json"]) == 0
    assert run.calls == [((RunSpec(), Protocol(allow=TRACKS)), {"on_event": None})]
    assert cli.main(["run", "--shapes", "real", "--json"]) == 0
    assert run.calls[1][0] == (RunSpec(), Protocol(allow=TRACKS, shapes="real"))


def test_run_takes_options_more_than_once(run: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    words = "run --task gelu --task exp,add -g robust -g mine/ --store s.db --quick --no-resume --name n --json"
    assert cli.main(words.split()) == 0
    ((records, _),) = run.calls
    spec = RunSpec(
        generators=("robust", "mine/"), tasks=("gelu", "exp", "add"), store_url="s.db", resume=False, name="n"
    )
    assert records == (spec, Protocol(tier="quick", allow=TRACKS))
    document = json.loads(capsys.readouterr().out)
    assert document["scores"] == {"robust": {"composite": SCORE}}
    assert document["definitions"]["composite"]


def test_score_is_of_the_latest_run_unless_told(run: Recorder) -> None:
    assert cli.main(["score", "--json"]) == 0
    assert cli.main(["score", "run-0", "--store", "other.db", "--json"]) == 0
    calls = pipeline.score.calls  # type: ignore[attr-defined]
    assert [args for args, _ in calls] == [(None, "latest"), ("other.db", ["run-0"])]


# --------------------------------------------------------------------------------------------------------------------
# audit
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def audit(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    from kerneleval.pipeline import audit as auditing

    document = {"of": "run-1", "audit": "run-2", "changed": 0, "audited": 1, "verdicts": []}
    recorder = Recorder(document)
    monkeypatch.setattr(auditing, "audit", recorder)
    return recorder


def test_audit_passes_its_options_on(audit: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVAL_DEVICE", "cuda")  # a run's own device is the better guess
    assert cli.main(["audit", "--json"]) == 0
    words = "audit run-1 --store s.db --device cpu --only gelu,add --sample 3 --tier precise --same-shapes --no-resume"
    assert cli.main([*words.split(), "--json"]) == 0
    spec = AuditSpec(
        run="run-1",
        store_url="s.db",
        device="cpu",
        only=("gelu", "add"),
        sample=3,
        tier="precise",
        same_shapes=True,
        resume=False,
    )
    assert audit.calls == [((AuditSpec(),), {"on_event": None}), ((spec,), {"on_event": None})]


def test_audit_exits_1_when_something_changed(audit: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    audit.answer["changed"] = 1
    assert cli.main(["audit", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == audit.answer
    audit.answer = KeyboardInterrupt()
    assert cli.main(["audit"]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------------------------
# Settings
# --------------------------------------------------------------------------------------------------------------------


def test_the_environment_is_the_default_and_an_option_wins(run: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELEVAL_STORE", "from-environment.db")
    monkeypatch.setenv("KERNELEVAL_DEVICE", "cpu")
    assert cli.main(["run", "--json"]) == 0
    assert cli.main(["run", "--store", "given.db", "--json"]) == 0
    assert [spec.store_url for (spec, _), _ in run.calls] == ["from-environment.db", "given.db"]
    assert [spec.device for (spec, _), _ in run.calls] == ["cpu", "cpu"]


def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", __file__)
    assert cli.main(["tasks"]) == 2
    assert capsys.readouterr().err == f"error: KERNELEVAL_CACHE_DIR={__file__}: is a file; give a directory\n"


@pytest.mark.parametrize("base", ["", "/somewhere"])
def test_the_cache_directory_is_where_the_judge_puts_it(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from kerneleval.judge.windows.worker_pool import default_cache_dir

    monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert read_settings().cache_dir == default_cache_dir()
    monkeypatch.setenv("KERNELEVAL_CACHE_DIR", "/elsewhere/cache")
    assert read_settings().cache_dir == default_cache_dir() == Path("/elsewhere/cache")


# --------------------------------------------------------------------------------------------------------------------
# Errors
# --------------------------------------------------------------------------------------------------------------------


def test_every_command_is_known_to_the_errors() -> None:
    names = [one.name or "" for one in cli.app.registered_commands]
    assert sorted(COMMANDS) == sorted(names)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frob"], "no such command 'frob'; see kerneleval --help"),
        (["peaks", "extra"], "see kerneleval peaks --help"),
        (["matrix", "k.py", "-t", "gelu", "--targets", ","], "--targets is empty; give names"),
        (["differ", "k.py", "-t", "gelu", "--devices", ""], "--devices is empty; give names"),
        (["check"], "missing argument"),
        (["check", "k.py"], "missing option '--task'"),
        (["check", "k.py", "--task"], "'--task' requires an argument"),
        ([*CHECK, "--frob"], "no such option: --frob"),
        ([*CHECK, "--shapes", "all"], "'all' is not one of 'default', 'sweep', 'real'"),
        ([*CHECK, "--allow", "costum"], "--allow 'costum' is unknown; did you mean custom?"),
        ([*CHECK, "--allow", ","], "--allow is empty"),
        ([*CHECK, "--dtype", "f16"], "--dtype 'f16' is unknown; did you mean"),
        ([*CHECK, "--direction", "back"], "--direction 'back' is unknown; did you mean backward?"),
        ([*CHECK, "--category", "huge"], "--category 'huge' is unknown"),
        ([*CHECK, "--device", "cudo"], "no device is called 'cudo'; did you mean cuda"),
        ([*CHECK, "--case", ""], "--case is empty; give a key such as gelu/forward/M=4,N=7/float32/"),
        ([*CHECK, "--quick", "--precise"], "--quick and --precise exclude each other"),
        (["tasks", "geluu"], "no task is called 'geluu'; did you mean gelu"),
        (["tasks", "list"], "'list' is no task: kerneleval tasks lists all of them, kerneleval tasks NAME shows one"),
        (["tasks", "show", "gelu"], "(gelu); kerneleval tasks lists all of them, kerneleval tasks NAME shows one; see"),
        (["tasks", "gelu", "--category", "gemm"], "gelu and --category exclude each other; leave one out"),
        (["tasks", "gelu", "--level", "1", "--search", "x"], "gelu and --level, --search exclude each other"),
        (["tasks", "--category", "gem"], "--category 'gem' is unknown; did you mean gemm?"),
        (["tasks", "--group", "Poling"], "--group 'Poling' is unknown; did you mean Pooling?"),
        (["tasks", "--source", "vlm"], "--source 'vlm' is unknown; did you mean vllm?"),
        (["tasks", "--level", "1,7"], "--level '7' is unknown; known are 1, 2, 3"),
        (["tasks", "--complexity", "0"], "--complexity '0' is unknown; known are 1, 2, 3, 4"),
        (["tasks", "--dtype", "f32"], "--dtype 'f32' is unknown; did you mean"),
        (["tasks", "--direction", "back"], "--direction 'back' is unknown; did you mean backward?"),
        (["tasks", "--search", "gelus"], "--search 'gelus' is in no task's name or formula; did you mean gelu"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    arguments: Sequence[str], said: str, check: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert said in err
    assert err.count("\n") == 1
    assert not check.calls


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (UsageError("no such file: k.py"), "usage", "no such file: k.py"),
        (InfrastructureError("the disk is full"), "infrastructure", "the disk is full"),
        (OSError(28, "No space left on device", "/cache/x"), "infrastructure", "No space left on device: /cache/x"),
        (MemoryError(), "infrastructure", "out of memory"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "infrastructure", "torch is not installed"),
        (ZeroDivisionError("division by zero"), "internal", "unexpected ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_below_is_one_line_and_exit_code_2(
    raised: Exception, kind: str, said: str, check: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    check.answer = raised
    assert cli.main([*CHECK, "--json"]) == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    error = json.loads(out)["error"]
    assert error["kind"] == kind
    assert error["message"].startswith(said)


def test_an_unexpected_error_tells_how_to_see_more(
    check: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check.answer = ZeroDivisionError("division by zero")
    assert cli.main(list(CHECK)) == 2
    assert "KERNELEVAL_TRACEBACK=1" in capsys.readouterr().err
    monkeypatch.setenv("KERNELEVAL_TRACEBACK", "1")
    assert cli.main(list(CHECK)) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("error: unexpected ZeroDivisionError: division by zero\n")


@pytest.mark.parametrize(("command", "resumes"), [(("run",), True), (CHECK, False)])
def test_an_interrupt_is_one_line_and_exit_code_130(
    command: Sequence[str], resumes: bool, check: Recorder, run: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    check.answer = run.answer = KeyboardInterrupt()
    assert cli.main([*command, "--json"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [err.strip()]
    assert err.startswith("interrupted")
    assert ("the same command goes on" in err) is resumes


# --------------------------------------------------------------------------------------------------------------------
# tasks, --version, help
# --------------------------------------------------------------------------------------------------------------------


def test_tasks_lists_all_categories(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) >= 28
    assert len({task["category"] for task in listed}) == 7
    assert {"name", "category", "source", "level", "summary", "dims", "dtypes", "directions"} < set(listed[0])
    assert cli.main(["tasks"]) == 0
    text = capsys.readouterr().out
    assert all(task["name"] in text for task in listed)
    assert f"\n{len(listed)} tasks: " in text


def test_tasks_filters_by_category(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--category", "gemm,attention", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {task["category"] for task in listed} == {"gemm", "attention"}


@pytest.mark.parametrize(
    ("words", "field", "allowed"),
    [
        ("--group linearalgebra,Loss", "group", {"LinearAlgebra", "Loss"}),
        ("--source vllm --source cublas", "source", {"vllm", "cublas"}),
        ("--level 2", "level", {2}),
        ("--complexity 2,3", "complexity", {2, 3}),
    ],
)
def test_tasks_filters_by_what_tasks_are(
    words: str, field: str, allowed: set[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tasks", *words.split(), "--json"]) == 0
    assert {task[field] for task in json.loads(capsys.readouterr().out)} == allowed


def test_tasks_filters_by_where_tasks_are_judged(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--dtype", "fp64,i8", "--direction", "backward", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed
    for task in listed:
        assert {"float64", "int8"} & set(task["dtypes"])
        assert "backward" in task["directions"]


def test_tasks_with_shapes_of_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--real", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert len(listed) >= 400
    assert all(task["real_shapes"] for task in listed)
    assert cli.main(["tasks", "rms_norm"]) == 0
    text = capsys.readouterr().out
    assert "real:llama3_8b.prefill" in text
    assert "https://huggingface.co/meta-llama/Meta-Llama-3-8B" in text


def test_what_a_run_leaves_out_stays_on_stderr(
    run: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*args: Any, on_event: Any, **options: Any) -> str:
        for i in range(3):
            on_event(Event(kind="note", done=0, total=0, text=f"gelu: shape {i} is left out"))
        return "run-1"

    monkeypatch.setattr(pipeline, "run_suite", work)
    assert cli.main(["run", "--shapes", "real"]) == 0
    assert capsys.readouterr().err.splitlines() == [f"note: gelu: shape {i} is left out" for i in range(3)]


def test_tasks_filters_add_up_and_may_leave_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--search", "Softmax_cross entropy", "--category", "fused", "--json"]) == 0
    assert [task["name"] for task in json.loads(capsys.readouterr().out)] == ["softmax_cross_entropy"]
    assert cli.main(["tasks", "--category", "attention", "--group", "Pooling"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert " tasks; leave a filter out: --category" in text
    assert " 0 of " in text


def test_tasks_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "matmul", "--json"]) == 0
    task = json.loads(capsys.readouterr().out)
    dims = task["sample"]["dims"]
    assert task["sample"]["flops"] == 2 * dims["M"] * dims["N"] * dims["K"]
    assert task["sample"]["bytes"] == 4 * (dims["M"] * dims["K"] + dims["K"] * dims["N"] + dims["M"] * dims["N"])
    assert task["relations"]
    assert cli.main(["tasks", "matmul"]) == 0
    text = capsys.readouterr().out
    assert task["summary"] in text
    for word in ("dims", "dtypes", "relations", "cost", "FLOP/B"):
        assert word in text


def test_tasks_shows_the_map_of_a_peer(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "--peer", "kernelbench-x", "--json"]) == 0
    peer = json.loads(capsys.readouterr().out)
    assert (peer["system"], peer["names"]) == ("KernelBench-X", 184)
    row = next(row for row in peer["rows"] if row["name"] == "gelu")
    assert "gelu" in row["tasks"]
    assert cli.main(["tasks", "--peer", "KernelBench-X"]) == 0
    text = capsys.readouterr().out
    assert "KernelBench-X: 184 of 184 mapped" in text
    assert "combined_activation" in text
    assert cli.main(["tasks", "gelu"]) == 0
    assert "KernelBench-X: gelu" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--peer", "KernelBenchY"], "KernelBench"),
        (["gelu", "--peer", "KernelBench"], "gelu and --peer exclude each other"),
        (["--peer", "KernelBench", "--level", "1"], "--peer and --level exclude each other"),
    ],
)
def test_a_peer_that_cannot_be_shown(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", *words]) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert not captured.out


def test_score_explains(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["score", "--explain", "composite"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "S = Speedup_med x (1 - CV_shape) x C_op x P_hw" in text
    assert "n is the number of tasks" in text
    assert "scores/composite.py" in text
    assert cli.main(["score", "--explain", "all", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {"composite", "worth", "shape_gap", "pass_at_k"} <= {one["name"] for one in said}
    assert all(one["definition"] for one in said)
    assert cli.main(["score", "--explain", "compsite"]) == 2
    assert "did you mean composite" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith(f"kerneleval {__version__} (Python ")


def test_no_command_prints_the_help_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    out = capsys.readouterr().out
    for command in ("check", "run", "score", "compare", "audit", "tasks", "selftest", "doctor"):
        assert command in out


@pytest.mark.parametrize(
    "command", ["check", "run", "score", "merge", "differ", "compare", "audit", "tasks", "selftest", "doctor"]
)
def test_every_command_has_help_and_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    assert "--json" in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------------------
# As a process
# --------------------------------------------------------------------------------------------------------------------


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kerneleval", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
        check=False,
    )


def test_as_a_process_the_exit_code_arrives() -> None:
    assert command("--version").returncode == 0
    failed = command("check", "nowhere.py", "--task", "nothing")
    assert failed.returncode == 2
    assert failed.stderr.startswith("error: ")
    assert "Traceback" not in failed.stderr


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_message() -> None:
    line = f"{sys.executable} -m kerneleval tasks --json | head -c 1"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "["
    assert done.stderr == ""


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_in_order(sent: signal.Signals, code: int, tmp_path: Path) -> None:
    left = tmp_path / "left"
    program = f"""
import pathlib, sys, time
from kerneleval import cli, pipeline
def check(*args, **options):
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(60)
    finally:
        pathlib.Path({str(left)!r}).write_text("cleaned up")
pipeline.check_candidate = check
sys.exit(cli.main(["check", "k.py", "--task", "gelu"]))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),  # a background job's shell has it ignored
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(sent)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert left.read_text() == "cleaned up"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_there(shell: str) -> None:
    by_name = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # there may be no shell above this process
    done = command("--show-completion", shell, **by_name)
    if done.returncode:  # versions of Typer that take no name
        done = command("--show-completion", SHELL=f"/bin/{shell}", **by_name)
    assert "_KERNELEVAL_COMPLETE" in done.stdout


# ----------------------------------------------------------------------------------------------------------------------
# Peaks
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "again"), [([], False), (["--measure"], True)])
def test_peaks_are_shown_and_measured_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], again: bool
) -> None:
    peak = {"name": "copy", "unit": "B/s", "best": 2e10, "median": 1.9e10, "n": 7, "how": "so", "why_not": ""}
    asked: list[dict[str, Any]] = []

    def peaks(**options: Any) -> dict[str, Any]:
        asked.append(options)
        return {
            "machine": {"name": "a processor", "arch": "x86_64"},
            "product": "",
            "source": "",
            "unsteady": "",
            "peaks": [peak | {"datasheet": None, "share": None}],
        }

    monkeypatch.setattr(pipeline, "peaks", peaks)
    assert cli.main(["peaks", "--device", "cpu", *words]) == 0
    assert "20.00 GB/s" in capsys.readouterr().out
    assert cli.main(["peaks", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["peaks"][0]["best"] == 2e10
    assert [(one["again"], one["device"]) for one in asked] == [(again, "cpu"), (again, None)]


def test_peaks_of_an_unknown_device_are_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["peaks", "--device", "abacus"]) == 2
    assert "abacus" in capsys.readouterr().err
