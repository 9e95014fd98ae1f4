"""One exchange with Anthropic's messages API."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from kerneleval.generators.llm.endpoint import Exchange, Mishap, Reply
from kerneleval.generators.llm.prices import Usage
from kerneleval.generators.llm.settings import Settings
from kerneleval.records.errors import optional

_MOST_TOKENS = 32_768
"""The API wants a limit; this one is sent where the settings have none."""

_FINISHES = {"end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "refusal": "content_filter"}
"""Why an answer ended, in chat completions' words."""


class Anthropic(Exchange):
    """Messages, always streamed: the API refuses long answers otherwise. It knows no seed, so that ``sample`` changes
    nothing. Raises UsageError where the package is not installed, or the key is missing.
    """

    def __init__(self, settings: Settings, place: str) -> None:
        with optional(f"{place}: this API needs", "anthropic"):
            import anthropic
            import httpx2  # noqa: F401 - what the package sends with
        super().__init__(settings, place, anthropic, anthropic.Anthropic)

    def _request(self, messages: Sequence[tuple[str, str]]) -> dict[str, Any]:
        given = self._settings
        body: dict[str, Any] = {
            "model": given.model,
            "max_tokens": given.max_tokens or _MOST_TOKENS,
            "system": "\n\n".join(text for role, text in messages if role == "system"),
            "messages": [{"role": role, "content": text} for role, text in messages if role != "system"],
            "extra_body": dict(given.extra),
        }
        for name in ("temperature", "top_p"):
            if not math.isnan(value := getattr(given, name)):
                body["extra_body"][name] = value  # not all models take them: the package no longer knows them
        return body

    def _answered(self, messages: Sequence[tuple[str, str]], sample: int, until: float) -> Reply:
        with self._client.messages.stream(**self._request(messages)) as stream:
            for _ in stream:
                if time.monotonic() > until:
                    raise Mishap(f"the answer took more than {self._settings.total_s:g} s")
            made = stream.get_final_message()
        finish = getattr(made, "stop_reason", None) or ""
        if not finish:
            raise Mishap("the answer was cut: it ended without a reason")
        text = "".join(part.text for part in made.content if part.type == "text")
        return Reply(text=text, finish=_FINISHES.get(finish, finish), model=made.model, usage=_usage(made.usage))


def _usage(said: Any) -> Usage | None:
    """The API counts what it reads from, or writes into, its cache apart from other prompt tokens."""
    fresh, after = getattr(said, "input_tokens", None), getattr(said, "output_tokens", None)
    if not isinstance(fresh, int) or not isinstance(after, int):
        return None
    cached = getattr(said, "cache_read_input_tokens", None) or 0
    written = getattr(said, "cache_creation_input_tokens", None) or 0
    return Usage(tokens_in=fresh + cached + written, tokens_out=after, tokens_cached=cached, tokens_written=written)
