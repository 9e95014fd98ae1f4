"""Generators that are asked: many requests under way, answers without code, what they cost."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kerneleval import generators, pipeline, tasks
from kerneleval.judge import Judge
from kerneleval.pipeline.asking import Kept, ask_all
from kerneleval.records import Answer, Origin, Request, UsageError
from kerneleval.store import open_store

OWN = """
from kerneleval.generators import register
from kerneleval.records import Answer, Candidate, Origin

SOURCES = {
    0: "import torch\\n\\n\\ndef run(x):\\n    return torch.relu(x)\\n",
    1: "import torch\\n\\n\\ndef run(x):\\n    return torch.zeros_like(x)\\n",
}


@register
class Model:
    name = "model"
    summary = "answers by heart"
    identity = "1"
    samples = 3
    rounds = 1
    concurrency = 2

    def ask(self, request):
        cost = {"tokens_in": 100, "tokens_out": 20, "money_usd": 0.25}
        origin = Origin(generator=self.name, model="m-1", sample=request.sample, **cost)
        source = SOURCES.get(request.sample)
        if source is None:
            return Answer(candidate=None, origin=origin, problem="refused", message="the model declined", text="No.")
        made = Candidate(files=(("candidate.py", source),), language="torch", origin=origin)
        return Answer(candidate=made, origin=origin)
"""


def test_a_run_of_a_generator_that_is_asked(tmp_path: Path, judge: Judge) -> None:
    module, store = tmp_path / "model.py", str(tmp_path / "s.db")
    module.write_text(OWN)
    cheap = {"tier": "quick", "directions": ("forward",), "categories": ("small",), "timed": False}
    run = pipeline.run((str(module),), ("relu",), judge=judge, store_url=store, **cheap)
    found = pipeline.score(store, run)["scores"]["model"]
    assert found["pass_at_k"]["1"]["value"] == pytest.approx(1 / 3)
    # three samples, one of them right: the refused one was paid for too
    assert found["cost"]["usd/sample"]["value"] == pytest.approx(0.25)
    assert found["cost"]["usd/correct"]["value"] == pytest.approx(0.75)
    assert found["cost"]["tokens_in/correct"]["value"] == pytest.approx(300)
    assert "generate/refused" in found["failures"]
    with open_store(store, write=False) as opened:
        refused = [a for a in opened.attempts(run) if not a.candidate]
        assert [(a.sample, a.origin.model) for a in refused if a.origin] == [(2, "m-1")]
        ((_, verdict),) = [(a, v) for a, v in opened.verdicts(run) if not a.candidate]
        assert (verdict.stage, verdict.reason, verdict.message) == ("generate", "refused", "the model declined")


class Slow:
    """Counts how many ask at once."""

    name, summary, samples, rounds, concurrency = "slow", "waits", 1, 1, 8

    def __init__(self, wrong_at: int = -1) -> None:
        self.lock, self.now, self.most, self.asked = threading.Lock(), 0, 0, 0
        self.wrong_at = wrong_at

    def ask(self, request: Request) -> Answer:
        with self.lock:
            self.now, self.asked = self.now + 1, self.asked + 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self.lock:
            self.now -= 1
        if request.sample == self.wrong_at:
            raise UsageError("no such model")
        return Answer(candidate=None, origin=Origin(sample=request.sample), problem="no_code")


def requests(n: int) -> list[Request]:
    return [Request(task=tasks.find("relu"), device="cpu", sample=i) for i in range(n)]


def test_as_many_are_asked_at_once_as_the_generator_bears_and_order_stays() -> None:
    maker, seen = Slow(), []
    found = ask_all(maker, requests(64), lambda event: seen.append((event.kind, event.done, event.total)))
    assert [answer.origin.sample for answer in found] == list(range(64))
    assert maker.most == 8
    assert seen[0] == ("generate", 0, 64)
    assert seen[-1] == ("generate", 64, 64)
    assert ask_all(maker, []) == []


def test_a_wrong_setting_ends_it_at_once() -> None:
    maker = Slow(wrong_at=3)
    with pytest.raises(UsageError, match="no such model"):
        ask_all(maker, requests(400))
    assert maker.asked < 100


def test_a_generator_needs_either_of_two_faces(tmp_path: Path) -> None:
    module = tmp_path / "half.py"
    module.write_text(OWN.replace("    concurrency = 2\n", ""))
    with pytest.raises(UsageError, match=r"candidates\(\); or .*ask\(\)"):
        generators.find(str(module))


def test_a_wrong_generator_leaves_no_store(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with pytest.raises(UsageError, match="no generator is called"):
        pipeline.run(("robst",), ("relu",), device="cpu", store_url=str(store))
    assert not store.exists()
    kept = Kept(str(store))
    assert not store.exists()
    kept.put_response("k", {"text": "a"})
    assert Kept(str(store)).response("k") == {"text": "a"}
