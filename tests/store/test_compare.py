"""Two stored runs, or two generators of one, compared: which are meant, what is told, how it looks."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from store_builders import PROTOCOL, candidate, failed, machine, passed, plan, verdict

from kerneleval import cli, pipeline
from kerneleval.records import Case, CellResult, UsageError
from kerneleval.reports.changes_view import render_comparisons
from kerneleval.store import NewRun, open_store

Outcome = Callable[[Case], CellResult]


def stored(url: str, name: str, outcomes: dict[str, Outcome], shapes: int = 0, **protocol: Any) -> str:
    """A run in which each generator gets the same at every cell of four tasks; `shapes`: other ones. With a protocol of
    its own, the first case of each task is backward.
    """
    by = dataclasses.replace(PROTOCOL, **protocol)
    with open_store(url) as store:
        planned = [
            dataclasses.replace(
                one,
                candidate=candidate(f"{name} {generator} {one.task}", generator),
                cases=tuple(
                    dataclasses.replace(
                        c,
                        dims=tuple((dim, size + shapes) for dim, size in c.dims),
                        direction="backward" if protocol and i == 0 else "forward",
                    )
                    for i, c in enumerate(one.cases)
                ),
            )
            for generator in outcomes
            for one in plan(4, 3, generator)
        ]
        run = store.begin_run(
            NewRun(
                name=name,
                generators=tuple(outcomes),
                machines=(machine(),),
                protocol=by,
                plan=tuple(planned),
            )
        )
        for one in planned:
            cells = tuple(outcomes[one.generator](c) for c in one.cases)
            found = dataclasses.replace(verdict(one.task, one.candidate, cells), protocol=by)
            store.put_verdict(run, one.generator, 0, one.candidate, found)
    return run


@pytest.fixture
def place(tmp_path: Path) -> str:
    url = str(tmp_path / "store.db")
    stored(url, "monday", {"g": lambda c: passed(c, 1.0), "h": failed})
    stored(url, "tuesday", {"g": lambda c: passed(c, 2.0), "h": lambda c: passed(c, 1.0)})
    return url


def test_of_two_runs_generators_are_compared_with_themselves(place: str) -> None:
    found = pipeline.compare("monday", "tuesday", store_url=place)
    assert [(c["before"]["generator"], c["after"]["generator"]) for c in found["comparisons"]] == [
        ("g", "g"),
        ("h", "h"),
    ]
    g, h = found["comparisons"]
    assert g["counts"]["faster"] == 12
    assert g["comparison"]["speed"]["value"] == pytest.approx(2.0)
    assert h["counts"]["rescued"] == 12
    assert found["not_compared"] == []


def test_runs_by_two_rules_or_against_two_baselines(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    stored(place, "old", {"g": lambda c: passed(c, 8.0)}, version=1)
    stored(place, "new", {"g": lambda c: passed(c, 1.0)}, version=2)
    (found,) = pipeline.compare("old", "new", store_url=place)["comparisons"]
    assert (found["counts"]["other_rule"], found["counts"]["slower"]) == (4, 8)
    assert cli.main(["compare", "old", "new", "--store", place]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Backward speedups are not compared: the first are by protocol version 1, the second by 2" in shown
    assert "right in both, timed by different rules 4 cells" in shown
    stored(place, "compiled", {"g": lambda c: passed(c, 1.0)}, baseline="compile")
    with pytest.raises(UsageError, match=r"against compile, .* against eager: their speedups cannot be compared"):
        pipeline.compare("compiled", "new", store_url=place)


def test_generators_of_one_run_and_of_two(place: str) -> None:
    (one,) = pipeline.compare("h", "g", store_url=place)["comparisons"]  # of the latest run
    assert (one["before"]["name"], one["after"]["name"]) == ("tuesday", "tuesday")
    assert one["counts"]["faster"] == 12
    (other,) = pipeline.compare("monday:g", "tuesday:h", store_url=place)["comparisons"]
    assert other["counts"]["not_told"] == 12


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("monday", "monday", "are the same"),
        ("g", "tuesday:g", "are the same"),
        ("monday:g", "monday:k", "no generator 'k'"),
        ("monday", "sunday", "no run 'sunday'"),
    ],
)
def test_what_cannot_be_compared(place: str, first: str, second: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        pipeline.compare(first, second, store_url=place)


def test_runs_without_a_generator_in_common(place: str) -> None:
    stored(place, "wednesday", {"k": lambda c: passed(c, 1.0), "l": lambda c: passed(c, 1.0), "g": failed})
    assert pipeline.compare("monday", "wednesday", store_url=place)["not_compared"] == ["h", "k", "l"]
    stored(place, "thursday", {"m": failed, "n": failed})
    with pytest.raises(UsageError, match="name one of each"):
        pipeline.compare("monday", "thursday", store_url=place)


def test_how_it_looks(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    render_comparisons(pipeline.compare("monday", "tuesday", store_url=place), Console(file=out, width=100))
    text = " ".join(out.getvalue().split())
    assert "g of tuesday" in text
    assert "right (operator, direction) 0 % to 100 % of 4 pairs, p = 0.12" in text
    assert "wrong before, right now 12 cells" in text
    assert "faster 12 cells" in text
    assert "rescued" in text
    assert cli.main(["compare", "monday", "tuesday", "--store", place, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["comparisons"]) == 2
    assert cli.main(["compare", "monday", "nothing", "--store", place]) == 2
    assert "no run 'nothing'" in capsys.readouterr().err


def test_two_without_a_cell_in_common_are_compared_by_task(place: str) -> None:
    stored(place, "elsewhere", {"g": lambda c: passed(c, 3.0), "h": lambda c: passed(c, 1.0)}, shapes=1000)
    found = pipeline.compare("monday", "elsewhere", store_url=place)
    g, h = found["comparisons"]
    assert (g["by"], h["by"]) == ("task", "task")
    assert g["comparison"]["speed"]["value"] == pytest.approx(3.0)
    assert g["comparison"]["speed"]["n"] == 4
    assert (h["comparison"]["correct_before"]["value"], h["comparison"]["correct_after"]["value"]) == (0.0, 1.0)
    out = io.StringIO()
    render_comparisons(found, Console(file=out, width=120))
    text = " ".join(out.getvalue().split())
    assert "have no cell in common" in text
    assert "0/1 1/1" in text
    assert "speedup over speedup 3.00x" in text
    assert "cells called faster" not in text
