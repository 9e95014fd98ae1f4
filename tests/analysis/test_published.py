"""Results that others published: what is read, what is refused, and what scores make of it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kerneleval import cli, pipeline
from kerneleval.analysis import published
from kerneleval.analysis import transitions as between
from kerneleval.analysis.formats import kernelbench, kernelbenchx
from kerneleval.analysis.formats.kernelbench import Sample, Time, failure, speedup
from kerneleval.pipeline.audit import audit
from kerneleval.records import AuditSpec, Failed, Outcome, Passed, Result, UsageError, from_plain, to_plain
from kerneleval.scores import Setting, score_all
from kerneleval.store import NewRun, open_store

GPU = "NVIDIA L40S"
NAMES = {1: "1_Square_matrix_multiplication_", 19: "19_ReLU", 23: "23_Softmax", 40: "40_LayerNorm"}


def stats(mean: float, std: float = 0.0, trials: int = 100, hardware: str = GPU) -> dict[str, Any]:
    return {"mean": mean, "std": std, "min": mean, "max": mean, "num_trials": trials, "hardware": hardware}


def right(sample: int, mean: float, **more: Any) -> dict[str, Any]:
    return {
        "sample_id": sample,
        "compiled": True,
        "correctness": True,
        "metadata": {"hardware": GPU, "correctness_trials": "(5 / 5)"},
        "runtime": mean,
        "runtime_stats": stats(mean),
        **more,
    }


def wrong(sample: int, compiled: bool = True, **metadata: Any) -> dict[str, Any]:
    return {
        "sample_id": sample,
        "compiled": compiled,
        "correctness": False,
        "metadata": {"hardware": GPU, **metadata},
        "runtime": -1.0,
        "runtime_stats": {},
    }


# Speedups: problem 1: 2 and wrong, 19: 0.5 and 0.5, 23: wrong twice, 40: no result at all.
RESULTS: dict[str, Any] = {
    "1": [right(0, 2.0), wrong(1, compilation_error="error: \x1b[31m<b>no</b>", compiled=False)],
    "19": [right(0, 8.0), right(1, 8.0)],
    "23": [wrong(0, correctness_issue="Output mismatch"), wrong(1, runtime_error="CUDA error: illegal memory access")],
}
BASELINE = {"level1": {f"{name}.py": stats(4.0) for name in NAMES.values()}, "level2": {"1_Other.py": stats(1.0)}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], Path]:
    def write(name: str, content: Any) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    return write


@pytest.fixture
def files(write: Callable[[str, Any], Path]) -> tuple[Path, Path]:
    return write("my_model/eval_results.json", RESULTS), write("baseline_time_torch.json", BASELINE)


def stored(url: str, found: published.Published) -> list[Result]:
    with open_store(url) as store:
        run, written = published.put(store, found)
        assert written
        return list(store.results(run))


# --------------------------------------------------------------------------------------------------------------------
# KernelBench
# --------------------------------------------------------------------------------------------------------------------


def test_scores_are_those_worked_out_by_hand(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = published.load(files[0], baseline=files[1], level=1)
    assert found.counts == {"problems": 4, "samples": 6, "passed": 3, "timed": 3, "missing": 2, "sources": 0}
    results = stored(str(tmp_path / "s.db"), found)
    scores = score_all(results, Setting(ks=(1, 2)))["my_model"]
    # 1: half of its samples, 19: all, 23 and 40: none
    assert scores["fast_p"]["0"].value == pytest.approx((0.5 + 1) / 4)
    assert scores["fast_p"]["0.5"].value == pytest.approx(0.5 / 4)  # strictly: 0.5x is not faster than 0.5
    assert scores["fast_p"]["1"].value == pytest.approx(0.5 / 4)
    assert scores["fast_p"]["2"].value == 0
    assert scores["fast_p"]["0"].n == 4
    assert scores["pass_at_k"]["1"].value == pytest.approx(1.5 / 4)
    assert scores["pass_at_k"]["2"].value == pytest.approx(2 / 4)
    assert scores["fast_p_at_k"]["2"].value == pytest.approx(1 / 4)
    assert scores["geometric_mean"].value == pytest.approx(1.0)  # sqrt(2 * 0.5)
    assert set(scores["failures"]) == {
        *("build/build_error", "call/device_error", "correctness/wrong_output", "generate/missing"),
    }
    assert scores["regressions"]["all"].value == 0  # nothing is claimed of published times


def test_names_categories_and_levels_are_those_of_the_map(files: tuple[Path, Path]) -> None:
    with_baseline = published.load(files[0], baseline=files[1], level=1)
    without = published.load(files[0], level=1)
    seen = {p.task: (p.category, p.group, p.level) for p in with_baseline.planned}
    assert seen["KernelBench/level1/1_Square_matrix_multiplication_"] == ("gemm", "MatrixMultiply", 1)
    assert seen["KernelBench/level1/40_LayerNorm"][0] == "normalization"
    assert {p.task for p in without.planned} == set(seen) - {"KernelBench/level1/40_LayerNorm"}
    assert without.counts["timed"] == 0 and without.counts["passed"] == 3
    deeper = published.load(files[0], level=3).planned[0]
    assert (deeper.task, deeper.category) == ("KernelBench/level3/1", "fused")


def test_nothing_pretends_to_have_been_judged(files: tuple[Path, Path]) -> None:
    found = published.load(files[0], baseline=files[1], level=1)
    assert found.machine.device == "published" and found.machine.name == GPU
    for verdict in found.verdicts:
        assert verdict.trust.level == "weak" and not verdict.trust.layers and not verdict.track
        assert verdict.findings[0].level == "warn" and "not judged here" in verdict.findings[0].message
        assert verdict.speedup is None or verdict.speedup.claim == "inconclusive"
        for cell in verdict.cells:
            assert from_plain(Outcome, json.loads(json.dumps(to_plain(cell.outcome)))) == cell.outcome
            if isinstance(cell.outcome, Passed) and cell.outcome.timing is not None:
                assert cell.outcome.timing.claim == "inconclusive" and not cell.outcome.timing.samples.candidate_ns
    message = next(v.message for v in found.verdicts if v.reason == "build_error")
    assert "\x1b" not in message and "\\u001b" in message


def test_a_second_import_adds_nothing_and_an_interrupted_one_goes_on(files: tuple[Path, Path], tmp_path: Path) -> None:
    found = published.load(files[0], baseline=files[1], level=1)
    with open_store(str(tmp_path / "s.db")) as store:
        first, written = published.put(store, found)
        assert written and published.put(store, found) == (first, False)
        later = dataclasses.replace(found, protocol=dataclasses.replace(found.protocol, version=99))
        assert published.put(store, later) == (first, False)
        assert len(store.runs()) == 1
        of = published.load(files[0], level=1)  # without a baseline it is another thing
        second = store.begin_run(
            NewRun(
                name=of.name,
                generators=tuple(of.generators),
                machines=(of.machine,),
                protocol=of.protocol,
                plan=tuple(of.planned),
            )
        )
        assert published.put(store, of) == (second, True)
        assert store.run(second).complete
        assert {r.outcome.timing.speedup for r in store.results(first) if _timed(r)} == {2.0, 0.5}
        assert not any(_timed(r) for r in store.results(second))


def _timed(result: Result) -> bool:
    return isinstance(result.outcome, Passed) and result.outcome.timing is not None


def test_solutions_are_the_candidates(files: tuple[Path, Path], tmp_path: Path, write: Callable[..., Path]) -> None:
    code = "import torch\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    for sample in (0, 1):
        write(f"kernels/level_1_problem_19_sample_{sample}_kernel.py", code)
    found = published.load(files[0], baseline=files[1], level=1, solutions=tmp_path / "kernels")
    assert found.counts["sources"] == 2
    hashes = [p.candidate.hash for p in found.planned if p.candidate is not None]
    assert len(set(hashes)) == 6  # equal sources are published twice, and stay two
    with open_store(str(tmp_path / "s.db")) as store:
        run, _ = published.put(store, found)
        by = {(a.task, a.sample): a.candidate for a in store.attempts(run)}
        assert store.candidate(by["KernelBench/level1/19_ReLU", 1]).main == code
        other = store.candidate(by["KernelBench/level1/1_Square_matrix_multiplication_", 0]).main
        assert other.startswith("#") and "problem 1, sample 0" in other and len(other.splitlines()) == 1
    with pytest.raises(UsageError, match="no file level_2_problem"):
        published.load(files[0], level=2, solutions=tmp_path / "kernels")


def test_the_older_form_and_times_of_the_reference_beside_it(write: Callable[..., Path]) -> None:
    entry = right(0, 2.0, ref_runtime=3.0, ref_runtime_stats=stats(3.0))
    del entry["sample_id"]
    found = published.load(write("old.json", {"7": entry}), level=1)
    assert found.name == "old" and found.planned[0].sample == 0
    assert found.verdicts[0].speedup is not None
    assert found.verdicts[0].speedup.value == pytest.approx(1.5)


def test_the_interval_is_the_delta_methods_with_what_rounding_hides() -> None:
    ratio, low, high = speedup(
        Time(mean_ms=2.0001, std_ms=0.02, trials=101), Time(mean_ms=4.0003, std_ms=0.08, trials=101)
    ) or (0, 0, 0)
    error = math.hypot(0.02 / 2.0001, 0.08 / 4.0003) / 10
    assert ratio == pytest.approx(4.0003 / 2.0001)
    assert math.log(high / ratio) == pytest.approx(1.98397 * error, rel=1e-4)  # t of 100 degrees of freedom
    assert low * high == pytest.approx(ratio**2)
    rounded = speedup(Time(mean_ms=1.0, std_ms=0.0, trials=100), Time(mean_ms=2.0, std_ms=0.0, trials=100))
    assert rounded is not None and math.log(rounded[2] / 2) == pytest.approx(0.005 + 0.0025)
    assert speedup(Time(mean_ms=1.0), Time(mean_ms=2.0, std_ms=0.1, trials=100)) == (2.0, 0.0, math.inf)
    assert speedup(Time(mean_ms=1e-300), Time(mean_ms=1e300)) is None


@pytest.mark.parametrize("runtime", ["NaN", "Infinity", "-Infinity", "-1.0", "0", "null"])
def test_a_time_that_is_none_leaves_a_correct_sample_untimed(
    runtime: str, files: tuple[Path, Path], write: Callable[..., Path]
) -> None:
    text = json.dumps({"1": [right(0, 1.0, runtime="HERE")]}).replace('"HERE"', runtime)
    found = published.load(write("e.json", text), baseline=files[1], level=1)
    assert found.verdicts[0].verdict == "passed" and found.verdicts[0].stage == "correctness"
    assert found.counts["timed"] == 0 and any("without a speedup: 1" in one for one in found.remarks)


@pytest.mark.parametrize(
    ("compiled", "metadata", "expected"),
    [
        (False, {}, ("build", "build_error")),
        (False, {"compilation_error": "x"}, ("build", "build_error")),
        (False, {"cuda_error": "CUDA Error: x"}, ("call", "device_error")),
        (False, {"error": "Evaluation timed out"}, ("call", "timeout")),
        (True, {"runtime_error": "boom"}, ("call", "exception")),
        (True, {"runtime_error_name": "RuntimeError"}, ("call", "exception")),
        (True, {"correctness_issue": "Output shape mismatch: Expected 1, got 2"}, ("correctness", "wrong_shape")),
        (True, {"correctness_issue": "Output mismatch"}, ("correctness", "wrong_output")),
        (True, None, ("correctness", "wrong_output")),
        (True, {"runtime_error": {"nested": ["x"]}}, ("correctness", "wrong_output")),
    ],
)
def test_failures_have_stage_and_reason(compiled: bool, metadata: Any, expected: tuple[str, str]) -> None:
    sample = Sample(
        problem=1,
        sample=0,
        compiled=compiled,
        correct=False,
        metadata=metadata,
        time=None,
        reference=None,
        hardware="",
    )
    stage, reason, message = failure(sample)
    assert (stage, reason) == expected and message


def test_correct_without_compiling_counts_as_wrong(write: Callable[..., Path]) -> None:
    found = published.load(write("e.json", {"1": [right(0, 1.0, compiled=False)]}), level=1)
    assert found.verdicts[0].verdict == "failed"


def test_hostile_metadata_are_cut_and_stored(write: Callable[..., Path], tmp_path: Path) -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = [deep]
    metadata = {"runtime_error": "\x00\ud800<script>" + "x" * 10**6, "deep": deep, "huge": 10**300, "many": [0] * 10**5}
    found = published.load(write("e.json", {"1": [wrong(0, **metadata, nan=math.nan)]}), level=1)
    results = stored(str(tmp_path / "s.db"), found)
    outcome = results[0].outcome
    assert isinstance(outcome, Failed) and len(outcome.message) < 600 and "\x00" not in outcome.message
    assert len(json.dumps(to_plain(outcome))) < 30_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not an object"),
        ("{}", "holds no sample"),
        ('{"1": [], "1": []}', "comes twice"),
        ({"averages": {}}, "'averages' is no number"),
        ({"1": 3}, "problem 1: expected a list"),
        ({"1": [3]}, "problem 1, entry 0: a sample is an object"),
        ({"1": [{"compiled": 1, "correctness": True}]}, "compiled must be true or false, got 1"),
        ({"1": [{"compiled": True}]}, "correctness must be true or false"),
        ({"1": [right("0", 1.0)]}, "sample_id must be a whole number"),  # type: ignore[arg-type]
        ({"1": [right(0, 1.0), right(0, 2.0)]}, "sample 0 is there twice"),
        ({"1": [right(0, "fast")]}, "runtime must be a number, got 'fast'"),  # type: ignore[arg-type]
        ({"1": [right(0, 1.0, runtime_stats=[])]}, "runtime_stats must be an object"),
        ({"1": [right(0, 1.0, runtime_stats={"num_trials": -1})]}, "num_trials must be"),
    ],
)
def test_what_is_no_such_file_is_refused(content: Any, message: str, write: Callable[..., Path]) -> None:
    path = write("e.json", content)
    with pytest.raises(UsageError, match=message) as caught:
        published.load(path, level=1)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "level", "message"),
    [
        (BASELINE, None, "holds the levels 1, 2; say with --level"),
        (BASELINE, 3, "has no level 3; it holds 1, 2"),
        ({"one": {}}, 1, "'one' is no level"),
        ({"level1": []}, 1, "expected an object"),
        ({"level1": {"x.py": stats(1.0)}}, 1, "NUMBER_NAME.py"),
        ({"level1": {"1_../x.py": stats(1.0)}}, 1, "NUMBER_NAME.py"),
        ({"level1": {"1_a.py": stats(1.0), "1_b.py": stats(1.0)}}, 1, "problem 1 is '1_a' as well"),
        ({"level1": {"1_a.py": {"mean": "x"}}}, 1, "mean must be a number"),
        ({"level1": {"1_a.py": stats(1.0, hardware="NVIDIA H100")}}, 1, "is no speedup; give the baseline"),
    ],
)
def test_what_is_no_such_baseline_is_refused(
    content: Any, level: int | None, message: str, files: tuple[Path, Path], write: Callable[..., Path]
) -> None:
    with pytest.raises(UsageError, match=message):
        published.load(files[0], baseline=write("b.json", content), level=level)


def test_options_that_cannot_be_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean kernelbench"):
        published.load(files[0], file_format="kernelbenhc", level=1)
    with pytest.raises(UsageError, match="does not say which level"):
        published.load(files[0])
    with pytest.raises(UsageError, match="the results state 'NVIDIA L40S'"):
        published.load(files[0], level=1, hardware="NVIDIA H100")
    with pytest.raises(UsageError, match="no such folder"):
        published.load(files[0], level=1, solutions=tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no such file"):
        published.load(tmp_path / "nothing.json", level=1)
    with pytest.raises(UsageError, match="--level is for the format kernelbench"):
        published.load(files[0], file_format="kernelbenchx", level=1)


def test_samples_of_other_hardware_are_not_timed(files: tuple[Path, Path], write: Callable[..., Path]) -> None:
    other = right(1, 1.0, metadata={"hardware": "NVIDIA T4"}, runtime_stats=stats(1.0, hardware="NVIDIA T4"))
    path = write("e.json", {"1": [right(0, 2.0), right(2, 2.0), other]})
    found = published.load(path, baseline=files[1], level=1)
    assert found.machine.name == GPU
    assert [v.speedup is not None for v in found.verdicts[:3]] == [True, False, True]  # in the order of the samples
    assert any("other hardware" in one for one in found.remarks)


def test_reading_alone_keeps_all_that_scores_need(files: tuple[Path, Path]) -> None:
    samples = kernelbench.read(files[0])
    assert [(s.problem, s.sample, s.passed) for s in samples] == [
        *((1, 0, True), (1, 1, False), (19, 0, True), (19, 1, True), (23, 0, False), (23, 1, False)),
    ]
    assert samples[0].time == Time(mean_ms=2.0, std_ms=0.0, trials=100, hardware=GPU)


# --------------------------------------------------------------------------------------------------------------------
# KernelBench-X, and the whole way
# --------------------------------------------------------------------------------------------------------------------


def line(task: str, first: int, before: dict[str, Any], later: dict[str, Any], codes: tuple[str, str]) -> str:
    plain = {
        "task_id": task,
        "from_round": f"round_{first}",
        "to_round": f"round_{first + 1}",
        "kind": "speedup_increase",
        "before": before,
        "after": later,
        "before_code": codes[0],
        "after_code": codes[1],
    }
    return json.dumps(plain)


def state(speed: float | None, called: bool = True) -> dict[str, Any]:
    return {"call_ok": called, "exe_ok": speed is not None, "speedup": speed, "error": "E"}


A, B = "def f(x):\n    return x + 1\n", "def f(x):\n    return 1 + x * 1\n"
CORPUS = "\n".join(
    (
        line("Activation/gelu_bf16.py", 0, state(None, called=False), state(1.5), (A, B)),
        line("Activation/gelu_bf16.py", 1, state(1.5), state(1.51), (B, B)),
        line("Broadcast/unheard_of.py", 0, state(2.0), state(None), (A, B)),
    )
)


def test_a_corpus_keeps_its_chains_and_transitions(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write("c.jsonl", CORPUS)
    found = published.load(path, file_format="kernelbenchx")
    assert found.counts["samples"] == 5 and found.counts["passed"] == 3 and found.counts["timed"] == 3
    of_gelu = [p for p in found.planned if "gelu" in p.task]
    assert [(p.sample, p.category, p.group, p.cases[0].dtype) for p in of_gelu] == [
        (number, "elementwise", "Activation", "bfloat16") for number in (0, 1, 2)
    ]
    assert {p.category for p in found.planned if "unheard" in p.task} == {"unknown"}
    with open_store(str(tmp_path / "s.db")) as store:
        run, _ = published.put(store, found)
        sources = {a.candidate: store.candidate(a.candidate) for a in store.attempts(run)}
        chains = between.steps_of_run(store.verdicts(run), sources)
    as_read = between.transitions([[r.before, r.after] for r in kernelbenchx.read(path)])
    as_stored = between.transitions(chains)
    assert [(t.correct, t.speed) for t in as_stored] == [(t.correct, t.speed) for t in as_read]
    assert sorted(t.speed for t in as_stored) == ["newly_timed", "no_longer_timed", "same_code"]


def test_a_corpus_that_contradicts_itself_is_refused(write: Callable[..., Path]) -> None:
    twice = line("t.py", 0, state(1.0), state(1.0), (A, B)) + "\n" + line("t.py", 0, state(1.0), state(2.0), (A, B))
    with pytest.raises(UsageError, match=r"task 't\.py', round 1 is there twice and differs"):
        published.load(write("c.jsonl", twice), file_format="kernelbenchx")


def test_it_is_reported_analysed_and_exported(files: tuple[Path, Path], tmp_path: Path) -> None:
    for needed in ("jinja2", "plotly", "pandas", "radon", "lizard"):
        pytest.importorskip(needed)
    url = str(tmp_path / "s.db")
    stored(url, published.load(files[0], baseline=files[1], level=1))
    pipeline.report(store_url=url, html_to=tmp_path / "r.html", markdown_to=tmp_path / "r.md")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert published.NOT_JUDGED in page and "<b>no</b>" not in page
    analysed = pipeline.analyse(store_url=url)
    assert analysed
    pipeline.export(tmp_path / "tables", store_url=url, file_format="jsonl")
    rows = [json.loads(row) for row in (tmp_path / "tables" / "cells.jsonl").read_text().splitlines()]
    assert len(rows) == 8 and sorted(row["speedup"] for row in rows if row["speedup"]) == [0.5, 0.5, 2.0]
    assert pipeline.score(store_url=url)["scores"]["my_model"]["geometric_mean"]["value"] == pytest.approx(1.0)


def test_the_command_tells_what_came_in(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = str(tmp_path / "s.db")
    arguments = ["import", str(files[0]), "--baseline", str(files[1]), "--level", "1", "--store", url]
    assert cli.main(arguments) == 0
    out = capsys.readouterr().out
    assert out.startswith("my_model  ")
    assert "samples" in out
    assert cli.main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == 0
    assert cli.main(["score", "my_model", "--store", url]) == 0
    assert "published" in capsys.readouterr().out
    assert cli.main([*arguments[:2], "--format", "nonsense", "--store", url]) == 2
    assert "nonsense" in capsys.readouterr().err


def test_an_import_is_neither_audited_nor_has_it_a_cost_of_judging(files: tuple[Path, Path], tmp_path: Path) -> None:
    url = str(tmp_path / "s.db")
    stored(url, published.load(files[0], baseline=files[1], level=1))
    with pytest.raises(UsageError, match="was imported, not judged here"):
        audit(AuditSpec(store_url=url))
    assert not any(key.startswith("judging") for key in pipeline.score(url)["scores"]["my_model"]["cost"])
