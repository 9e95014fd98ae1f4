from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.judge.checks import relations
from kerneleval.records import Relation, UsageError
from kerneleval.tasks import find

from .conftest import NAMES, called, case_of, drawn, planned
from .variants import HONEST

WITH = [name for name in NAMES if find(name).relations]


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", WITH)
def test_the_reference_and_honest_candidates_keep_every_relation(name: str) -> None:
    task = find(name)
    for case in planned(task, dtypes=("float32",), directions=("forward",), distributions=("standard",))[::2]:
        args, _ = drawn(task, case)
        assert len(relations.applicable(task, case)) == len(task.relations)
        for candidate in (task.reference, *HONEST[name]):
            found = relations.broken_relations(task, case, lambda values, f=candidate: called(f, values), args, 7)
            assert found == [], f"{case.key}: {found[0]['message']}"


def test_relations_are_for_fp32_and_standard_data_unless_they_say_otherwise() -> None:
    task = find("add")
    assert relations.applicable(task, case_of("add", {"M": 3, "N": 4}, dtype="float16")) == ()
    assert relations.applicable(task, case_of("add", {"M": 3, "N": 4}, distribution="outlier")) == ()
    assert relations.applicable(task, case_of("add", {"M": 3, "N": 4}, direction="backward")) == ()
    wide = replace(task, relations=(replace(task.relations[0], holds=lambda dtype, distribution: True),))
    assert len(relations.applicable(wide, case_of("add", {"M": 3, "N": 4}, dtype="float16"))) == 1


class _Sly:
    """Right on the first call, then something else: nothing but a second call can show it."""

    def __init__(self, first: Any, later: Any) -> None:
        self.calls, self.first, self.later = 0, first, later

    def __call__(self, args: Sequence[Any]) -> list[torch.Tensor]:
        self.calls += 1
        return called(self.first if self.calls == 1 else self.later, args)


@pytest.mark.parametrize(
    ("name", "dims", "later"),
    [
        ("matmul", {"M": 20, "N": 24, "K": 40}, lambda a, b: a[:, 1:] @ b[1:]),
        ("sum", {"M": 30, "N": 64}, lambda x: x.abs().sum(-1)),
        ("gelu", {"M": 20, "N": 64}, torch.nn.functional.silu),
        ("softmax_cross_entropy", {"M": 30, "N": 20}, lambda x, t: torch.logsumexp(x, -1)),
        ("argmax", {"M": 30, "N": 64}, lambda x: torch.zeros(30, dtype=torch.int64)),
    ],
)
def test_broken_relations_are_found(name: str, dims: dict[str, int], later: Any) -> None:
    task, case = find(name), case_of(name, dims)
    args, _ = drawn(task, case)
    run = _Sly(task.reference, later)
    findings = relations.broken_relations(task, case, run, args, 7)
    assert run.calls == 1 + len(task.relations)
    assert {f.evidence["relation"] for f in findings} == {r.name for r in task.relations}
    for finding in findings:
        assert (finding.level, finding.reason) == ("fail", "broken_relation")
        assert str(finding.evidence["relation"]) in finding.message


def test_a_wrong_candidate_is_told_before_any_relation() -> None:
    task, case = find("gelu"), case_of("gelu", {"M": 20, "N": 64})
    (finding,) = relations.broken_relations(task, case, lambda args: [torch.relu(args[0])], drawn(task, case)[0], 7)
    assert finding.evidence["relation"] == "original"


def test_outputs_that_are_overwritten_by_the_next_call_are_no_breach() -> None:
    task, case = find("gelu"), case_of("gelu", {"M": 20, "N": 64})
    memory = torch.empty(20, 64)

    def run(args: Sequence[Any]) -> list[torch.Tensor]:
        return [memory.copy_(task.reference(*args))]

    assert relations.broken_relations(task, case, run, drawn(task, case)[0], 7) == []


def test_a_relation_must_keep_the_form() -> None:
    cut = Relation(name="cut", transform=lambda args, g: [args[0][1:]], expect=lambda outs, args, g: outs)
    task = replace(find("gelu"), relations=(cut,))
    case = case_of("gelu", {"M": 20, "N": 64})
    with pytest.raises(UsageError, match="cut of task gelu changes the shapes"):
        relations.broken_relations(task, case, lambda args: called(task.reference, args), drawn(task, case)[0], 7)
