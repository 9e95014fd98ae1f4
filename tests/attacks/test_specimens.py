"""Every specimen gets the verdict that it names, at the stage and for the reason that it names."""

from __future__ import annotations

import pytest
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from kerneleval.judge import Judge

pytestmark = [pytest.mark.xdist_group("judge")]

SPECIMENS = [s for s in collect("cpu") if s.path.parent.name != "exhaustion"]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.mark.parametrize("specimen", SPECIMENS, ids=[s.name for s in SPECIMENS])
def test_gets_its_due(judge: Judge, specimen: Specimen) -> None:
    verdict = judged(judge, specimen)
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"
