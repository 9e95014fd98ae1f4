"""A model behind an endpoint on this machine: what is sent, what comes back, and everything that goes wrong between."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

pytest.importorskip("openai", reason="the openai package is not installed (pip install 'kerneleval[llm]')")

from kerneleval import tasks
from kerneleval.generators.llm import Model
from kerneleval.generators.llm.endpoint import _FIRST_S  # noqa: F401 - patched
from kerneleval.generators.llm.settings import PriceTable, settings_of
from kerneleval.records import Answer, EarlierRound, Request, UsageError

from .chat_server import GOOD, ChatServer, Say, in_turn, serving

OWN = {"input": 2.0, "output": 8.0, "cached": 0.5, "date": "2026-11-01"}


class Kept(dict[str, dict[str, Any]]):
    """A cache in memory."""

    def response(self, key: str) -> dict[str, Any] | None:
        return self.get(key)

    def put_response(self, key: str, body: dict[str, Any]) -> None:
        self.setdefault(key, body)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kerneleval.generators.llm.endpoint._FIRST_S", 0.01)


def model(server: ChatServer, cache: Any = None, **settings: Any) -> Model:
    table = {
        "model": "lab/tiny",
        "base_url": server.url,
        "language": "torch",
        "timeout_s": 5.0,
        "examples": 0,
    } | settings
    return Model(settings_of(table, "m.toml: [generator]"), "m.toml: [generator]", cache)


def request(task: str = "relu", **changes: Any) -> Request:
    return Request(task=tasks.find(task), device="cpu", **changes)


def asked(*said: Say, **settings: Any) -> tuple[Answer, ChatServer]:
    with serving(in_turn(*said)) as server:
        return model(server, **settings).ask(request()), server


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_with_all_that_it_cost(stream: bool) -> None:
    answer, server = asked(
        Say(), stream=stream, prices=OWN, temperature=0.7, seed=5, max_tokens=999, extra={"top_k": 3}
    )
    assert answer.problem == "" and answer.text == GOOD
    assert answer.candidate is not None
    assert answer.candidate.files == (("candidate.py", "import torch\n\n\ndef relu(x):\n    return torch.relu(x)\n"),)
    origin = answer.origin
    assert answer.candidate.origin == origin
    assert (origin.generator, origin.model, origin.sample, origin.round) == ("tiny", "tiny-1", 0, 0)
    assert (origin.tokens_in, origin.tokens_out) == (1200, 300)
    assert (origin.tokens_cached, origin.tokens_reasoning) == (1000, 120)
    assert origin.money_usd == pytest.approx((200 * 2.0 + 1000 * 0.5 + 300 * 8.0) / 1e6, abs=1e-12)
    assert origin.prices == "own table of 2026-11-01"
    assert origin.seconds > 0
    (sent,) = server.requests
    assert sent["path"] == "/v1/chat/completions"
    assert sent["model"] == "lab/tiny" and sent["temperature"] == 0.7 and sent["seed"] == 5
    assert sent["max_tokens"] == 999 and sent["top_k"] == 3 and "top_p" not in sent
    assert sent["messages"][-1]["role"] == "user" and "relu" in sent["messages"][-1]["content"]
    assert bool(sent.get("stream")) == stream


def test_prices_are_those_of_the_public_list() -> None:
    from genai_prices import Usage, calc_price

    with serving(in_turn(Say(model="gpt-4o-2024-08-06"))) as server:
        answer = model(server, model="gpt-4o").ask(request())
    assert (answer.origin.money_usd, answer.origin.prices) == (0.0, ""), "an endpoint of one's own has no public price"
    from kerneleval.generators.llm import settings as prices

    used = prices.Usage(tokens_in=1200, tokens_out=300, tokens_cached=1000)
    money, told = prices.price_of(used, settings_of({"model": "gpt-4o"}, "m"), "gpt-4o-2024-08-06")
    listed = calc_price(Usage(input_tokens=1200, output_tokens=300, cache_read_tokens=1000), "gpt-4o")
    assert money == pytest.approx(float(listed.total_price), abs=1e-12) and money > 0
    assert told.startswith("genai-prices ") and "gpt-4o" in told


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "mishap",
    [
        Say(status=500, text="internal"),
        Say(status=503, text="overloaded"),
        Say(status=408, text="too slow"),
        Say(cut_after=30),
        Say(raw=b"{'no': json"),
        Say(raw=b"[]"),
        Say(raw=b""),
        Say(raw=b'{"choices": []}'),
        Say(raw=b'data: {"choices": [{"delta": {"content": 7'),
    ],
)
def test_mishaps_are_tried_again(mishap: Say, stream: bool) -> None:
    answer, server = asked(mishap, mishap, Say(), stream=stream)
    assert answer.problem == "" and answer.text == GOOD
    assert len(server.requests) == 3


def test_a_stream_without_an_end_was_cut() -> None:
    answer, server = asked(Say(finish=""), Say())
    assert answer.problem == "" and len(server.requests) == 2


def test_a_hanging_request_is_given_up() -> None:
    answer, server = asked(Say(hang=True), Say(), timeout_s=0.5)
    assert answer.problem == "" and len(server.requests) == 2


def test_an_answer_that_drips_for_ever_is_given_up() -> None:
    begun = time.monotonic()
    answer, _ = asked(Say(text="x" * 24 * 1000, delay_s=0.3), total_s=0.1, tries=2)
    assert answer.problem == "endpoint" and "took more than 0.1 s" in answer.message
    assert time.monotonic() - begun < 5


def test_it_gives_up_after_as_many_tries_as_allowed() -> None:
    answer, server = asked(Say(status=502, text="bad gateway"), tries=3)
    assert answer.candidate is None and answer.problem == "endpoint"
    assert "sent 3 times" in answer.message and "bad gateway" in answer.message
    assert len(server.requests) == 3


def test_a_pause_that_is_asked_for_holds_for_all() -> None:
    def script(body: Any, number: int) -> Say:
        return Say(status=429, text="slow down", headers=(("Retry-After", "1"),)) if number == 0 else Say(delay_s=0.05)

    with serving(script) as server:
        made = model(server)
        first = threading.Thread(target=made.ask, args=(request(),))
        first.start()
        while server.answered < 1:
            time.sleep(0.01)
        time.sleep(0.1)
        answer = made.ask(request(sample=1))
        first.join()
    assert answer.problem == ""
    assert len(server.times) == 3
    assert min(server.times[1:]) - server.times[0] >= 0.95


def test_a_pause_as_a_date_and_one_that_is_too_long() -> None:
    from email.utils import formatdate

    from kerneleval.generators.llm.endpoint import pause_of

    assert pause_of({"retry-after": formatdate(time.time() + 30, usegmt=True)}) == pytest.approx(30, abs=2)
    assert pause_of({"retry-after-ms": "1500"}) == 1.5
    assert pause_of({"retry-after": "nan"}) == pause_of({"retry-after": "soon"}) == pause_of({}) == 0.0
    answer, server = asked(
        Say(status=429, text="come back tomorrow", headers=(("Retry-After", "86400"),)), max_wait_s=5.0
    )
    assert answer.problem == "endpoint" and "come back tomorrow" in answer.message
    assert len(server.requests) == 1


@pytest.mark.parametrize(("status", "told"), [(401, "the key"), (403, "rights"), (404, "base_url and model")])
def test_settings_that_no_request_can_mend(status: int, told: str) -> None:
    with pytest.raises(UsageError, match=f"m.toml.*status {status}.*{told}"):
        asked(Say(status=status, text="no"))


def test_a_request_that_is_not_taken() -> None:
    answer, server = asked(Say(status=400, text="maximum context length is 10"))
    assert answer.problem == "endpoint" and "maximum context length" in answer.message
    assert len(server.requests) == 1
    answer, _ = asked(Say(status=400, text="blocked by the content_filter"))
    assert answer.problem == "refused"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (Say(text="I'm sorry, but I can't help with that."), "refused"),
        (Say(text="", refusal="I cannot do that."), "refused"),
        (Say(text="so far", finish="content_filter"), "refused"),
        (Say(text=GOOD[: GOOD.index("return")], finish="length"), "truncated"),
        (Say(text="Use a kernel."), "no_code"),
        (Say(text=""), "no_code"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_answers_without_a_candidate_still_cost(said: Say, problem: str, stream: bool) -> None:
    answer, server = asked(said, stream=stream, prices=OWN)
    assert (answer.candidate, answer.problem) == (None, problem)
    assert answer.message and answer.origin.money_usd > 0
    assert len(server.requests) == 1


@pytest.mark.parametrize("usage", [None, {"prompt_tokens": -1, "completion_tokens": 3}, {"total_tokens": 4}])
def test_missing_usage_is_not_made_up(usage: Any) -> None:
    answer, _ = asked(Say(usage=usage), prices=OWN, stream=False)
    assert answer.problem == ""
    assert (answer.origin.tokens_in, answer.origin.tokens_out) == (0, 0)
    assert (answer.origin.money_usd, answer.origin.prices) == (0.0, "")


def test_what_was_paid_for_is_not_asked_again() -> None:
    cache = Kept()
    with serving(in_turn(Say())) as server:
        first = model(server, cache, prices=OWN).ask(request())
        again = model(server, cache, prices=OWN).ask(request())
        assert again == first and len(server.requests) == 1
        model(server, cache).ask(request(sample=1))
        model(server, cache).ask(request(task="gelu"))
        model(server, cache, temperature=0.1).ask(request())
        assert len(server.requests) == 4
    (key, body) = next(iter(cache.items()))
    assert body["prompt"][-1][1] == server.requests[0]["messages"][-1]["content"]
    assert len(key) == 64


def test_failures_are_not_kept() -> None:
    cache = Kept()
    with serving(in_turn(Say(status=500, text="no"), Say())) as server:
        assert model(server, cache, tries=1).ask(request()).problem == "endpoint"
        assert not cache
        assert model(server, cache, tries=1).ask(request()).problem == ""


def test_an_earlier_round_is_told() -> None:
    with serving(in_turn(Say())) as server:
        made = model(server)
        first = made.ask(request())
        second = made.ask(request(history=(EarlierRound(answer=first, feedback="It is wrong at 33 columns."),)))
    assert second.origin.round == 1
    assert first.candidate is not None and second.origin.parent == first.candidate.hash
    said = [message["content"] for message in server.requests[1]["messages"]]
    assert said[-2] == GOOD.strip() and "wrong at 33 columns" in said[-1]


def test_the_key_is_sent_and_kept_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_KEY", "s3cret")
    cache = Kept()
    with serving(in_turn(Say())) as server:
        answer = model(server, cache, api_key_env="LAB_KEY").ask(request())
    assert {k.lower(): v for k, v in server.headers[0].items()}["authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr((cache, answer))
    monkeypatch.delenv("LAB_KEY")
    with serving(in_turn(Say())) as server, pytest.raises(UsageError, match="LAB_KEY"):
        model(server, api_key_env="LAB_KEY").ask(request())


def test_nobody_waits_after_a_stop() -> None:
    with serving(in_turn(Say(status=429, text="later", headers=(("Retry-After", "300"),)))) as server:
        made = model(server)
        found: list[Answer] = []
        threads = [threading.Thread(target=lambda s=s: found.append(made.ask(request(sample=s)))) for s in range(4)]
        for thread in threads:
            thread.start()
        while not server.answered:
            time.sleep(0.01)
        begun = time.monotonic()
        made.stop()
        for thread in threads:
            thread.join(timeout=20)
    assert time.monotonic() - begun < 10
    assert [answer.problem for answer in found] == ["endpoint"] * 4
    assert "given up" in found[0].message


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({}, "model is missing"),
        ({"model": "a", "temprature": 1}, "temprature is unknown; did you mean temperature"),
        ({"model": "a", "samples": 0}, "samples must be 1 or more, not 0"),
        ({"model": "a", "samples": "3"}, "samples must be a whole number, not '3'"),
        ({"model": "a", "stream": 1}, "stream must be true or false"),
        ({"model": "a", "temperature": float("inf")}, "temperature must be finite"),
        ({"model": "a", "base_url": "localhost:8000"}, "base_url must begin with http"),
        ({"model": "a", "api": "opena"}, "did you mean openai"),
        ({"model": "a", "language": "tritn"}, "did you mean triton"),
        ({"model": "a", "prices": {"input": 1}}, "prices output is missing"),
        ({"model": "a", "prices": {"input": 1, "output": -1}}, "output must be 0 or more"),
        ({"model": "a", "prices": 3}, "prices must be a table"),
        ({"model": "a", "extra": {"messages": []}}, "extra must not hold 'messages'"),
        ({"model": "a", "name": "a:b"}, "neither colons"),
        ({"model": "a", "top_p": 0}, "top_p must be above 0"),
    ],
)
def test_wrong_settings_are_named(table: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=rf"^m.toml: \[generator\] .*{told}"):
        settings_of(table, "m.toml: [generator]")


def test_names_of_models() -> None:
    assert settings_of({"model": "org/big:7b"}, "m").name == "big-7b"
    assert settings_of({"model": "x", "prices": {"input": 1, "output": 2}}, "m").prices == PriceTable(input=1, output=2)
