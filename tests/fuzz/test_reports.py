"""Reports over text that rewrites terminals: Rich markup, escape sequences, direction marks, line breaks, no cells,
wide and narrow terminals, and figures that are none.

What is printed holds no character that a terminal obeys but what Rich itself writes for its own styles, shows markup
as text, and keeps its frame; JSON is strict whatever is in it.
"""

from __future__ import annotations

import dataclasses
import io
import json
import math
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from tests.fuzz.hostile import CONTROL, NASTY, effort, json_values, texts

from kerneleval.devices import Capabilities
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
    to_plain,
)
from kerneleval.reports import json as documents
from kerneleval.reports import tasks_view
from kerneleval.reports.machine_view import render_doctor
from kerneleval.reports.progress import ProgressDisplay
from kerneleval.reports.scores_view import render_scores
from kerneleval.reports.tasks import describe, summarise
from kerneleval.reports.text import safe
from kerneleval.reports.verdict_view import render_verdict
from kerneleval.scores import Setting, score_all
from kerneleval.store import RunInfo
from kerneleval.tasks import find

STYLE = re.compile(r"\x1b\[[0-9;]*m|\x1b\]8;[^\x1b]*\x1b\\")
"""What Rich writes for its own styles."""

WIDTHS = st.sampled_from([1, 20, 40, 80, 200])


def machine(text: str) -> Machine:
    return Machine(
        device=text, name=text, arch=text, memory_bytes=1, cache_bytes=1, units=1, driver=text, torch=text, host=text
    )


def case(text: str, number: int) -> Case:
    shape = SHAPE_CATEGORIES[number % 8]
    return Case(task=text, direction="forward", dims=((text, number),), dtype="float32", shape_category=shape)


FIGURES = st.one_of(st.floats(), st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e300, math.nan, math.inf]))
TIMINGS = st.builds(
    lambda ns, a, b, c, text: Timing(
        samples=Samples(candidate_ns=tuple(ns), baseline_ns=tuple(ns)),
        speedup=a,
        low=b,
        high=c,
        noise=c,
        claim="equal",
        device_time=text,
    ),
    st.lists(FIGURES, max_size=3),
    FIGURES,
    FIGURES,
    FIGURES,
    texts(),
)
OUTCOMES = st.one_of(
    st.builds(
        lambda reason, message, replay: Failed(stage="call", reason=reason, message=message, replay=replay),
        st.one_of(st.sampled_from(["unsupported", "exception"]), texts()),
        texts(),
        texts(),
    ),
    st.builds(lambda timing: Passed(timing=timing), st.one_of(st.none(), TIMINGS)),
)
FINDINGS = st.builds(
    lambda check, level, message, evidence: Finding(check=check, level=level, message=message, evidence=evidence),
    texts(),
    st.sampled_from(["info", "warn", "fail"]),
    texts(),
    st.dictionaries(texts(12), json_values(), max_size=5),
)
SPEEDUPS = st.one_of(
    st.none(),
    st.builds(
        lambda v, low, high, claim: SpeedupSummary(value=v, low=low, high=high, claim=claim, cells=3),
        FIGURES,
        FIGURES,
        FIGURES,
        st.sampled_from(["faster", "slower", "equal", "inconclusive"]),
    ),
)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    text, outcomes = draw(texts()), draw(st.lists(OUTCOMES, max_size=6))
    return Verdict(
        verdict=draw(st.sampled_from(["passed", "failed"])),
        stage=draw(st.one_of(st.just("call"), texts())),
        reason=draw(texts()),
        message=draw(texts(2500)),
        task=text,
        candidate=text,
        track=draw(texts()),
        trust=Trust(level=draw(texts()), layers=(text,), missing=(text, draw(texts()))),
        machine=machine(text),
        protocol=Protocol(),
        speedup=draw(SPEEDUPS),
        cells=tuple(CellResult(case=case(text, i), outcome=outcome) for i, outcome in enumerate(outcomes)),
        findings=tuple(draw(st.lists(FINDINGS, max_size=3))),
        replay=draw(texts()),
        seconds=draw(st.floats(0, 1e7)),
    )


def printed(render: Any, value: Any, width: int = 120, *, colour: bool = False) -> str:
    """What reaches the terminal, without the styles that Rich writes."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, highlight=False, force_terminal=colour, color_system="truecolor" if colour else None
    )
    render(value, console)
    return STYLE.sub("", out.getvalue()) if colour else out.getvalue()


@pytest.mark.slow
@given(verdict=verdicts(), width=WIDTHS, colour=st.booleans())
@effort(30)
def test_a_verdict_does_nothing_to_a_terminal(verdict: Verdict, width: int, colour: bool) -> None:
    text = printed(render_verdict, verdict, width, colour=colour)
    assert not CONTROL & set(text)
    text.encode()
    assert len(text) < 2_000_000


@given(
    document=st.dictionaries(texts(12), st.one_of(json_values(), texts()), max_size=5),
    indent=st.sampled_from([None, 2]),
)
@example({"\x9b\ud800\u202e\x7f\u2028": ["\x1b\udfff", float("nan"), float("-inf")]}, None)
@effort(120)
def test_json_is_strict_and_does_nothing_to_a_terminal(document: dict[str, Any], indent: int | None) -> None:
    plain = to_plain(document)
    text = documents.dumps(plain, indent=indent)
    text.encode()
    assert not CONTROL & set(text)
    assert json.loads(text, parse_constant=pytest.fail) == plain


@pytest.mark.parametrize("text", NASTY)
def test_markup_is_shown_as_text(text: str) -> None:
    """Wherever a text of somebody else's is printed, all of it is there, in the order of its characters."""
    failed = Failed(stage="call", reason=text, message=text)
    verdict = Verdict(
        verdict="failed",
        stage=text,
        reason=text,
        message=text,
        task=text,
        candidate=text,
        track=text,
        trust=Trust(level=text, missing=(text,)),
        machine=machine(text),
        protocol=Protocol(),
        speedup=None,
        cells=(CellResult(case=case(text, 1), outcome=failed),),
        findings=(Finding(check=text, level="fail", message=text),),
        replay=text,
    )
    shown = printed(render_verdict, verdict, 20_000)
    wanted = safe(text).split("\n")[0].replace("\t", " ")[:100].strip()
    assert shown.count(wanted) >= 8 or not wanted
    assert not CONTROL & set(shown)


RESULTS = st.lists(
    st.builds(
        lambda generator, task, category, device, number, outcome: Result(
            run="r",
            generator=generator,
            sample=0,
            candidate="c",
            task=task,
            category=category,
            level=1,
            device=device,
            machine=device,
            case=case(task, number),
            outcome=outcome,
        ),
        texts(20),
        texts(20),
        texts(20),
        texts(20),
        st.integers(0, 7),
        st.one_of(
            st.builds(lambda reason: Failed(stage="call", reason=reason), texts()),
            st.builds(
                lambda speedup: Passed(
                    timing=Timing(
                        samples=Samples(), speedup=speedup, low=speedup, high=speedup, noise=0.01, claim="equal"
                    )
                ),
                st.floats(1e-6, 1e6),
            ),
        ),
    ),
    max_size=6,
)


@pytest.mark.slow
@given(results=RESULTS, name=texts(), width=WIDTHS, colour=st.booleans(), missing=st.dictionaries(texts(), texts()))
@effort(20)
def test_scores_do_nothing_to_a_terminal(
    results: list[Result], name: str, width: int, colour: bool, missing: dict[str, str]
) -> None:
    results = [dataclasses.replace(one, sample=number) for number, one in enumerate(results)]
    scores = score_all(results, Setting(not_evaluated=missing))
    run = RunInfo(
        id=name,
        name=name,
        created_unix_s=0.0,
        generators=(name,),
        machines=(machine(name),),
        protocol=Protocol(),
        planned=3,
        finished=0,
        not_evaluated=missing,
    )
    document = {"run": run, "scores": scores}
    text = printed(render_scores, document, width, colour=colour)
    assert not CONTROL & set(text)
    text.encode()
    strict = documents.dumps(documents.scores_document(run, scores))
    assert not CONTROL & set(strict)
    assert json.loads(strict, parse_constant=pytest.fail)


@pytest.mark.slow
@given(text=texts(), width=WIDTHS)
@effort(30)
def test_tasks_and_doctor_do_nothing_to_a_terminal(text: str, width: int) -> None:
    finding = {"test": text, "case": text, "message": text}
    tested = [{"task": text, "passed": False, "cases": 1, "seconds": 1.0, "findings": [finding]}]
    listed = [
        summarise(find("gelu"))
        | {
            "name": text,
            "category": text,
            "group": text,
            "source": text,
            "summary": text,
            "dims": [text],
            "dtypes": [text],
        }
    ]
    described = _with_text(describe(find("linear_w4a16")), text)
    for render, value in (
        (tasks_view.render_selftest, tested),
        (tasks_view.render_tasks, listed),
        (tasks_view.render_task, described),
        (render_doctor, _found(text)),
    ):
        shown = printed(render, value, width)
        assert not CONTROL & set(shown), render
        shown.encode()


def _with_text(value: Any, text: str) -> Any:
    """The same with the text for every text."""
    if isinstance(value, dict):
        return {name: _with_text(part, text) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_text(part, text) for part in value]
    return text if isinstance(value, str) else value


def _found(text: str) -> dict[str, Any]:
    sandbox = {"level": text, "layers": [text], "missing": [text], "error": text, "fork_s": 0.1, "zygote_start_s": 1.0}
    language = {"name": text, "suffixes": [text], "missing": text, "not_judged": [text]}
    device = {
        "name": text,
        "available": True,
        "reason": text,
        "on_hardware": False,
        "capabilities": dataclasses.asdict(Capabilities(sharing="staged")),
        "machine": to_plain(machine(text)) | {"fingerprint": text},
        "memory_budget_bytes": 1,
        "case_budget_bytes": 1,
        "case_budget_flops": 1,
        "conditions": {text: text},
        "languages": [language],
        "sandbox": sandbox,
    }
    return {
        "usable": False,
        "versions": {text: text},
        "clock": {
            "resolution_ns": 1,
            "spin_ns": 1.0,
            "spread": 0.1,
            "p99_over_median": 1.0,
            "stalls": 0.0,
            "calm": False,
        },
        "memory": {
            "host_bytes": 1,
            "limit_bytes": 1,
            "cores": 1,
            "load_1min": 0.0,
            "temporary_dir": text,
            "temporary_free_bytes": 1,
            "cache_dir": text,
            "cache_free_bytes": 1,
        },
        "compilers": [{"name": text, "path": text, "version": text, "error": text}],
        "devices": [device, device | {"available": False}],
        "store": {"place": text, "reachable": False, "runs": 0, "message": text},
        "advice": [text],
    }


@given(events=st.lists(st.tuples(st.sampled_from(["run", "case"]), st.integers(0, 5), texts()), max_size=6))
@effort(30)
def test_progress_does_nothing_to_a_terminal(events: list[tuple[str, int, str]]) -> None:
    for terminal in (False, True):
        out = io.StringIO()
        console = Console(file=out, width=80, force_terminal=terminal, color_system=None)
        with ProgressDisplay(console, clock=iter(range(0, 10_000, 50)).__next__) as show:
            for kind, done, text in events:
                show(Event(kind=kind, done=done, total=5, text=text))
        # Rich moves the cursor itself: up, to the start of a line, and hides it
        moved = re.sub(r"\x1b\[[0-9?;]*[A-Za-z]|\r", "", out.getvalue()) if terminal else out.getvalue()
        assert not CONTROL & set(moved)
        assert terminal or all(len(line) < 2000 for line in moved.splitlines())
