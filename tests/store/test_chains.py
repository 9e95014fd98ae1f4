"""Chains of refinement, read from a stored run."""

from __future__ import annotations

import dataclasses

import store_builders as make

from kerneleval.analysis.transitions import steps_of_run, transitions
from kerneleval.store import NewRun, open_store


def test_candidates_that_name_their_parent_are_a_chain(tmp_path):
    (planned,) = make.plan(1, 2)
    made = [planned.candidate]
    for name in ("second", "third"):
        one = make.candidate(name)
        made.append(dataclasses.replace(one, origin=dataclasses.replace(one.origin, parent=made[-1].hash)))
    made.append(make.candidate("alone"))
    plan = [dataclasses.replace(planned, sample=i, candidate=candidate) for i, candidate in enumerate(made)]
    reasons = ("wrong_output", "ok", "ok", "ok")
    with open_store(tmp_path / "s.db") as store:
        run = store.begin_run(
            NewRun(name="mine", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )
        for i, (candidate, reason) in enumerate(zip(made, reasons, strict=True)):
            cells = tuple(make.passed(c) if reason == "ok" else make.failed(c) for c in planned.cases)
            stage = "timing" if reason == "ok" else "correctness"
            verdict = make.verdict("task000", candidate, cells, stage=stage, reason=reason)
            store.put_verdict(run, "g", i, candidate, verdict)
        ((*chain,),) = steps_of_run(store.verdicts(run), {c.hash: store.candidate(c.hash) for c in made})
    assert [step.round for step in chain] == [0, 1, 2]
    assert [step.correct for step in chain] == [False, True, True]
    assert [step.code.split("\n")[0] for step in chain] == ["# task000", "# second", "# third"]
    first, second = transitions([chain])
    assert (first.correct, first.speed) == ("rescued", "newly_timed")
    assert second.speed == "same_code"  # they differ in a comment alone
    assert not second.code_changed


def test_parents_in_a_circle_are_no_chain_without_end(tmp_path):
    (planned,) = make.plan(1, 1)
    one, other = make.candidate("one"), make.candidate("other")
    one = dataclasses.replace(one, origin=dataclasses.replace(one.origin, parent=other.hash))
    other = dataclasses.replace(other, origin=dataclasses.replace(other.origin, parent=one.hash))
    with open_store(tmp_path / "s.db") as store:
        plan = [dataclasses.replace(planned, sample=i, candidate=c) for i, c in enumerate((one, other))]
        run = store.begin_run(
            NewRun(name="mine", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )
        for i, candidate in enumerate((one, other)):
            cells = tuple(make.passed(c) for c in planned.cases)
            store.put_verdict(run, "g", i, candidate, make.verdict("task000", candidate, cells))
        assert steps_of_run(store.verdicts(run), {}) == []
