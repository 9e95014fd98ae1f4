"""The summary for a pull request: short, and nothing in it is markup but ours."""

from __future__ import annotations

import dataclasses
import re

import pytest
from tests.reports import report_builders as build

from kerneleval.records import Finding
from kerneleval.reports import html, markdown


def spans_removed(line: str) -> str:
    """The line without its code spans, as CommonMark finds them."""
    return re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", line)


def test_it_tells_the_headline_failures_regressions_and_machines() -> None:
    text = markdown.render(build.full())
    assert "| `careful` | **1.32** (1.21–1.48) | **1.40x** (1.28–1.55) | **" in text
    assert "| `correctness` | `wrong_output` | 192 | `fragile`, `hasty` |" in text
    assert "- `fragile`: 168 of 192 timed cells slower beyond noise; `168 cells, worst" in text
    assert "- `hasty`: not evaluated, no correct cell was timed" in text
    assert "No shape CV of `hasty`: `no (task, direction, dtype) has 3 timed shapes`." in text
    assert "- not evaluated: `rocm` (`no AMD GPU here`)" in text
    assert "And 128 cells for 2 more reasons." in text


def test_the_highest_s_is_first() -> None:
    made = build.Made(generators=("fragile", "careful"), samples=1, devices=(build.CUDA,))
    lines = [line for line in markdown.render(made.document()).splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines[:2]] == ["careful", "fragile"]


def test_it_has_sixty_lines_at_most_and_says_what_is_left_out() -> None:
    generators = tuple(f"generator{i}" for i in range(12))
    machines = tuple(dataclasses.replace(build.CPU, units=i) for i in range(1, 6))
    made = build.Made(generators=generators, devices=machines, samples=1, shapes=1)
    missing = {f"device{i}": "" for i in range(9)}
    made.run = dataclasses.replace(made.run, planned=made.run.planned + 1, not_evaluated=missing)
    warnings = tuple(Finding(check="conditions", level="warn", message=w) for w in "abcdefg")
    made.verdicts = [(attempt, dataclasses.replace(v, findings=warnings)) for attempt, v in made.verdicts]
    text = markdown.render(made.document())
    assert len(text.splitlines()) <= markdown.LINES
    for left in ("Showing 8 of 12 generators", "and 4 more generators", "2 more reasons", "- and 2 more", "and 6 more"):
        assert left in text
    assert "**1 attempt of 481 not judged yet:**" in text


def test_text_of_others_stands_in_code_spans() -> None:
    text = markdown.render(build.hostile())
    assert not set(text) - {"\n"} & {chr(c) for c in range(32)} and "\ud800" not in text
    for line in text.splitlines():
        rest = spans_removed(line)
        assert "<" not in rest and "http" not in rest, line


@pytest.mark.parametrize("name", ["a`b", "``", "`x` @someone #1", "a|b", " ", "</details>", "x\n# y"])
def test_names_cannot_end_their_span(name: str) -> None:
    made = build.Made(tasks=("gelu", "softmax"), generators=(name, "careful"), devices=(build.CPU,), samples=1)
    text = markdown.render(made.document())
    for line in text.splitlines():
        rest = spans_removed(line).replace("pass@1", "")
        assert not re.search(r"[`<@]|^# ", rest), line
        if rest.startswith("|"):
            bars = len(re.findall(r"(?<!\\)\|", line))
            assert bars in (6, 11), line


def test_an_empty_run() -> None:
    run = dataclasses.replace(build.Made(tasks=("gelu",), samples=1).run, generators=(), planned=0, finished=0)
    text = markdown.render(html.build(run, {}, iter(()), iter(()), {}))
    assert "Not evaluated: nothing was planned in this run." in text
