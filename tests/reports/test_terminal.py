"""What people see: everything that matters, nothing that a candidate could forge."""

from __future__ import annotations

import dataclasses
import io
import threading

import pytest
from rich.console import Console

from kerneleval.records import (
    SHAPE_CATEGORIES,
    Case,
    CellResult,
    Event,
    Failed,
    Finding,
    Machine,
    Passed,
    Protocol,
    Result,
    Samples,
    SpeedupSummary,
    Timing,
    Trust,
    Verdict,
    from_plain,
    to_plain,
)
from kerneleval.reports import json as documents
from kerneleval.reports.progress import ProgressDisplay, TimeLeft
from kerneleval.reports.scores_view import render_scores
from kerneleval.reports.text import duration, figure, safe, times
from kerneleval.reports.verdict_view import render_verdict
from kerneleval.scores import Setting, score_all
from kerneleval.store import RunInfo

MACHINE = Machine(
    device="cpu", name="Xeon [8 cores]", arch="x86_64", memory_bytes=1, cache_bytes=1, units=8, driver="6", torch="2"
)


def case(i: int, direction="forward", distribution="standard", task="gelu") -> Case:
    return Case(
        task=task,
        direction=direction,
        dims=(("M", 4 + i),),
        dtype="float32",
        distribution=distribution,
        shape_category=SHAPE_CATEGORIES[i % 8],
    )


def timing(speedup: float) -> Timing:
    return Timing(
        samples=Samples(candidate_ns=(2000.0, 2100.0, 2050.0), baseline_ns=(4000.0,) * 3, calls=8),
        speedup=speedup,
        low=speedup - 0.01,
        high=speedup + 0.01,
        noise=0.01,
        claim="faster" if speedup > 1.02 else "slower",
    )


def verdict(cells=(), **changes) -> Verdict:
    values = {
        "verdict": "passed",
        "stage": "timing",
        "reason": "ok",
        "message": "right everywhere",
        "task": "gelu",
        "candidate": "ab" * 32,
        "track": "custom",
        "trust": Trust(level="standard", missing=("netns: not permitted",)),
        "machine": MACHINE,
        "protocol": Protocol(),
        "speedup": SpeedupSummary(value=1.97, low=1.95, high=1.99, claim="faster", cells=8),
        "cells": tuple(cells),
        "replay": "kerneleval check 'my kernels/gelu.py' --task gelu --device cpu --allow custom,mixed,library",
        "seconds": 125.0,
    }
    return Verdict(**{**values, **changes})


def shown(render, value, width=120) -> str:
    out = io.StringIO()
    render(value, Console(file=out, width=width, highlight=False))
    return out.getvalue()


def unframed(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


# ------------------------------------------------------------------------------------------------------------ verdicts


def test_what_was_never_built_has_no_table_of_cases() -> None:
    broken = Failed(stage="build", reason="build_error", message="opencl candidates do not run on device 'cpu'")
    cells = tuple(CellResult(case=case(i), outcome=broken) for i in range(9))
    failed = {"verdict": "failed", "stage": "build", "reason": "build_error", "message": broken.message}
    text = shown(render_verdict, verdict(cells, **failed, speedup=None, track=""))
    assert "do not run on device 'cpu'" in text
    assert "0/1" not in text and "direction" not in text


def test_passed_verdict():
    cells = [CellResult(case=case(i), outcome=Passed(timing=timing(1.9 + i / 100))) for i in range(8)]
    cells += [CellResult(case=case(i, distribution="outlier"), outcome=Passed()) for i in range(8)]
    cells += [CellResult(case=case(i, "backward"), outcome=Passed()) for i in range(3)]
    text = unframed(shown(render_verdict, verdict(cells)))
    for part in (
        "PASSED gelu on Xeon [8 cores]",
        "stage passed all up to timing",
        "message right everywhere",
        "speedup 1.97x [1.95, 1.99] against eager: faster, geometric mean of 8 timed forward cells",
        "track custom",
        "trust standard; without netns: not permitted",
        "judged 19 of 19 cases right; standard tier, 2 min 5 s",
        "forward power_of_two M=8 float32 2/2 2.05 µs 4 µs 1.94x [1.93, 1.95] faster",
        "3 more cases right and not timed",
    ):
        assert part in text


@pytest.mark.parametrize("width", [80, 120])
def test_both_times_of_a_call_are_shown(width: int) -> None:
    call = timing(0.4)
    events = Samples(candidate_ns=(1500.0,) * 4, candidate_event_ns=(1300.0,) * 4, baseline_event_ns=(1600.0,) * 4)
    device = dataclasses.replace(timing(1.23), samples=events, time="device", device_time="accepted", other=call)
    alone = dataclasses.replace(call, no_device_time="the candidate cannot be recorded: it waits")
    cells = [CellResult(case=case(i), outcome=Passed(timing=one)) for i, one in enumerate((device, alone))]
    speed = SpeedupSummary(value=1.2, low=1.1, high=1.3, claim="faster", cells=2, time="mixed")
    text = unframed(shown(render_verdict, verdict(cells, speedup=speed), width))
    assert "1.20x [1.10, 1.30] by device time where there is one against eager: faster" in text
    assert "1.23x [1.22, 1.24] 0.40x" in text, "the call time's speedup stands beside the device time's"
    assert "by call" in text
    if width == 120:
        assert "1.3 µs 1.6 µs 1.23x" in text, "times are those on which the speedup rests"


def test_failed_verdict_names_the_failing_cells_and_the_replay_line():
    wrong = Failed(stage="correctness", reason="wrong_output", message="element [3]: 0.5 instead of 0.7", replay="r")
    cells = [CellResult(case=case(i), outcome=wrong if i else Passed(timing=timing(0.5))) for i in range(8)]
    cells.append(CellResult(case=case(1, "backward"), outcome=Failed(stage="call", reason="unsupported")))
    failed = verdict(
        cells,
        verdict="failed",
        stage="correctness",
        reason="wrong_output",
        message="wrong in 7 of 8 cases",
        speedup=None,
        track="",
        findings=(
            Finding(check="decoy", level="warn", message="no kernel was launched"),
            Finding(check="relations", level="warn", message="rows do not matter"),
            Finding(check="static", level="warn", message="candidate.py:3: reads the environment"),
        ),
    )
    text = shown(render_verdict, failed)
    assert text.splitlines()[-1] == f"replay: {failed.replay}"
    flat = unframed(text)
    for part in (
        "FAILED gelu",
        "stage correctness reason wrong_output (numerical) message wrong in 7 of 8 cases",
        "speedup not timed",
        "track not decided",
        "1 of 9 cases right, 1 declared unsupported",
        "gelu/forward/M=5/float32/contiguous/standard correctness/wrong_output (numerical): element [3]: 0.5 instead",
        "and 2 more failed cases",
        "warn decoy: no kernel was launched",
        "warn relations (numerical): rows do not matter",
        "warn static: candidate.py:3: reads the environment",
        "layers numerical 1/8 right, 1 warning; temporal 1 timed; static 1 warning",
        "backward small M=5 float32 unsupported",
    ):
        assert part in flat


def test_candidate_that_never_ran_is_told_once():
    log = "kernel.cpp:3: error: expected ';'"
    broken = Failed(stage="build", reason="compile_error", message=log)
    cells = [CellResult(case=case(i), outcome=broken) for i in range(48)]
    text = shown(
        render_verdict,
        verdict(cells, verdict="failed", stage="build", reason="compile_error", message=log, speedup=None, track=""),
    )
    assert text.count(log) == 1
    nothing = shown(render_verdict, verdict((), verdict="failed", message="", replay="", speedup=None))
    assert "0 of 0 cases right" in nothing
    assert "replay" not in nothing


def test_narrow_terminal_loses_no_figure_and_does_not_wrap_the_replay_line():
    cells = [CellResult(case=case(i), outcome=Passed(timing=timing(1.9 + i / 100))) for i in range(8)]
    text = shown(render_verdict, verdict(cells), width=80)
    assert "…" not in text
    assert "1.94x [1.93, 1.95]" in text
    assert text.splitlines()[-1] == f"replay: {verdict().replay}"


HOSTILE = "\x1b[2J\x1b[1;1H[bold green]PASSED[/] \x9b31m\u202egnp.\u202c \udcff [/nonsense] \r\x07\x00"


def test_foreign_text_is_shown_and_never_obeyed():
    wrong = Failed(stage="call", reason=HOSTILE, message=HOSTILE + "cell")
    bad = dataclasses.replace(case(0), task=HOSTILE)
    failed = verdict(
        [CellResult(case=bad, outcome=wrong)],
        verdict="failed",
        stage="call",
        reason=HOSTILE,
        message=HOSTILE,
        task=HOSTILE,
        replay=HOSTILE,
        findings=(Finding(check=HOSTILE, level="fail", message=HOSTILE),),
    )
    scores = score_all([result(0, wrong, task=HOSTILE, generator=HOSTILE)])
    for text in (shown(render_verdict, failed, 200), shown(render_scores, {"run": None, "scores": scores}, 400)):
        for char in "\x1b\x9b\u202e\u202c\udcff\r\x07\x00":
            assert char not in text
        assert r"\x1b[2J\x1b[1;1H[bold green]PASSED[/] \x9b31m\u202e" in text
        assert r"\udcff [/nonsense] \x0d\x07\x00" in text


def test_long_text_is_cut():
    assert safe("x" * 3000).endswith("x … (1000 more characters)")


# ------------------------------------------------------------------------------------------------------------ scores


def result(i, outcome, *, task="gelu", generator="g", sample=0, direction="forward", device="cpu", category="gemm"):
    return Result(
        run="r",
        generator=generator,
        sample=sample,
        candidate="c",
        task=task,
        category=category,
        level=1,
        device=device,
        machine=device,
        case=case(i, direction, task=task),
        outcome=outcome,
    )


def suite():
    rows = []
    for task in ("add", "gelu", "sum"):
        for i, name in enumerate(SHAPE_CATEGORIES):
            fragile = 1.8 if name == "power_of_two" else 0.7 if name == "non_power_of_two" else 1.0
            rows.append(result(i, Passed(timing=timing(fragile)), task=task, generator="fragile"))
            rows.append(result(i, Passed(timing=timing(1.2)), task=task, generator="robust"))
            rows.append(
                result(
                    i,
                    Failed(stage="generate", reason="missing"),
                    task=task,
                    generator="fragile",
                    direction="backward",
                )
            )
            rows.append(result(i, Passed(timing=timing(1.2)), task=task, generator="robust", direction="backward"))
    return rows


def run_info(**changes) -> RunInfo:
    values = {
        "id": "20250101-120000-abcdef",
        "name": "archetypes",
        "created_unix_s": 1735732800.0,
        "generators": ("fragile", "robust"),
        "machines": (MACHINE,),
        "protocol": Protocol(),
        "planned": 6,
        "finished": 6,
    }
    return RunInfo(**{**values, **changes})


def document(**changes):
    return {"run": run_info(**changes), "scores": score_all(suite(), Setting(not_evaluated={"cuda": "no such device"}))}


def test_scores_in_the_form_of_table_1():
    text = shown(render_scores, document(), 140)
    lines = text.splitlines()
    assert lines[0] == "archetypes  20250101-120000-abcdef  2025-01-01 12:00 UTC, standard tier, against eager"
    assert lines[1] == "Xeon [8 cores] (cpu, x86_64)"
    head = next(line for line in lines if line.startswith("Generator") and "Shape CV" in line)
    columns = ["Generator", "Speed (median)", "Peak", "Shape CV", "Coverage", "Portability", "S"]
    assert [part.strip() for part in head.split("  ") if part.strip()] == columns
    robust = next(line for line in lines if line.startswith("robust")).split()
    assert robust[1:4] == ["1.20x", "[1.20,", "1.20]"]
    assert robust[10:11] == ["1.00"]
    flat = unframed(text)
    for part in (
        "Portability: not evaluated: cuda (no such device)",
        "fragile: Coverage: 3 not tried",
        "fragile: 2.57x between power_of_two (1.80x) and non_power_of_two (0.70x)",
        "non_power_of_two 0.70x [0.70, 0.70] 3/3 1.20x [1.20, 1.20] 0/6",
        "generate/missing 24 0 add, gelu, sum",
        "Intervals: 95 %.",
    ):
        assert part in flat, part
    assert "pass@k" not in flat
    assert "Speedup by device" not in flat


def test_speeds_and_cvs_are_shown_by_direction_and_together():
    rows = [
        result(i, Passed(timing=timing(speed + i / 100)), direction=direction, device=device)
        for device in ("cpu", "cuda")
        for direction, speed in (("forward", 2.0), ("backward", 0.5))
        for i in range(4)
    ]
    shown_rows = shown(render_scores, {"run": None, "scores": score_all(rows)}, 160).splitlines()
    table = next(i for i, line in enumerate(shown_rows) if line.startswith("By direction"))
    assert "backward is the gradient alone on both sides, or with the forward call on both" in shown_rows[table]
    assert shown_rows[table + 2].split() == ["Generator", *("forward", "backward", "together") * 2]
    values = [part for part in shown_rows[table + 3].split() if not part.endswith(("]", ","))]
    assert values[:4] == ["g", "2.01x", "0.52x", "1.27x"]
    text = unframed("\n".join(shown_rows))
    assert "cuda 1.26x" in text and "cuda/forward 2.01x" in text and "cuda/backward 0.52x" in text


def test_records_and_plain_data_look_the_same():
    assert shown(render_scores, document()) == shown(render_scores, to_plain(document()))
    assert shown(render_scores, document()) == shown(
        render_scores, documents.scores_document(document()["run"], document()["scores"])
    )


def test_narrow_scores_lose_no_figure():
    text = shown(render_scores, document(), 80)
    assert "…" not in text
    assert "1.80–1.80" in text
    assert max(map(len, text.splitlines())) <= 80


def test_unfinished_empty_and_undecided_runs_say_so():
    assert "2 attempts of 6 not judged yet: counted as failed until then" in shown(render_scores, document(finished=4))
    assert "nothing was planned" in shown(render_scores, {"run": None, "scores": {}})
    lonely = score_all([result(0, Passed(timing=timing(1.5)))])
    text = shown(render_scores, {"run": None, "scores": lonely})
    assert "S: no CV_shape: no (task, direction, dtype) has 3 timed shapes" in text
    row = next(line for line in text.splitlines() if line.startswith("g "))
    assert row.split()[-1] == "–"


def test_samples_and_devices_have_tables_of_their_own():
    rows = [result(i, Passed(timing=timing(1.5 - s)), sample=s) for i in range(3) for s in range(2)]
    rows += [result(i, Passed(timing=timing(0.5)), device="cuda", sample=s) for i in range(3) for s in range(2)]
    scores = score_all(rows, Setting(ks=(1, 2)))
    text = unframed(shown(render_scores, {"run": None, "scores": scores}))
    assert "Generator pass@1 fast@1 best@1 pass@2 fast@2 best@2 g 100 % 50 % 1.22x 100 % 100 % 1.50x" in text
    assert "cuda 0.50x" in text


# ------------------------------------------------------------------------------------------------------------ progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_counts_from_where_it_began():
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds(50, 100) is None  # resumed: 50 were done before
    clock.now += 20
    assert left.seconds(60, 100) == pytest.approx(80)
    assert left.seconds(100, 100) == 0
    assert left.seconds(0, 100) is None  # another job
    assert left.seconds(1, 0) is None


def test_plain_lines_without_a_terminal():
    clock, out = Clock(), io.StringIO()
    with ProgressDisplay(Console(file=out, width=60), clock) as show:
        for done in range(7):
            show(Event(kind="run", done=done, total=6, text=f"robust: [task{done}]\x1b[2J" + "y" * 50))
            show(Event(kind="case", done=1, total=8, text="within"))
            clock.now += 4
    lines = out.getvalue().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["run 0/6", "run 3/6", "run 6/6"]
    assert lines[1].startswith(r"run 3/6: robust: [task3]\x1b[2Jyyy")
    assert lines[1].endswith("(12 s left)")
    assert "within" not in out.getvalue()


def test_steps_are_shown_where_there_is_no_outer_count():
    clock, out = Clock(), io.StringIO()
    with ProgressDisplay(Console(file=out), clock) as show:
        show(Event(kind="noise", done=0, total=0, text="measuring the noise floor"))
    assert out.getvalue() == "noise: measuring the noise floor\n"


def test_bars_in_a_terminal_draw_without_a_thread(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")  # in a dumb terminal there are no bars, but lines
    clock, out = Clock(), io.StringIO()
    console = Console(file=out, width=120, force_terminal=True, color_system=None)
    threads = threading.active_count()
    with ProgressDisplay(console, clock) as show:
        for done in range(5):
            show(Event(kind="run", done=done, total=9, text="robust: [gelu]"))
            show(Event(kind="case", done=done, total=8, text="gelu/forward"))
            show(Event(kind="noise", done=0, total=0, text="floor"))
            clock.now += 30
            assert threading.active_count() == threads
    text = out.getvalue()
    assert "4/9" in text
    assert "2 min 30 s left" in text
    assert "robust: [gelu]" in text


def test_a_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    clock, out = Clock(), io.StringIO()
    with ProgressDisplay(Console(file=out, width=120, force_terminal=True), clock) as show:
        show(Event(kind="run", done=1, total=9, text="robust: gelu"))
    assert "robust: gelu" in out.getvalue()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.2345, "1.23"), (0.0123, "0.012"), (0, "0.00"), (123.4, "123.4"), (4567.8, "4568"), (float("nan"), "–")],
)
def test_figures(value, text):
    assert figure(value) == text


def test_durations():
    assert [duration(s) for s in (0.2, 59.4, 61, 3600, 7384)] == ["0 s", "59 s", "1 min 1 s", "1 h 0 min", "2 h 3 min"]
    assert [times(ns) for ns in (12.34, 1234, 5e6, 2.5e9)] == ["12.3 ns", "1.23 µs", "5 ms", "2.5 s"]


# ------------------------------------------------------------------------------------------------------------ JSON


def test_documents_are_strict_json_and_come_back():
    import json

    judged = verdict(
        [
            CellResult(case=case(0), outcome=Passed(timing=timing(1.5), evidence={"error": float("nan")})),
            CellResult(case=case(1), outcome=Failed(stage="call", reason="crash", message="\udcff\x00")),
        ]
    )
    plain = json.loads(documents.dumps(documents.verdict_document(judged)))
    assert plain.pop("format") == documents.VERDICT_FORMAT
    assert (plain.pop("layer"), plain.pop("layers")["sandbox"]) == ("", "1 case failed")
    assert [c.pop("layer", None) for c in plain["cells"]] == [None, "sandbox"]
    back = from_plain(Verdict, plain)
    assert back.cells[0].outcome.timing == judged.cells[0].outcome.timing
    assert back.cells[1] == judged.cells[1]
    for field in ("verdict", "stage", "reason", "message", "track", "trust", "speedup", "cells", "replay"):
        assert field in plain
    assert set(plain["speedup"]) >= {"value", "low", "high", "claim"}
    short = documents.verdict_document(judged, samples=False)
    assert short["cells"][0]["outcome"]["timing"]["samples"] == {
        "calls": 8,
        "empty_ns": 0.0,
        "empty_spread_ns": 0.0,
        "cache": "cold",
        "unclocked_ns": 0.0,
    }
    found = json.loads(documents.dumps(documents.scores_document(run_info(), document()["scores"])))
    assert found["scores"]["robust"]["composite"]["value"] == pytest.approx(1.2)
    assert found["definitions"]["composite"].startswith("S = Speedup_med")
    assert found["run"]["name"] == "archetypes"
