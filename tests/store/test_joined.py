"""Runs on two machines as one: scores, report, tables."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import pytest
from store_builders import candidate, machine, passed, plan, verdict

from kerneleval import cli, pipeline
from kerneleval.records import Candidate, Protocol, UsageError
from kerneleval.store import NewRun, open_store


def licensed(name: str) -> Candidate:
    made = candidate(name)
    return dataclasses.replace(made, origin=dataclasses.replace(made.origin, licence="MIT"))


def stored(
    url: str,
    device: str,
    speedup: float,
    baseline: str = "eager",
    *,
    host: str = "",
    tasks: slice = slice(None),
    version: int = Protocol.version,
) -> None:
    """A run, named as its device, of four tasks on that device alone."""
    on, protocol = dataclasses.replace(machine(device), host=host), Protocol(baseline=baseline, version=version)
    with open_store(url) as store:
        planned = [dataclasses.replace(p, candidate=licensed(f"{device} {p.task}")) for p in plan(4, 3)[tasks]]
        run = store.begin_run(
            NewRun(
                name=f"{device} {baseline}{host}",
                generators=("g",),
                machines=(on,),
                protocol=protocol,
                plan=tuple(planned),
                not_evaluated={"metal": "absent", "cpu": "busy"},
            )
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
    pytest.importorskip("plotly", reason="plotly is not installed (pip install 'kerneleval[report]')")
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


def test_runs_timed_by_two_rules_are_not_one_and_old_ones_say_so(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored(place, "rocm", 1.0, host=" old", version=1)
    assert {r.protocol_version for r in open_store(place, write=False).results(["rocm eager old"])} == {1}
    with pytest.raises(
        UsageError, match=r"forward times of run .* are by protocol version 3, those of run .* by version 1"
    ):
        pipeline.score(place, ["cuda eager", "rocm eager old"])
    assert cli.main(["score", "rocm eager old", "--store", place]) == 0
    said = "Forward times are by protocol version 1, not 3"
    assert said in capsys.readouterr().out
    assert cli.main(["score", "cuda eager", "--store", place]) == 0
    assert said not in capsys.readouterr().out
    files = tmp_path / "r.html", tmp_path / "r.md"
    pytest.importorskip("plotly", reason="plotly is not installed (pip install 'kerneleval[report]')")
    pipeline.report("rocm eager old", store_url=place, html_to=files[0], markdown_to=files[1])
    assert all(said in file.read_text() for file in files)


def test_two_hosts_of_one_product_are_one_device_everywhere(place: str, tmp_path: Path) -> None:
    stored(place, "cuda", 3.0, host=" second", tasks=slice(0, 3))
    runs = ["cuda eager", "cuda eager second", "cpu eager"]
    found = pipeline.score(place, runs)
    assert len(found["run"]["machines"]) == 3
    of = found["scores"]["g"]
    assert (of["p_hw"]["value"], of["p_hw"]["n"]) == (0.5, 2)
    assert "several machines as one device: cuda" in of["p_hw"]["note"]
    assert set(of["device_speedup"]) == {"cuda", "cpu"}
    assert of["device_speedup"]["cuda"]["n"] == 7  # four pairs on one, three on the other
    assert pipeline.report(runs, store_url=place, html_to=str(tmp_path / "r.html"))["written"]
    hardware = pipeline.analyse(runs, store_url=place)["hardware"]
    assert len(hardware["machines"]) == 3  # how far one differs from another is of machines
    spread = next(one for one in hardware["spreads"] if one["task"] == "task000")
    assert sorted(spread["speedups"].values()) == pytest.approx([0.5, 2.0, 3.0])
    assert spread["variance"] == pytest.approx(1.5833333)
    alone = next(one for one in hardware["spreads"] if one["task"] == "task003")
    assert "nothing right and timed on" in alone["note"]


def test_runs_of_other_tasks_say_what_each_device_saw(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    stored(url, "cpu", 1.5, tasks=slice(0, 3))
    stored(url, "cuda", 2.0, tasks=slice(2, 4))
    of = pipeline.score(url, ["cpu eager", "cuda eager"])["scores"]["g"]
    assert (of["p_hw"]["value"], of["p_hw"]["n"]) == (1.0, 2)
    assert "on a part of the tasks: cpu (3 of 4), cuda (2 of 4)" in of["p_hw"]["note"]
    assert of["c_op"]["n"] == 3
    assert "on cpu, 3 of 4 tasks" in of["c_op"]["note"]
    compared = pipeline.compare("cpu eager", "cuda eager", store_url=url)["comparisons"]
    assert [one["by"] for one in compared] == ["task"]
