from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest

from kerneleval.records import Case, Failed, Passed, Result, Samples, Score, Timing, UsageError
from kerneleval.reports import export

CASE = Case(task="gelu", direction="forward", dims=(("M", 3), ("N", 7)), dtype="float32", shape_category="tiny")
TIMING = Timing(
    samples=Samples(candidate_ns=(10.0, 30.0, 20.0), baseline_ns=(40.0,)),
    speedup=2.0,
    low=1.5,
    high=math.inf,
    noise=0.01,
    claim="faster",
)
RIGHT = Result(
    run="r",
    generator="g",
    sample=0,
    candidate="c" * 64,
    task="gelu",
    category="elementwise",
    level=1,
    device="cpu",
    machine="m",
    case=CASE,
    outcome=Passed(timing=TIMING),
)
WRONG = dataclasses.replace(RIGHT, outcome=Failed(stage="correctness", reason="wrong_output", message="a \ud800 \x00"))


def read(path: Path) -> list[dict[str, object]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().split("\n") if line]
    from pyarrow import parquet

    return parquet.read_table(path).to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize("ending", export.FORMATS)
def test_cells_come_back_from_either_format(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"cells.{ending}"
    assert export.write_table(path, export.TABLES["cells"], export.cell_rows([RIGHT, WRONG])) == 2
    right, wrong = read(path)
    assert list(right) == list(export.TABLES["cells"])
    assert (right["passed"], right["speedup"], right["low"], right["high"]) == (True, 2.0, 1.5, None)
    assert (right["candidate_ns"], right["baseline_ns"], right["claim"]) == (20.0, 40.0, "faster")
    assert json.loads(str(right["dims"])) == {"M": 3, "N": 7}
    assert (wrong["passed"], wrong["stage"], wrong["reason"]) == (False, "correctness", "wrong_output")
    assert wrong["speedup"] is None
    assert wrong["message"] == "a \\ud800 \x00"


@pytest.mark.parametrize("ending", export.FORMATS)
def test_scores_and_their_tables(tmp_path: Path, ending: str) -> None:
    one = Score(value=0.5, low=0.25, high=math.nan, n=4, note="why")
    path = tmp_path / f"scores.{ending}"
    assert (
        export.write_table(
            path, export.TABLES["scores"], export.score_rows({"g": {"c_op": one, "fast_p": {"1.0": one}}})
        )
        == 2
    )
    assert read(path) == [
        {"generator": "g", "score": "c_op", "of": "", "value": 0.5, "low": 0.25, "high": None, "n": 4, "note": "why"},
        {
            "generator": "g",
            "score": "fast_p",
            "of": "1.0",
            "value": 0.5,
            "low": 0.25,
            "high": None,
            "n": 4,
            "note": "why",
        },
    ]


@pytest.mark.parametrize("ending", export.FORMATS)
def test_no_rows_are_a_table_too(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"cells.{ending}"
    assert export.write_table(path, export.TABLES["cells"], []) == 0
    assert read(path) == []


def test_what_was_there_stays_where_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    path.write_text("before\n")

    def broken() -> object:
        yield from export.cell_rows([RIGHT])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export.write_table(path, export.TABLES["cells"], broken())
    assert path.read_text() == "before\n"
    assert list(tmp_path.iterdir()) == [path]


def test_other_endings_and_missing_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cells.csv: a table is written as .parquet or .jsonl"):
        export.write_table(tmp_path / "cells.csv", export.TABLES["cells"], [])
    with pytest.raises(UsageError, match="can't be written: No such file or directory"):
        export.write_table(tmp_path / "not there" / "cells.jsonl", export.TABLES["cells"], [])
