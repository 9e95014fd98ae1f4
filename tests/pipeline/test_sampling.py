"""Many samples of a model through the command line: killed, resumed, capped, without an endpoint; money to the cent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="the openai package is not installed (pip install 'kerneleval[llm]')")

from tests.commands import kerneleval
from tests.generators.llm.chat_server import GOOD, ChatServer, Say, serving

from kerneleval import pipeline
from kerneleval.judge import Judge
from kerneleval.records import InfrastructureError, UsageError
from kerneleval.store import open_store

PRICES = "[generator.prices]\ninput = 2.5\noutput = 10.0\ncached = 1.25\n"
SAMPLES = 150
WRONG = GOOD.replace("torch.relu(x)", "2 * x")
"""Whose verdict takes no measurement."""


def usage(sample: int) -> dict[str, Any]:
    """Tokens that tell the samples apart."""
    return {
        "prompt_tokens": 1000 + sample,
        "completion_tokens": 100 + 3 * (sample % 7),
        "prompt_tokens_details": {"cached_tokens": sample % 5 * 100},
    }


def price(sample: int) -> float:
    told = usage(sample)
    cached = told["prompt_tokens_details"]["cached_tokens"]
    return ((told["prompt_tokens"] - cached) * 2.5 + cached * 1.25 + told["completion_tokens"] * 10.0) / 1e6


def settings(folder: Path, server: ChatServer, prices: str = PRICES, **more: Any) -> str:
    path = folder / "model.toml"
    lines = {"kind": "llm", "model": "lab/tiny", "base_url": server.url, "language": "torch", "seed": 0} | more
    path.write_text("[generator]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in lines.items()) + prices)
    return str(path)


def words(path: str, store: Path) -> list[str]:
    """Of a run whose verdicts cost little: what is tested is the sampling."""
    options = ["-g", path, "-t", "relu", "--device", "cpu", "--quick", "--direction", "forward", "--dtype", "fp32"]
    options += ["--distribution", "standard"]
    return ["run", *options, "--store", str(store), "--json"]


def started(words: list[str], **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "kerneleval", *words], stdout=subprocess.PIPE, **more)


def run(path: str, store: Path, judge: Judge, **options: Any) -> str:
    common: dict[str, Any] = {"tier": "quick", "directions": ("forward",), "categories": ("tiny",), "timed": False}
    return pipeline.run((path,), ("relu",), judge=judge, store_url=str(store), **common, **options)


def _kept(store: Path) -> int:
    with contextlib.closing(sqlite3.connect(store)) as database:
        return int(database.execute("select count(*) from responses").fetchone()[0])


@pytest.mark.slow
def test_many_samples_killed_and_resumed(tmp_path: Path) -> None:
    def script(body: dict[str, Any], number: int) -> Say:
        if number % 50 == 7:
            return Say(status=500, text="try again")
        if number % 97 == 11:
            return Say(cut_after=24)
        # The first answers take so long that a busy machine, too, has 64 requests under way.
        return Say(text=WRONG, usage=usage(body["seed"]), delay_s=3.0 if number < 64 else 0.3)

    store = tmp_path / "s.db"
    with serving(script) as server:
        path = settings(tmp_path, server, samples=SAMPLES, concurrency=64)
        process = started(words(path, store), stderr=subprocess.PIPE)
        until = time.monotonic() + 120
        while server.answered < SAMPLES / 2 or _kept(store) < SAMPLES / 5:
            assert process.poll() is None and time.monotonic() < until, process.communicate()[1]
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert 40 <= server.most_open <= 64
        time.sleep(0.5)
        kept = _kept(store)
        assert kept >= SAMPLES / 5
        before = len(server.requests)
        done = kerneleval(*words(path, store))
        assert done.returncode == 0, done.stderr
        later = [request["seed"] for request in server.requests[before:]]
        assert len(set(later)) == SAMPLES - kept, "what was answered and kept is not asked again"
    found = json.loads(done.stdout)["scores"]["tiny"]["cost"]
    total = sum(price(sample) for sample in range(SAMPLES))
    assert found["usd/sample"]["n"] == SAMPLES
    assert found["usd/sample"]["value"] * SAMPLES == pytest.approx(total, abs=1e-6)
    assert total == pytest.approx(0.55, abs=0.05), "or a thousandth of a cent says nothing"
    with open_store(str(store), write=False) as opened:
        (info,) = opened.runs()
        assert info.complete and info.planned == SAMPLES
        origins = {a.sample: a.origin for a in opened.attempts(info.id)}
    for sample, origin in origins.items():
        assert origin is not None and origin.money_usd == pytest.approx(price(sample), abs=1e-12)


@pytest.mark.slow
def test_ctrl_c_ends_it_at_once_and_a_hanging_endpoint_keeps_nobody(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    with serving(lambda body, number: Say(hang=True)) as server:
        process = started(
            words(settings(tmp_path, server, samples=8), store),
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONFAULTHANDLER": "1"},
            preexec_fn=lambda: signal.signal(
                signal.SIGINT, signal.SIG_DFL
            ),  # a shell ignores it for what runs behind it
        )
        until = time.monotonic() + 60
        while len(server.requests) < 8:
            assert process.poll() is None and time.monotonic() < until, process.communicate()[0]
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # says where each thread is
            pytest.fail(f"it goes on:\n{process.communicate()[0].decode(errors='replace')}")
        assert process.returncode == 130


@pytest.mark.parametrize(("cap", "most"), [({"max_usd": 0.03}, 9), ({"max_tokens": 9000}, 9)], ids=["money", "tokens"])
def test_a_cap_ends_a_run_that_goes_on_later(tmp_path: Path, judge: Judge, cap: dict[str, Any], most: int) -> None:
    store, told = tmp_path / "s.db", []
    with serving(lambda body, number: Say(usage=usage(body["seed"]))) as server:
        path = settings(tmp_path, server, samples=20, concurrency=2)
        first = run(path, store, judge, **cap, on_event=lambda event: told.append(event.text))
        asked = len(server.requests)
        assert 4 <= asked <= most
        with open_store(str(store), write=False) as opened:
            info = opened.run(first)
            assert info.finished == asked and not info.complete
        assert any("attempts are left" in text and "is reached" in text for text in told)
        second = run(path, store, judge)
        assert second == first and len(server.requests) == 20
    with open_store(str(store), write=False) as opened:
        assert opened.run(first).complete


def test_money_that_is_not_known_cannot_be_limited(tmp_path: Path, judge: Judge) -> None:
    with serving(lambda body, number: Say()) as server:
        path = settings(tmp_path, server, prices="")
        with pytest.raises(UsageError, match=r"--max-usd cannot be kept.*generator.prices"):
            run(path, tmp_path / "s.db", judge, max_usd=1.0)
    with pytest.raises(UsageError, match="--max-tokens must be above 0, not 0"):
        run(path, tmp_path / "s.db", judge, max_tokens=0)


def test_an_endpoint_that_fails_leaves_its_samples_open(tmp_path: Path, judge: Judge) -> None:
    broken = {"now": True}

    def script(body: dict[str, Any], number: int) -> Say:
        return Say(status=503, text="overloaded") if broken["now"] and body["seed"] == 1 else Say()

    store = tmp_path / "s.db"
    with serving(script) as server:
        path = settings(tmp_path, server, samples=3, tries=1)
        with pytest.raises(InfrastructureError, match=r"1 of the samples got no answer.*sample 1.*overloaded.*goes on"):
            run(path, store, judge)
        with open_store(str(store), write=False) as opened:
            (info,) = opened.runs()
            assert (info.planned, info.finished) == (3, 2)
        broken["now"] = False
        assert run(path, store, judge) == info.id
        assert [r["seed"] for r in server.requests].count(0) == 1
    with open_store(str(store), write=False) as opened:
        assert opened.run(info.id).complete
