"""Every specimen gets the verdict that it names, at the stage and for the reason that it names."""

from __future__ import annotations

import pytest
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from kerneleval.judge import Judge

SPECIMENS = [s for s in collect("cpu") if s.path.parent.name != "exhaustion"]
HALVES = [
    pytest.param(one, id=one.name, marks=pytest.mark.xdist_group("judge" if number % 2 else "specimens"))
    for number, one in enumerate(SPECIMENS)
]
"""Two halves, each with a judge of its own, so that two processes share them."""


@pytest.mark.parametrize("specimen", HALVES)
def test_gets_its_due(judge: Judge, specimen: Specimen) -> None:
    verdict = judged(judge, specimen)
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"
