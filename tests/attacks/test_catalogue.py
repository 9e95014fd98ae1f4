"""The table of what the corpus covers is the corpus's."""

from __future__ import annotations

import collections

from tests.attacks.catalogue import GROUPS, table
from tests.attacks.specimens import ROOT, every

from kerneleval.tasks import find

PAGE = ROOT.parent.parent / "docs" / "threat-model.md"


def test_every_class_of_attack_belongs_to_one_way() -> None:
    counted = collections.Counter(kind for kinds in GROUPS.values() for kind in kinds)
    assert {kind for kind, times in counted.items() if times > 1} == set()
    assert set(counted) == {s.kind for s in every() if s.verdict == "failed"}


def test_the_table_in_the_documents_is_that_of_the_corpus() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table() in page, "put the output of `python -m tests.attacks.catalogue` into docs/threat-model.md"


def test_headers_can_be_kept() -> None:
    for specimen in every():
        passed = specimen.verdict == "passed"
        assert passed == (not specimen.stages), specimen.name
        assert passed == (not specimen.reasons), specimen.name
        assert specimen.device in ("cpu", "cuda", "opencl", "any"), specimen.name
        if not specimen.task.endswith(".py"):
            known = find(specimen.task).directions
            assert set(specimen.directions) <= set(known), specimen.name
