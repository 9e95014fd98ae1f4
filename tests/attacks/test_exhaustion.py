"""A candidate that dies, hangs or takes everything is its own outcome and nobody else's."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.attacks.specimens import Specimen, cases, collect

from kerneleval.judge import Judge
from kerneleval.judge.windows import protocol
from kerneleval.pipeline import check
from kerneleval.sandbox.processes import of_uid
from kerneleval.sandbox.slot import Slot, claim, release
from kerneleval.worker import host, waiting

SPECIMENS = collect("cpu", "exhaustion")
GONE_S = 30.0
"""Longest time until killed processes are gone: a memory bomb's pages are freed first."""


def _alone(specimen: Specimen) -> list[pytest.MarkDecorator]:
    """Which take everything: those that only keep the judge waiting, or die, do not disturb other tests."""
    quiet = specimen.kind in ("hang", "crash") or specimen.reasons == ("timeout",)
    return [] if quiet else [pytest.mark.serial]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory):
    with Judge("cpu", tmp_path_factory.mktemp("cache"), worker_memory_bytes=2 << 30) as judge:
        yield judge


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> list[Slot]:
    """Every slot that is prepared during the test."""
    slots: list[Slot] = []
    prepare = host.prepare

    def recorded(*args, **kwargs):
        slots.append(prepare(*args, **kwargs))
        return slots[-1]

    monkeypatch.setattr(host, "prepare", recorded)
    return slots


def _comes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does within the limit: on a busy machine the kernel takes its time to end what was killed."""
    deadline = time.monotonic() + GONE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _is_gone(slot: Slot) -> bool:
    """Whether nothing of its user is left. Another judge, of another test, may have taken the user since: it did so
    when there was nothing.
    """
    if not of_uid(slot.uid):
        return True
    if mine := claim(slot.uid):
        release(slot)
    return not mine


@pytest.mark.parametrize("specimen", cases(SPECIMENS, _alone))
def test_is_that_candidates_outcome(
    judge: Judge, specimen: Specimen, users: list[Slot], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"], "timed": False}
    own = {"directions": specimen.directions} | ({"categories": ()} if specimen.task.endswith(".py") else {})
    hangs = "timeout" in specimen.reasons
    own |= {"patience_s": 1.0} if hangs else {}
    charge, waits = waiting.Patience.charge, list[float]()

    def recorded(self: waiting.Patience, took_s: float, own_s: float, compiled_s: float) -> str:
        waits.append(own_s)
        return charge(self, took_s, own_s, compiled_s)

    with monkeypatch.context() as patched:
        patched.setattr(waiting.Patience, "charge", recorded)
        patched.setattr(waiting, "CALLS_S", 1.0 if hangs else 25.0)
        patched.setattr(protocol, "ANSWER_S", 5.0 if hangs else protocol.ANSWER_S)
        patched.setattr(waiting, "LONGEST_S", 6.0 if hangs else 12.0)
        patched.setattr(waiting, "_WORK_SHARE", 0.1)  # a few windows of a small case are judged here
        if "load" in specimen.stages:
            patched.setattr(waiting, "LOAD_S", 4.0)
        verdict = check(
            specimen.path, specimen.task, judge=judge, allow=specimen.allow, fail_fast=True, **(options | own)
        )
    assert verdict.verdict == "failed"
    assert verdict.stage in specimen.stages, verdict.message
    assert verdict.reason in specimen.reasons, verdict.message
    assert verdict.message
    assert sum(waits) < 60, "seconds of its own making"
    judge.pool.quiet()
    # nothing is left: no process, no file, but those of the spare that waits for the next candidate
    for slot in users[:-1]:
        assert _comes_true(lambda slot=slot: not Path(slot.base).exists())
        assert slot.uid in (-1, users[-1].uid) or _comes_true(lambda slot=slot: _is_gone(slot))
    assert users[-1].uid < 0 or _comes_true(lambda: len(of_uid(users[-1].uid)) == 1)
    options |= {"allow": ("library",), "distributions": ("standard",)}
    honest = check(specimen.path.parent.parent / "honest" / "torch_gelu.py", "gelu", judge=judge, **options)
    assert honest.verdict == "passed", honest.message
