"""Runs on two machines as one: scores, report, tables."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from store_builders import PROTOCOL, candidate, machine, passed, plan, verdict

from kerneleval import cli, pipeline
from kerneleval.records import Candidate, UsageError
from kerneleval.store import open_store


def licensed(name: str) -> Candidate:
    made = candidate(name)
    return dataclasses.replace(made, origin=dataclasses.replace(made.origin, licence="MIT"))


def stored(url: str, device: str, speedup: float, baseline: str = "eager") -> None:
    """A run, named as its device, of four tasks on that device alone."""
    on, protocol = machine(device), dataclasses.replace(PROTOCOL, baseline=baseline)
    with open_store(url) as store:
        planned = [dataclasses.replace(p, candidate=licensed(f"{device} {p.task}")) for p in plan(4, 3)]
        run = store.begin_run(
            f"{device} {baseline}", ["g"], on, protocol, planned, not_evaluated={"metal": "absent", "cpu": "busy"}
        )
        for one in planned:
            assert one.candidate is not None
            cells = tuple(passed(c, speedup) for c in one.cases)
            found = dataclasses.replace(verdict(one.task, one.candidate, cells, on=on), protocol=protocol)
            store.put_verdict(run, "g", 0, one.candidate, found)


@pytest.fixture
def place(tmp_path: Path) -> str:
    url = str(tmp_path / "store.db")
    stored(url, "cuda", 2.0)
    stored(url, "cpu", 0.5)
    return url


def test_portability_is_over_the_machines_of_both(place: str) -> None:
    found = pipeline.score(place, ["cuda eager", "cpu eager"])
    of = found["scores"]["g"]
    assert (of["p_hw"]["value"], of["p_hw"]["n"]) == (0.5, 2)
    assert "metal" in of["p_hw"]["note"]
    assert "cpu" not in of["p_hw"]["note"]  # the second run did evaluate it
    assert of["speedup_med"]["value"] == pytest.approx(2.0)  # on the first machine
    assert [m["device"] for m in found["run"]["machines"]] == ["cuda", "cpu"]
    assert (found["run"]["planned"], found["run"]["finished"]) == (8, 8)
    assert pipeline.score(place, ["cpu eager", "cuda eager"])["scores"]["g"]["speedup_med"]["value"] == pytest.approx(
        0.5
    )


def test_every_command_that_reads_runs_takes_several(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ["cuda eager", "cpu eager", "--store", place]
    assert cli.main(["score", *both]) == 0
    assert "a cuda (cuda, x86_64); a cpu (cpu, x86_64)" in capsys.readouterr().out
    assert cli.main(["report", *both, "--html", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert "a cuda" in text
    assert "a cpu" in text
    assert cli.main(["export", str(tmp_path / "tables"), *both]) == 0
    assert (
        pipeline.export(tmp_path / "again", ["cuda eager", "cpu eager"], store_url=place, file_format="jsonl")[
            str(tmp_path / "again" / "attempts.jsonl")
        ]
        == 8
    )
    assert cli.main(["analyse", *both, "--json"]) == 0


def test_samples_hold_what_training_needs(place: str, tmp_path: Path) -> None:
    pipeline.export(tmp_path, "cuda eager", store_url=place, file_format="jsonl")
    rows = [json.loads(line) for line in (tmp_path / "samples.jsonl").read_text().splitlines()]
    assert len(rows) == 4
    row = rows[0]
    assert (row["task"], row["language"], row["verdict"], row["claim"]) == ("task000", "torch", "passed", "faster")
    assert row["source"] == "# cuda task000\ndef run(x):\n    return x\n"
    assert row["licence"] == "MIT"
    assert row["P"] == 4  # nothing is faster
    assert row["K"] is None  # the task is not at hand
    assert row["complexity_sum"] is None  # the builder's second file does not parse
    assert row["reward"] == pytest.approx(0.4 + 0.6 * (1 + math.log2(1.4)) / 3)  # the builder's interval begins at 1.4


def test_what_cannot_be_one(place: str) -> None:
    with pytest.raises(UsageError, match="named twice"):
        pipeline.score(place, ["cuda eager", "cuda eager"])
    with pytest.raises(UsageError, match="no run is named"):
        pipeline.score(place, [])
    stored(place, "rocm", 1.0, baseline="compile")
    with pytest.raises(UsageError, match=r"against eager.*against compile"):
        pipeline.score(place, ["cuda eager", "rocm compile"])
