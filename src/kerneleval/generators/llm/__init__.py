"""Models behind an endpoint: any that speaks OpenAI's chat completions (hosted, vLLM, Ollama ...), or Anthropic's API.

``docs/models.md`` has the settings. What a model answers is never executed here.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Mapping
from typing import Any

from kerneleval.generators.common.base import Cache, candidate_name, usual_language
from kerneleval.generators.common.prompts import Prompt, extract, render
from kerneleval.generators.common.registry import KINDS
from kerneleval.generators.llm.endpoint import Anthropic, Declined, Exchange, Mishap, OpenAI, Reply, Retries, Stopped
from kerneleval.generators.llm.settings import Settings, Usage, price_of, settings_of
from kerneleval.records import Answer, Candidate, Origin, Request, digest


@KINDS.register(name="llm")
def from_settings(table: Mapping[str, Any], place: str, cache: Cache | None = None) -> Model:
    """The model of a settings file. Raises UsageError, which names file and key, where something in it is wrong."""
    return Model(settings_of(table, place), place, cache)


class Model:
    """A model that gives candidates. ``place`` is where the settings stand, for messages; answers are kept in
    the cache; without an endpoint the one of the settings is used, opened for the first request.
    """

    def __init__(
        self, settings: Settings, place: str = "model", cache: Cache | None = None, endpoint: Exchange | None = None
    ) -> None:
        self.settings, self._place, self._cache, self._endpoint = settings, place, cache, endpoint
        self.name = settings.name
        self.samples, self.rounds, self.concurrency = settings.samples, settings.rounds, settings.concurrency
        self._retries = Retries(settings)
        self._lock = threading.Lock()

    @property
    def summary(self) -> str:
        """Which model, and where."""
        return f"the model {self.settings.model} at {self.settings.url}"

    @property
    def identity(self) -> str:
        """Digest of all that its answers depend on but the task: another one is another run."""
        given = self.settings
        parts = (given.language, given.template, given.examples, given.samples, given.rounds)
        return digest(*(f"{key}={value!r}" for key, value in sorted(given.asked.items())), *map(repr, parts))

    def language(self, device: str) -> str:
        """Language of the candidates for a device kind."""
        return self.settings.language or usual_language(device)

    def prompt(self, request: Request) -> Prompt:
        """What is sent to the model. Raises UsageError: no prompt in this language, or an error in the template."""
        return render(
            request,
            language=self.language(request.device),
            examples=self.settings.examples,
            template=self.settings.template,
        )

    def price(self, usage: Usage, model: str = "") -> tuple[float, str]:
        """US dollars for so many tokens and the list that they are from; (0, ""): no list has the model."""
        return price_of(usage, self.settings, model)

    def stop(self) -> None:
        """Give up what is under way: its answer is not wanted any more."""
        self._retries.stop()
        with self._lock:
            if self._endpoint is not None:
                self._endpoint.close()

    def ask(self, request: Request) -> Answer:
        """See :meth:`kerneleval.generators.common.base.Asked.ask`."""
        prompt = self.prompt(request)
        key = self._key(prompt, request)
        kept = self._cache.response(key) if self._cache is not None else None
        if kept is None:
            origin = self._origin(request, prompt)
            begun = time.monotonic()
            try:
                reply, mishaps = self._retries.call(lambda: self._asked().complete(prompt.messages, request.sample))
            except Declined as error:
                origin = dataclasses.replace(origin, seconds=time.monotonic() - begun)
                return Answer.without("refused" if error.filtered else "endpoint", f"{error}", origin)
            except Mishap as error:
                origin = dataclasses.replace(origin, seconds=time.monotonic() - begun)
                return Answer.without("endpoint", f"no answer came: {error}", origin)
            except Stopped:
                return Answer.without("endpoint", "it was given up before an answer came", origin)
            kept = self._body(reply, prompt, mishaps, time.monotonic() - begun)
            if self._cache is not None:
                self._cache.put_response(key, kept)
        return self._answer(kept, request, prompt)

    def _asked(self) -> Exchange:
        with self._lock:
            if self._endpoint is None:
                api = Anthropic if self.settings.api == "anthropic" else OpenAI
                self._endpoint = api(self.settings, self._place)
            return self._endpoint

    def _key(self, prompt: Prompt, request: Request) -> str:
        """All that the answer depends on: a sample's index too, for samples of one prompt are to differ."""
        asked = sorted(self.settings.asked.items())
        return digest("llm/1", *(f"{k}={v!r}" for k, v in asked), prompt.hash, str(request.sample), str(request.round))

    def _origin(self, request: Request, prompt: Prompt) -> Origin:
        return Origin(
            generator=self.name,
            model=self.settings.model,
            prompt_hash=prompt.hash,
            sample=request.sample,
            parent=request.parent,
            round=request.round,
            human_edits=0,
            guidance=self.settings.guidance or ("" if self.settings.template.endswith(".j2") else "none"),
        )

    def _body(self, reply: Reply, prompt: Prompt, mishaps: list[str], seconds: float) -> dict[str, Any]:
        """What is kept of an answer: with the price of its day, and the prompt as it was sent."""
        money, prices = price_of(reply.usage, self.settings, reply.model) if reply.usage else (0.0, "")
        return {
            "asked": self.settings.asked,
            "prompt": [list(message) for message in prompt.messages],
            "template": prompt.template,
            "text": reply.text,
            "finish": reply.finish,
            "refusal": reply.refusal,
            "model": reply.model,
            "usage": dataclasses.asdict(reply.usage) if reply.usage else None,
            "money_usd": money,
            "prices": prices,
            "seconds": seconds,
            "mishaps": mishaps,
            "answered_unix_s": time.time(),
        }

    def _answer(self, kept: Mapping[str, Any], request: Request, prompt: Prompt) -> Answer:
        used = kept["usage"] or {}
        origin = dataclasses.replace(
            self._origin(request, prompt),
            model=kept["model"] or self.settings.model,
            **{name: used.get(name, 0) for name in ("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning")},
            money_usd=kept["money_usd"],
            prices=kept["prices"],
            seconds=kept["seconds"],
        )
        text, refusal = str(kept["text"]), str(kept["refusal"])
        if kept["finish"] == "content_filter" or (refusal and not text):
            said = refusal or "the endpoint's filter took the answer"
            return Answer.without("refused", f"The model declined: {said[:300]}", origin, text or refusal)
        language = self.language(request.device)
        source, problem, message = extract(text, language=language, finished=kept["finish"] != "length")
        if not source:
            return Answer.without(problem, message, origin, text)
        name = candidate_name(language)
        candidate = Candidate(files=((name, source),), language=language, origin=origin)
        return Answer(candidate=candidate, origin=origin, text=text)
