"""Every specimen gets the verdict that it names, at the stage and for the reason that it names."""

from __future__ import annotations

import pytest
from tests.attacks.specimens import Specimen, collect

from kerneleval.judge import Judge
from kerneleval.pipeline import check

pytestmark = [pytest.mark.xdist_group("judge")]

SPECIMENS = [s for s in collect("cpu") if s.path.parent.name != "exhaustion"]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    with Judge("cpu", tmp_path_factory.mktemp("cache")) as judge:
        yield judge


@pytest.mark.parametrize("specimen", SPECIMENS, ids=[s.name for s in SPECIMENS])
def test_gets_its_due(judge: Judge, specimen: Specimen) -> None:
    verdict = check(
        specimen.path,
        specimen.task,
        judge=judge,
        allow=specimen.allow,
        dtypes=["float32"],
        directions=specimen.directions,
        categories=specimen.categories,
        tier="quick",
        timed=specimen.timed,
    )
    assert verdict.verdict == specimen.verdict, verdict.message
    if specimen.verdict == "failed":
        assert verdict.stage in specimen.stages, verdict.message
        assert verdict.reason in specimen.reasons, verdict.message
