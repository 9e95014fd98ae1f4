"""Runs whose candidates come later: plans that grow, identities, rounds of another run, what nothing cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kerneleval.records import Candidate, Failed, Origin, UsageError
from kerneleval.store import NewRun, Planned, open_store
from kerneleval.store.store import Store

from .store_builders import PROTOCOL, CellResult, candidate, case, machine, passed, verdict


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "s.db"))


def planned(task: str = "gelu", sample: int = 0, made: Candidate | None = None) -> Planned:
    return Planned(
        generator="g", task=task, category="elementwise", level=1, cases=(case(task),), sample=sample, candidate=made
    )


def begun(store: Store, *plan: Planned, resume: bool = False, **options: Any) -> str:
    new = NewRun(name="n", generators=("g",), machines=(machine(),), protocol=PROTOCOL, plan=plan, **options)
    return store.begin_run(new, resume=resume)


def test_other_settings_of_a_generator_are_another_run(store: Store) -> None:
    first = begun(store, planned(), identity=["one"])
    assert begun(store, planned(), identity=["one"], resume=True) == first
    assert begun(store, planned(), identity=["other"], resume=True) != first
    assert begun(store, planned(), resume=True) not in (first,)


def test_a_plan_grows_and_what_is_there_stays(store: Store) -> None:
    run = begun(store, planned())
    made = candidate("a")
    store.put_candidate(run, "g", 0, "gelu", made)
    store.add_attempts(run, [planned(), planned(sample=1), planned("relu", made=candidate("b"))])
    store.add_attempts(run, [planned(sample=1)])
    attempts = store.attempts(run)
    assert [(a.task, a.sample) for a in attempts] == [("gelu", 0), ("gelu", 1), ("relu", 0)]
    assert attempts[0].candidate == made.hash and attempts[2].candidate == candidate("b").hash
    assert all(a.cases for a in attempts)
    assert store.run(run).planned == 3
    with pytest.raises(UsageError, match="there is no run nowhere"):
        store.add_attempts("nowhere", [planned()])
    with pytest.raises(UsageError):
        store.add_attempts(run, [replace(planned(), generator="another")])


def test_rounds_are_not_the_latest_run(store: Store) -> None:
    run = begun(store, planned())
    rounds = begun(store, planned(), rounds_of=run)
    assert store.run("latest").id == run
    assert store.run(rounds).rounds_of == run and store.run(run).rounds_of == ""


def test_what_asking_cost_is_kept_without_a_candidate(store: Store) -> None:
    run = begun(store, planned())
    origin = Origin(generator="g", model="m", tokens_in=7, money_usd=0.5)
    failed = Failed(stage="generate", reason="refused", message="no")
    cells = (CellResult(case=case("gelu"), outcome=failed),)
    store.put_verdict(
        run, "g", 0, None, verdict("gelu", None, cells, stage="generate", reason="refused"), origin=origin
    )
    (attempt,) = store.attempts(run)
    assert attempt.origin == origin and attempt.finished
    (result,) = store.results(run)
    assert result.origin == origin


def test_a_known_verdict_is_the_latest_of_the_same_cases(store: Store) -> None:
    made = candidate("a")
    for sample in range(3):
        run = begun(store, planned(sample=sample, made=made))
        told = verdict("gelu", made, (passed(case("gelu")),), message=f"number {sample}")
        store.put_verdict(run, "g", sample, made, told)
    known = store.cached_verdict(made.hash, "gelu", machine().fingerprint, PROTOCOL.key, (case("gelu"),))
    assert known is not None and known.message == "number 2"
    other = store.cached_verdict(made.hash, "gelu", machine().fingerprint, PROTOCOL.key, (case("gelu", 1),))
    assert other is None


def test_answers_come_back_in_their_order(store: Store) -> None:
    for number in range(5):
        store.put_response(f"key{number}", {"number": number})
    store.put_response("key0", {"number": 9})
    assert [body["number"] for body in store.responses()] == list(range(5))
