"""Candidates of earlier runs and of files of samples."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from kerneleval import generators, tasks
from kerneleval.generators import replay
from kerneleval.generators.replay import of_file
from kerneleval.records import Candidate, Origin, UsageError

SOURCE = "import torch\n\n\ndef relu(x):\n    return torch.relu(x)\n"


def row(**changes: Any) -> dict[str, Any]:
    common = {
        "task": "relu",
        "generator": "g",
        "sample": 0,
        "source": SOURCE,
        "language": "torch",
        "candidate": "0" * 64,
    }
    return common | {"model": "m", "money_usd": 0.25, "making_s": 2.0, "tokens_in": 7, "parent": None} | changes


def written(folder: Path, *rows: Any, name: str = "samples.jsonl") -> Path:
    path = folder / name
    text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["samples.jsonl", "samples.jsonl.gz"])
def test_samples_come_back_with_their_origin(tmp_path: Path, name: str) -> None:
    refused = row(sample=1, source=None, candidate="", language=None)
    path = written(tmp_path, row(), refused, row(sample=2, source=SOURCE + "# 2\n"), row(task="gelu"), name=name)
    maker = generators.find(str(path))
    assert isinstance(maker, generators.Generator) and maker.name == "samples"
    first, second = maker.candidates(tasks.find("relu"), "cpu")
    assert first.files == (("candidate.py", SOURCE),) and first.language == "torch"
    assert (first.origin.sample, second.origin.sample) == (0, 2)
    assert (first.origin.model, first.origin.money_usd, first.origin.seconds, first.origin.tokens_in) == (
        "m",
        0.25,
        2.0,
        7,
    )
    assert list(maker.candidates(tasks.find("softmax"), "cpu")) == []


def test_rows_of_several_machines_are_one_sample_and_generators_are_numbered_on(tmp_path: Path) -> None:
    path = written(tmp_path, row(machine="a"), row(machine="b"), row(generator="h", source=SOURCE + "# h\n"))
    assert [c.origin.sample for c in of_file(path).candidates(tasks.find("relu"), "cpu")] == [0, 1]
    (only,) = of_file(path, only="h").candidates(tasks.find("relu"), "cpu")
    assert only.main.endswith("# h\n")
    with pytest.raises(UsageError, match="nothing there is by 'x'"):
        list(of_file(path, only="x").candidates(tasks.find("relu"), "cpu"))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", r"samples.jsonl:2: not valid JSON"),
        ("[1]", r"samples.jsonl:2: expected an object"),
        (row(language=3), r"samples.jsonl:2: 'language' is missing"),
        (row(source=""), r"samples.jsonl:2: 'source' is missing"),
        (row(tokens_in="many"), r"samples.jsonl:2: .*tokens_in"),
    ],
)
def test_wrong_lines_are_named(tmp_path: Path, line: Any, told: str) -> None:
    maker = of_file(written(tmp_path, row(), line))
    with pytest.raises(UsageError, match=told):
        list(maker.candidates(tasks.find("relu"), "cpu"))


def test_a_stored_run_is_found_by_a_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def earlier(store: str, run: str) -> Any:
        asked.append((store, run))
        origin = Origin(generator="g", sample=3)
        yield "relu", Candidate(files=(("candidate.py", SOURCE),), language="torch", origin=origin)

    path = tmp_path / "again.toml"
    path.write_text('[generator]\nkind = "replay"\nstore = "s.db"\nrun = "latest"\nname = "again"\n')
    monkeypatch.setattr(replay, "_candidates_of_run", earlier)
    maker = generators.find(str(path))
    assert isinstance(maker, generators.Generator)
    (found,) = maker.candidates(tasks.find("relu"), "cpu")
    assert (found.origin.generator, found.origin.sample) == ("again", 3) and asked == [("s.db", "latest")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "needs either path"),
        ('path = "a.jsonl"\nrun = "b"\n', "needs either path"),
        ('path = "a.csv"\n', r"must end in \.jsonl"),
        ('path = "nowhere.jsonl"\n', "no such file"),
        ('pth = "a"\n', "did you mean path"),
    ],
)
def test_wrong_settings_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[generator]\nkind = "replay"\n' + text)
    with pytest.raises(UsageError, match=told):
        generators.find(str(path))
