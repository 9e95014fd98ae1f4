"""Anthropic's API, played by a server on this machine."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from kerneleval import tasks
from kerneleval.generators.llm import Model
from kerneleval.generators.llm.settings import settings_of
from kerneleval.records import Answer, Request, UsageError

from .chat_server import GOOD, ChatServer, Say, in_turn, serving

pytestmark = pytest.mark.skipif(  # not by an import, for which every test process takes seconds
    importlib.util.find_spec("anthropic") is None,
    reason="the anthropic package is not installed (pip install 'kerneleval[anthropic]')",
)

USAGE = {
    "input_tokens": 50,
    "output_tokens": 300,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 150,
}


def asked(*said: Say, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Answer, ChatServer]:
    monkeypatch.setattr("kerneleval.generators.llm.endpoint._FIRST_S", 0.01)
    monkeypatch.setenv("LAB_KEY", "s3cret")
    with serving(in_turn(*said)) as server:
        table = {"model": "lab-1", "api": "anthropic", "base_url": server.url.removesuffix("/v1")}
        table |= {"api_key_env": "LAB_KEY", "language": "torch", "prices": {"input": 2.0, "output": 8.0, "cached": 0.5}}
        model = Model(settings_of(table | settings, "m.toml"), "m.toml")
        return model.ask(Request(task=tasks.find("relu"), device="cpu")), server


@pytest.mark.slow
def test_an_answer_with_all_that_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, server = asked(
        Say(usage=USAGE, finish="end_turn", model="claude-x"), monkeypatch=monkeypatch, temperature=0.5
    )
    assert answer.problem == "" and answer.text == GOOD and answer.candidate is not None
    origin = answer.origin
    assert (origin.model, origin.tokens_in, origin.tokens_out, origin.tokens_cached) == ("claude-x", 1200, 300, 1000)
    assert origin.money_usd == pytest.approx((200 * 2.0 + 1000 * 0.5 + 300 * 8.0) / 1e6, abs=1e-12)
    (sent,) = server.requests
    assert sent["path"] == "/v1/messages" and sent["temperature"] == 0.5 and sent["max_tokens"] > 1000
    assert sent["system"] and {m["role"] for m in sent["messages"]} == {"user"}
    assert "s3cret" in {v.removeprefix("Bearer ") for v in server.headers[0].values()}


@pytest.mark.parametrize(
    "mishap", [Say(status=529, text="overloaded"), Say(status=500, text="no"), Say(usage=USAGE, cut_after=24)]
)
def test_mishaps_are_tried_again(mishap: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    answer, server = asked(mishap, Say(usage=USAGE, finish="end_turn"), monkeypatch=monkeypatch)
    assert answer.problem == "" and len(server.requests) == 2


def test_limits_and_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Say(text=GOOD[: GOOD.index("return")], usage=USAGE, finish="max_tokens")
    assert asked(cut, monkeypatch=monkeypatch)[0].problem == "truncated"
    assert asked(Say(text="so", usage=USAGE, finish="refusal"), monkeypatch=monkeypatch)[0].problem == "refused"
    with pytest.raises(UsageError, match="look at the key"):
        asked(Say(status=401, text="no"), monkeypatch=monkeypatch)
