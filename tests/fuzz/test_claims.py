"""What a worker claims, value by value: times, mismatches, counts, names, states. Any JSON may stand where a number or
a name should.

Nothing but the declared outcome may come of it: a number that is one, bounded text, a reason that the documentation
knows. What is kept must go into strict JSON.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzz.hostile import effort, json_values, numbers, texts

from kerneleval import tasks
from kerneleval.devices import find
from kerneleval.judge.checks import track
from kerneleval.judge.probes import cells
from kerneleval.judge.timing.statistics import device_time
from kerneleval.judge.windows import protocol, worker_pool
from kerneleval.judge.windows.modules import match_state
from kerneleval.judge.windows.worker_pool import Loaded, LoadFailed
from kerneleval.records import STAGES, Candidate, Case, Samples, to_plain
from kerneleval.worker.host import WorkerError, WorkerFailure
from kerneleval.worker.waiting import Patience

DOCUMENTED = set(
    re.findall(r"^\| `(\w+)` \|", (Path(__file__).parents[2] / "docs" / "verdicts.md").read_text(), re.MULTILINE)
)
CASE = Case(task="gelu", direction="forward", dims=(("M", 4),), dtype="float32")


def strict(value: Any) -> None:
    """It goes into strict JSON and comes back."""
    assert json.loads(json.dumps(to_plain(value), allow_nan=False)) is not None


@pytest.mark.slow
@given(value=st.one_of(numbers(), json_values()))
@example(10**400)
@example(-(10**400))
@example(True)
@effort(120)
def test_a_claimed_time_is_a_finite_number(value: Any) -> None:
    claimed = protocol._claimed_number(value)
    assert type(claimed) is float
    assert math.isfinite(claimed)
    assert claimed >= 0
    assert not claimed or claimed == float(value)


@given(value=st.one_of(json_values(), st.fixed_dictionaries({"what": st.one_of(texts(), json_values())})))
@example({"what": "\udcff\x1b[2J"})
@example({"what": "x" * 300})
@example({})
@effort(100)
def test_a_claimed_mismatch_has_a_documented_reason(value: Any) -> None:
    wrong = protocol._claimed_wrong(value)
    assert (wrong is None) == (not isinstance(value, dict))
    if wrong is None:
        return
    failed = protocol.claimed(wrong)
    assert failed.reason in DOCUMENTED
    assert failed.stage in STAGES
    assert len(failed.message) < 1000
    assert len(repr(failed.evidence)) < 20_000
    strict(failed)


@given(told=st.dictionaries(st.sampled_from(["aten", "launches", "extensions"]), json_values()))
@example({"aten": {"aten.add.Tensor": 10**400}, "launches": {"k": True}})
@effort(100)
def test_claimed_counts_and_names_make_a_bounded_finding(told: dict[str, Any]) -> None:
    seen = track.Seen(
        outputs=(),
        aten=track._claimed_counts(told.get("aten")),
        launches=track._claimed_counts(told.get("launches")),
        extensions=track._claimed_names(told.get("extensions")),
    )
    assert all(type(n) is int and 0 <= n < 1 << 63 for counts in (seen.aten, seen.launches) for n in counts.values())
    found = track._Case(CASE, seen)
    assert found.rank in (0, 1, 2)
    assert len(str(found)) < 8000
    strict({"message": str(found), "aten": found.computing, "launches": seen.launches, "extensions": seen.extensions})


CLAIMS = st.fixed_dictionaries(
    {}, optional={key: st.one_of(texts(), json_values()) for key in ("what", "level", "when")}
)


@pytest.mark.slow
@given(told=st.one_of(json_values(), st.lists(st.one_of(CLAIMS, json_values()), max_size=40)))
@example([{"what": "\x1b[2J" * 100, "level": "warn", "when": "load"}] * 50)
@effort(100)
def test_claimed_tampering_is_a_bounded_list_of_texts(told: Any) -> None:
    found = protocol.tampering_claims({"tampering": told})
    assert len(found) <= 32
    for one in found:
        assert len(one.what) <= 200
        assert one.level in ("warn", "fail")
        assert one.when in ("load", "call")
    strict([vars(one) for one in found])


@given(claims=st.lists(json_values(), min_size=1, max_size=6), verified=st.floats(1.0, 1e12))
@example([1.7e308, 1.7e308], 1.0)
@effort(60)
def test_a_claimed_device_time_is_accepted_only_near_the_verified_one(claims: list[Any], verified: float) -> None:
    claimed = tuple(protocol._claimed_number(value) for value in claims)
    samples = Samples(candidate_ns=(verified,) * len(claimed), candidate_event_ns=claimed)
    said = device_time(samples)
    assert len(said) < 1000
    if said == "accepted":
        assert 0.9 * verified <= sorted(claimed)[len(claimed) // 2]
    strict(samples)


STATES = st.one_of(
    json_values(),
    st.lists(
        st.one_of(
            json_values(),
            st.tuples(json_values(), json_values(), json_values()),
            st.tuples(texts(), st.lists(st.one_of(st.integers(), numbers())), texts()),
            st.just(("w", [3, 4], "float32")),
        ),
        max_size=4,
    ),
)


def _loaded(answer: dict[str, Any]) -> Loaded:
    """A loaded candidate whose worker answers this to everything."""
    loaded = object.__new__(Loaded)
    loaded.trusted, loaded.reference_s = False, 0.0
    loaded.patience = Patience(Candidate(files=(("gelu.py", ""),), language="torch"), "cpu", 60.0)
    worker = SimpleNamespace(request=lambda *_, **__: answer)
    loaded.runner = SimpleNamespace(worker=worker, forget_layout=lambda: None)  # type: ignore[assignment]
    return loaded


@pytest.mark.slow
@given(answer=st.one_of(st.fixed_dictionaries({"state": STATES}), st.dictionaries(texts(8), json_values())))
@example({"state": [["w", [math.inf], "float32"]]})
@example({"state": [["w", ["9" * 5000], "float32"]]})
@effort(120)
def test_a_claimed_state_is_one_or_the_candidate_does_not_load(answer: dict[str, Any]) -> None:
    loaded = _loaded(answer)
    try:
        loaded.make_module((), 0)
        pairs = match_state({"w": torch.zeros(3, 4)}, loaded.state)
    except LoadFailed as failed:
        assert failed.reason in DOCUMENTED
        assert len(str(failed)) < 2000
    else:
        assert len(pairs) == 1


def test_a_second_name_of_a_weight_needs_no_counterpart() -> None:
    weight, state = torch.ones(3), [("w", (3,), "float32")]
    assert match_state({"w": weight, "loss.w": weight.clone()}, state) == [("w", "w")]
    assert match_state({"w": weight, "loss.w": weight.clone()}, [("other", (3,), "float32")]) == [("other", "w")]
    with pytest.raises(LoadFailed, match="no parameter or buffer for loss"):
        match_state({"w": weight, "loss.w": 2 * weight}, state)


class _Dying(SimpleNamespace):
    """A loaded candidate that dies in its first window and cannot be loaded again."""

    crashes = 0

    def revive(self) -> None:
        raise LoadFailed("load_error", "it loads no second time", {})


def test_a_candidate_that_loads_only_once_fails_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its death in one case, and then that the next worker refuses it, are both its own outcome."""
    judge = object.__new__(cells.CellJudge)
    loaded = _Dying(candidate=SimpleNamespace(language="torch"))
    made: Any = SimpleNamespace(loaded=loaded, task=tasks.find("gelu"), device=find("cpu"), lost_s=0.0)
    judge.calls = made
    judge._unsupported_dtypes, judge._given_up = (), None
    judge._other_layouts = SimpleNamespace(under_way=False)  # type: ignore[assignment]

    def die(_case: Case) -> Any:
        raise WorkerFailure("exit", "the process exited with code 3", {})

    monkeypatch.setattr(judge, "_judge", die)
    case = replace(CASE, dims=(("M", 4), ("N", 4)))
    first, second = judge.judge(case), judge.judge(case)
    assert (first.stage, first.reason) == ("call", "exit")  # type: ignore[union-attr]
    assert (second.stage, second.reason) == ("load", "load_error")  # type: ignore[union-attr]
    assert "loads no second time" in second.message  # type: ignore[union-attr]


@given(kind=texts(), message=texts(), unsupported=st.booleans())
@effort(40)
def test_what_a_candidate_raises_is_bounded_text(kind: str, message: str, unsupported: bool) -> None:
    failed = protocol.raised(WorkerError(kind[:200], message[:4000], unsupported=unsupported, evidence={}))
    assert failed.reason in DOCUMENTED
    assert len(failed.message) <= 1000
    assert len(worker_pool._kind(WorkerError(kind, "", unsupported=False, evidence={}))) <= len(kind) + 2
    strict(failed)
