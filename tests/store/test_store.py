"""What is stored comes back, is cached, and nothing planned is forgotten: on SQLite and on PostgreSQL."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import store_builders as make

from kerneleval.records import Failed, Limits, Origin, Passed, Protocol, Scalar, UsageError
from kerneleval.store import NewRun, Planned, open_store


def begin(store, plan, resume=False, **more):
    new = NewRun(
        name="mine", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan), **more
    )
    return store.begin_run(new, resume=resume)


def test_verdict_and_results_come_back_equal(url):
    plan = make.plan(2, 5)
    with open_store(url) as store:
        run = begin(store, plan)
        made = plan[0].candidate
        cells = tuple(make.passed(c, 1.25 + i) for i, c in enumerate(plan[0].cases[:3]))
        cells += (make.failed(plan[0].cases[3]), make.passed(plan[0].cases[4], None))
        verdict = make.verdict("task000", made, cells, stage="correctness", reason="wrong_output", message="one")
        assert store.put_verdict(run, "g", 0, made, verdict)
    with open_store(url, create=False, write=False) as store:
        ((attempt, read),) = store.verdicts(run)
        assert read == verdict
        assert attempt.finished
        assert attempt.origin == made.origin
        assert attempt.cases == plan[0].cases
        rows = list(store.results(run, tasks=["task000"]))
        assert [r.outcome for r in rows] == [c.outcome for c in cells]
        assert [r.case for r in rows] == list(plan[0].cases)
        first = rows[0]
        assert (first.run, first.generator, first.sample, first.task) == (run, "g", 0, "task000")
        assert (first.category, first.level, first.device) == ("elementwise", 1, "cpu")
        assert (first.candidate, first.machine) == (made.hash, make.machine().fingerprint)
        assert (first.origin, first.judged_s, first.group) == (made.origin, 0.5, "")
        assert dataclasses.replace(store.candidate(made.hash), origin=made.origin) == made
        assert store.candidate(made.hash).hash == made.hash


def test_groups_and_limits_come_back(url):
    plan = [dataclasses.replace(p, group=group) for p, group in zip(make.plan(2, 1), ("Loss", ""), strict=True)]
    limits = {make.machine().fingerprint: Limits(bandwidth_bytes_per_s=1e12, flop_per_s=(("float32", 1e13),))}
    with open_store(url) as store:
        run = begin(store, plan, limits=limits)
        info = store.run(run)
        assert info.limits == limits
        assert info.groups == {"task000": "Loss"}
        assert [r.group for r in store.results(run)] == ["Loss", ""]
        assert all(math.isnan(r.judged_s) for r in store.results(run))  # nothing was judged yet
        assert [r.origin for r in store.results(run)] == [p.candidate.origin for p in plan]


def test_what_was_planned_and_never_came_counts_as_failed(url):
    plan = [dataclasses.replace(p, candidate=None) for p in make.plan(4, 2)]
    with open_store(url) as store:
        run = begin(store, plan)
        store.put_candidate(run, "g", 0, "task001", make.candidate("late"))
        nothing = make.verdict("task002", None, (), stage="generate", reason="no_code", message="no code in answer")
        store.put_verdict(run, "g", 0, None, nothing)
        broken = make.candidate("broken")
        unbuilt = make.verdict("task003", broken, (), stage="build", reason="compile_error", message="line 1")
        store.put_verdict(run, "g", 0, broken, unbuilt)
        said = {r.task: (r.outcome.stage, r.outcome.reason, r.candidate) for r in store.results(run)}
        assert all(isinstance(r.outcome, Failed) for r in store.results(run))
        assert said == {
            "task000": ("generate", "missing", ""),
            "task001": ("build", "unfinished", make.candidate("late").hash),
            "task002": ("generate", "no_code", ""),
            "task003": ("build", "compile_error", broken.hash),
        }
        assert len(list(store.results(run))) == 8
        assert [a.task for a in store.unfinished(run)] == ["task000", "task001"]
        info = store.run(run)
        assert (info.planned, info.finished, info.complete) == (4, 2, False)


def test_cells_judged_before_a_failure_stay_and_the_rest_fail_with_it(url):
    plan = make.plan(1, 3)
    with open_store(url) as store:
        run = begin(store, plan)
        made = plan[0].candidate
        cells = (make.passed(plan[0].cases[0]), make.failed(plan[0].cases[1]))
        verdict = make.verdict("task000", made, cells, stage="correctness", reason="wrong_output", message="stop")
        store.put_verdict(run, "g", 0, made, verdict)
        outcomes = [r.outcome for r in store.results(run)]
        assert outcomes[:2] == [c.outcome for c in cells]
        assert (outcomes[2].stage, outcomes[2].reason, outcomes[2].evidence) == (
            "correctness",
            "wrong_output",
            {"judged": False},
        )


def test_dishonest_candidate_passes_nowhere_not_even_from_the_cache(url):
    plan = make.plan(1, 3)
    made = plan[0].candidate
    cases = plan[0].cases
    with open_store(url) as store:
        lucky = begin(store, plan)
        store.put_verdict(lucky, "g", 0, made, make.verdict("task000", made, tuple(map(make.passed, cases))))
        run = begin(store, plan)
        cells = (*map(make.passed, cases[:2]), make.failed(cases[2], "call", "unsupported"))
        store.put_verdict(
            run, "g", 0, made, make.verdict("task000", made, cells, stage="honesty", reason="clock_forged")
        )
        known = store.lookup(make.cell(c, made) for c in cases)
        assert [o.reason for o in known.values()].count("clock_forged") == 2
        for name in (run, lucky):
            assert not any(isinstance(r.outcome, Passed) for r in store.results(name))
        seen = next(r.outcome for r in store.results(run))
        assert seen.evidence["cell"]["timing"]["speedup"] == 1.5  # what was measured is kept for the reader


def test_cache_by_candidate_case_machine_and_protocol(url):
    plan = make.plan(1, 4)
    made, cases = plan[0].candidate, plan[0].cases
    other_protocol = Protocol(tier="quick")
    with open_store(url) as store:
        run = begin(store, plan)
        cells = tuple(make.passed(c) for c in cases)
        verdict = make.verdict("task000", made, cells)
        store.put_verdict(run, "g", 0, made, verdict)
        known = store.lookup(make.cell(c, made) for c in cases)
        assert known == {make.cell(c.case, made).key: c.outcome for c in cells}
        other = [
            make.cell(cases[0], make.candidate("other")),
            make.cell(make.case("task000", 9), made),
            make.cell(cases[0], made, make.machine("cuda")),
            make.cell(cases[0], made, protocol=other_protocol),
            make.cell(dataclasses.replace(cases[0], shape_category="square"), made),
        ]
        assert store.lookup(other) == {}
        same = (made.hash, "task000", make.machine().fingerprint, make.PROTOCOL.key)
        assert store.cached_verdict(*same, cases) == verdict
        assert store.cached_verdict(*same, cases[:2]) is None
        assert store.cached_verdict(*same, [*cases, make.case("task000", 9)]) is None
        assert store.cached_verdict(same[0], "task000", same[2], other_protocol.key, cases) is None
        assert store.cached_verdict("0" * 64, *same[1:], cases) is None


def test_a_dim_that_stands_for_several_is_kept(url):
    plan = make.plan(1, 1)
    made = plan[0].candidate
    folded = dataclasses.replace(plan[0].cases[0], dims=(("M", 24), ("N", 7)), folds=(("M", (2, 3, 4)),))
    plain = dataclasses.replace(folded, folds=())
    plan = [dataclasses.replace(plan[0], cases=(folded, plain))]
    with open_store(url) as store:
        run = begin(store, plan)
        cells = (make.passed(folded, 2.0), make.passed(plain, 3.0))
        store.put_verdict(run, "g", 0, made, make.verdict("task000", made, cells))
        assert {r.case: r.outcome.timing.speedup for r in store.results(run)} == {folded: 2.0, plain: 3.0}


def test_first_verdict_stays_unless_replaced(url):
    plan = make.plan(1, 2)
    made = plan[0].candidate
    with open_store(url) as store:
        run = begin(store, plan)

        def verdict(speedup):
            return make.verdict("task000", made, tuple(make.passed(c, speedup) for c in plan[0].cases))

        def speedups():
            return {r.outcome.timing.speedup for r in store.results(run)}

        assert store.put_verdict(run, "g", 0, made, verdict(1.5))
        assert not store.put_verdict(run, "g", 0, made, verdict(2.5))
        assert speedups() == {1.5}
        assert store.put_verdict(run, "g", 0, made, verdict(2.5), replace=True)
        assert speedups() == {2.5}


def test_resume_finds_the_interrupted_run_of_the_same_plan(url):
    plan = make.plan(2, 2)
    with open_store(url) as store:
        run = begin(store, plan)
        made = plan[0].candidate
        store.put_verdict(
            run, "g", 0, made, make.verdict("task000", made, tuple(make.passed(c) for c in plan[0].cases))
        )
        assert begin(store, plan, resume=True) == run
        assert [a.task for a in store.unfinished(run)] == ["task001"]
        edited = [plan[0], dataclasses.replace(plan[1], candidate=make.candidate("edited"))]
        assert begin(store, edited, resume=True) != run
        made = plan[1].candidate
        cells = tuple(make.passed(c) for c in plan[1].cases)
        store.put_verdict(run, "g", 0, made, make.verdict("task001", made, cells))
        assert store.run(run).complete
        assert begin(store, plan, resume=True) != run


def test_several_machines_and_samples_in_one_run(url):
    cpu, gpu = make.machine("cpu"), make.machine("cuda")
    cases = (make.case("t"), make.case("t", 1, "backward"))
    plan = [
        Planned(generator="g", sample=s, task="t", category="gemm", level=2, cases=cases, machine=m.fingerprint)
        for m in (gpu, cpu)
        for s in range(2)
    ]
    with open_store(url) as store:
        run = store.begin_run(
            NewRun(
                name="both",
                generators=("g",),
                machines=(gpu, cpu),
                protocol=make.PROTOCOL,
                plan=tuple(plan),
                not_evaluated={"rocm": "no such device"},
            )
        )
        made = dataclasses.replace(make.candidate("x"), origin=Origin(generator="g", sample=1))
        store.put_candidate(run, "g", 1, "t", made)
        assert [a.candidate for a in store.unfinished(run)] == ["", made.hash, "", made.hash]
        store.put_verdict(run, "g", 1, made, make.verdict("t", made, tuple(map(make.passed, cases)), on=cpu))
        info = store.run(run)
        assert info.machines == (gpu, cpu)
        assert info.not_evaluated == {"rocm": "no such device"}
        good = [r for r in store.results(run) if isinstance(r.outcome, Passed)]
        assert {(r.device, r.sample) for r in good} == {("cpu", 1)}
        assert len(list(store.results(run, devices=["cuda"], directions=["backward"]))) == 2


def test_cases_beyond_the_plan_are_kept(url):
    plan = make.plan(1, 1)
    made = plan[0].candidate
    extra = make.case("task000", 5)
    with open_store(url) as store:
        run = begin(store, plan)
        cells = (make.passed(extra), make.passed(plan[0].cases[0]))
        store.put_verdict(run, "g", 0, made, make.verdict("task000", made, cells))
        assert [r.case for r in store.results(run)] == [plan[0].cases[0], extra]


def test_runs_are_found_by_id_prefix_name_and_age(url):
    plan = make.plan(1, 1)
    with open_store(url) as store:
        with pytest.raises(UsageError, match="no run yet"):
            store.run()
        first = store.begin_run(
            NewRun(name="one", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )
        second = store.begin_run(
            NewRun(name="two", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=tuple(plan))
        )
        assert [r.id for r in store.runs()] == [second, first]
        assert store.run().id == second
        assert store.run("one").id == first
        assert store.run(first).id == first
        with pytest.raises(UsageError, match="did you mean one"):
            store.run("onne")
        with pytest.raises(UsageError, match="unknown filter 'task'; did you mean tasks"):
            list(store.results(task=["x"]))
        assert {r.run for r in store.results([first, second])} == {first, second}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cases": ()}, "no case to judge"),
        ({"generator": "h"}, "not one of the run's generators"),
        ({"machine": "beef"}, "machine 'beef' is not one of the run's"),
        ({"task": "other"}, "is of task task000"),
    ],
)
def test_bad_plans_are_refused_whole(tmp_path, change, message):
    plan = make.plan(2, 1)
    with open_store(tmp_path / "s.db") as store:
        with pytest.raises(UsageError, match=message):
            begin(store, [plan[1], dataclasses.replace(plan[0], **change)])
        with pytest.raises(UsageError, match="planned twice"):
            begin(store, [plan[0], plan[0]])
        with pytest.raises(UsageError, match="the plan of the run is empty"):
            begin(store, [])
        assert store.runs() == ()


def test_verdicts_outside_the_plan_are_refused(tmp_path):
    plan = make.plan(1, 1)
    made = plan[0].candidate
    cells = (make.passed(plan[0].cases[0]),)
    with open_store(tmp_path / "s.db") as store:
        run = begin(store, plan)
        for wrong in (
            make.verdict("task001", made, cells),
            make.verdict("task000", made, cells, on=make.machine("cuda")),
            make.verdict("task000", made, cells, protocol=Protocol(tier="quick")),
        ):
            with pytest.raises(UsageError, match=r"no attempt for g, task|under protocol"):
                store.put_verdict(run, "g", 0, made, wrong)
        with pytest.raises(TypeError, match="no plain form"):
            odd = dataclasses.replace(cells[0], outcome=Passed(evidence={"x": Scalar(name="a", value={1, 2})}))
            store.put_verdict(run, "g", 0, made, make.verdict("task000", made, (odd,)))
        assert store.unfinished(run)
        assert store.lookup([make.cell(plan[0].cases[0], made)]) == {}


def test_the_latest_run_is_none_that_audits_another(tmp_path):
    plan = make.plan(1, 1)
    with open_store(tmp_path / "s.db") as store:
        run = begin(store, plan, tasks={"task000": "problems/task000.py"})
        asked = {"of": run, "only": [], "sample": 3, "same_shapes": True}
        again = store.begin_run(
            NewRun(
                name="again",
                generators=("g",),
                machines=(make.machine(),),
                protocol=Protocol(audit="a"),
                plan=tuple(plan),
                audit=asked,
            )
        )
        assert store.run().id == run
        assert store.run("again").id == again
        assert (store.run(run).audit, store.run(run).tasks) == ({}, {"task000": "problems/task000.py"})
        assert (store.run(again).audit, store.run(again).tasks) == (asked, {})


def test_an_audit_meets_none_of_the_outcomes_that_it_checks(tmp_path):
    (planned,) = plan = make.plan(1, 2)
    made, audits = planned.candidate, dataclasses.replace(make.PROTOCOL, audit="a")
    assert Protocol(version=1).key == "6b9369cd303d5912", "keys of stored protocols stay what they were"
    right, wrong = (tuple(f(c) for c in planned.cases) for f in (make.passed, make.failed))
    with open_store(tmp_path / "s.db") as store:
        run = begin(store, plan)
        store.put_verdict(run, "g", 0, made, make.verdict("task000", made, right))
        again = store.begin_run(
            NewRun(
                name="again",
                generators=("g",),
                machines=(make.machine(),),
                protocol=audits,
                plan=tuple(plan),
                audit={"of": run},
            )
        )
        found = make.verdict("task000", made, wrong, stage="honesty", reason="wrong_output", protocol=audits)
        store.put_verdict(again, "g", 0, made, found)
        ((_, first),), ((_, second),) = store.verdicts(run), store.verdicts(again)
        assert (first.cells, second.cells) == (right, wrong)


def test_a_candidate_is_found_by_the_beginning_of_its_hash(tmp_path):
    plan = make.plan(40, 1)
    made = plan[7].candidate
    with open_store(tmp_path / "s.db") as store:
        begin(store, plan)
        assert store.candidate(made.hash[:16]).hash == made.hash
        assert store.candidate(made.hash.upper()).hash == made.hash
        hashes = sorted(p.candidate.hash for p in plan)
        shared = next(a[0] for a, b in itertools.pairwise(hashes) if a[0] == b[0])
        with pytest.raises(UsageError, match=f"candidate '{shared}' is ambiguous"):
            store.candidate(shared)
        for text in ("", "%", "_", "zz"):
            with pytest.raises(UsageError, match="no candidate"):
                store.candidate(text)


def test_responses_stay_as_they_were_first_kept(url):
    with open_store(url) as store:
        assert store.response("key") is None
        store.put_response("key", {"text": "once \x00 \ud800", "usage": {"tokens": [1, 2.5, None]}})
        store.put_response("key", {"text": "twice"})
        store.put_response("other", {})
    with open_store(url) as store:
        assert store.response("key") == {"text": "once \x00 \ud800", "usage": {"tokens": [1, 2.5, None]}}
        assert store.response("other") == {}


def test_what_asking_cost_counts_where_no_candidate_came_of_it(url):
    origin = Origin(generator="g", model="m", tokens_in=7, tokens_cached=3, money_usd=0.5, round=1)
    with open_store(url) as store:
        (planned,) = make.plan(1, 2)
        planned = dataclasses.replace(planned, candidate=None, origin=origin)
        run = store.begin_run(
            NewRun(name="r", generators=("g",), machines=(make.machine(),), protocol=make.PROTOCOL, plan=(planned,))
        )
        assert [r.origin for r in store.results(run)] == [origin] * 2
        failed = make.verdict(planned.task, None, (), stage="generate", reason="no_code")
        store.put_verdict(run, "g", 0, None, failed)
        assert [(r.origin, r.outcome.stage, r.outcome.reason) for r in store.results(run)] == [
            (origin, "generate", "no_code")
        ] * 2
