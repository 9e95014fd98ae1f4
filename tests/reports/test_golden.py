"""The JSON of verdicts keeps its form: documents that version 0.1 wrote are read, and written again as they were.

``golden/verdict_*.json`` are what ``kerneleval check gelu.cpp --task gelu --device cpu --json`` printed before
findings, speedup and conditions became records: a passed and timed verdict, a wrong one, a dishonest one, and an
untimed one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kerneleval.records import (
    Finding,
    SpeedupSummary,
    TamperingEvidence,
    TrackEvidence,
    UsageError,
    UsesEvidence,
    Verdict,
    from_plain,
    to_plain,
)
from kerneleval.reports.json import VERDICT_FORMAT, dumps, verdict_document

GOLDEN = sorted((Path(__file__).parent / "golden").glob("verdict_*.json"))


def document(name: str) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads((Path(__file__).parent / "golden" / f"verdict_{name}.json").read_text())
    return plain


def read(plain: dict[str, Any]) -> Verdict:
    """The verdict of a document, without what a document has beyond a verdict."""
    bare = {name: value for name, value in plain.items() if name not in ("format", "layer", "layers")}
    for name in ("cells", "findings"):
        bare[name] = [{key: value for key, value in one.items() if key != "layer"} for one in plain[name]]
    return from_plain(Verdict, bare)


def keys(value: Any) -> Any:
    """The names of all entries, in their order."""
    if isinstance(value, dict):
        return [(name, keys(held)) for name, held in value.items()]
    return [keys(held) for held in value] if isinstance(value, list) else None


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_document_of_before_is_written_again_as_it_was(path: Path) -> None:
    before = json.loads(path.read_text())
    after = json.loads(dumps(verdict_document(read(before))))
    assert after == before
    assert before["format"] == VERDICT_FORMAT == 1
    assert keys({**after, "findings": []}) == keys({**before, "findings": []})


def test_there_are_documents_of_every_kind() -> None:
    assert [path.stem.removeprefix("verdict_") for path in GOLDEN] == ["failed", "honesty", "passed", "untimed"]
    found = {name: read(document(name)) for name in ("failed", "honesty", "passed", "untimed")}
    assert {name: (v.verdict, v.reason) for name, v in found.items()} == {
        "failed": ("failed", "wrong_output"),
        "honesty": ("failed", "tampering"),
        "passed": ("passed", "ok"),
        "untimed": ("passed", "ok"),
    }
    timed = found["passed"]
    assert isinstance(timed.speedup, SpeedupSummary) and timed.speedup.cells == 2
    assert timed.conditions.first and timed.conditions.last
    assert found["untimed"].speedup is None and to_plain(found["untimed"].conditions) == {}
    by_check = {f.check: f for f in (*timed.findings, *found["honesty"].findings)}
    assert isinstance(by_check["track"].evidence, TrackEvidence)
    assert isinstance(by_check["uses"].evidence, UsesEvidence) and by_check["uses"].evidence.why
    assert by_check["tampering"].evidence == TamperingEvidence(when="load")


def test_a_finding_of_another_version_is_kept_as_it_is() -> None:
    told = {"check": "of_the_future", "level": "warn", "reason": "not_known_yet", "message": "m", "when": 3}
    assert to_plain(from_plain(Finding, told)) == told


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verdict": "maybe"}, "field 'verdict' must be one of 'passed', 'failed'"),
        ({"speedup": {"value": 1.0}}, "field 'speedup': SpeedupSummary: field 'low' is missing"),
        ({"findings": [{"check": "x", "level": "loud", "message": ""}]}, "field 'level' must be one of 'info', 'warn'"),
        ({"seconds": "soon"}, "field 'seconds' must be float, got 'soon'"),
        ({"surplus": 1}, "unknown field 'surplus'"),
        ({"cells": 7}, "field 'cells' must be a list, got 7"),
    ],
)
def test_what_has_another_form_is_an_error_that_names_the_field(changes: dict[str, Any], message: str) -> None:
    plain = to_plain(read(document("untimed")))
    assert from_plain(Verdict, plain) == read(document("untimed"))
    with pytest.raises(UsageError, match=message):
        from_plain(Verdict, plain | changes)
