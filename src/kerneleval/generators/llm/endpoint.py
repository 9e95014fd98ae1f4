"""One exchange with an endpoint, by OpenAI's chat completions or Anthropic's messages: what is sent, what every mishap
becomes, and the same request again after one: exponential waits with jitter, and the pauses that an endpoint demands.
"""

from __future__ import annotations

import abc
import email.utils
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kerneleval.generators.llm.settings import Settings, Usage
from kerneleval.records import UsageError
from kerneleval.records.errors import optional

_REPEATED = frozenset({408, 409, 425, 429})
"""Statuses below 500 after which the same request may well succeed."""

_SETTINGS = {401: "the key", 403: "the key's rights", 404: "base_url and model"}
"""Statuses that no request of this generator can do anything about -> what is to be looked at."""

_LONGEST = 16 << 20
"""Characters of an answer; what goes on for longer is cut there, and counts as cut off."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A whole answer."""

    text: str
    finish: str
    """Why it ended, in chat completions' words: ``stop``, ``length``, ``content_filter`` ..."""
    model: str
    usage: Usage | None
    refusal: str = ""
    """What a model said when it declined, where the endpoint marks it."""


class Mishap(Exception):  # noqa: N818 - it is no error but something to be tried again
    """No whole answer came, and the same request may still succeed."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s
        """For how long the endpoint wants no request."""


class Declined(Exception):  # noqa: N818 - an answer, not an error
    """The endpoint does not take this request, and never will."""

    def __init__(self, message: str, *, filtered: bool = False) -> None:
        super().__init__(message)
        self.filtered = filtered
        """Whether it was for what the request says."""


class Exchange(abc.ABC):
    """An API by its maker's package: those of OpenAI and Anthropic have the same names for clients and errors."""

    def __init__(self, settings: Settings, place: str, package: Any, client: Any) -> None:
        self._settings, self._place, self._package = settings, place, package
        self._client = client(
            base_url=settings.url,
            api_key=_key_of(settings, place) or "none",
            timeout=package.Timeout(settings.timeout_s, connect=min(30.0, settings.timeout_s)),
            max_retries=0,  # they are ours: the package's know neither streams that are cut nor each other
        )

    def close(self) -> None:
        """End what is under way; waiting calls raise."""
        self._client.close()

    def complete(self, messages: Sequence[tuple[str, str]], sample: int) -> Reply:
        """The answer to (role, text) messages; called from many threads. Raises Mishap: nothing whole came; Declined:
        the request is not taken; UsageError: no request is taken with these settings.
        """
        import httpx2

        until = time.monotonic() + self._settings.total_s
        try:
            return self._answered(messages, sample, until)
        except self._package.APIStatusError as error:
            raise _explained(error, error.status_code, error.response.headers, self._settings, self._place) from error
        except (self._package.APIError, httpx2.HTTPError, httpx2.StreamError) as error:
            raise Mishap(f"{type(error).__name__}: {error}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise Mishap(f"the answer is no JSON: {error}") from error

    @abc.abstractmethod
    def _answered(self, messages: Sequence[tuple[str, str]], sample: int, until: float) -> Reply:
        """The answer, which takes until then (``time.monotonic()``) at most; raises the package's errors too."""


class OpenAI(Exchange):
    """Chat completions. Raises UsageError where the package is not installed, or the key is missing."""

    def __init__(self, settings: Settings, place: str) -> None:
        with optional(f"{place}: models need", "llm"):
            import httpx2  # noqa: F401 - what the package sends with
            import openai
        super().__init__(settings, place, openai, openai.OpenAI)

    def _answered(self, messages: Sequence[tuple[str, str]], sample: int, until: float) -> Reply:
        made = self._client.chat.completions.create(**self._request(messages, sample))
        return self._gathered(made, until) if self._settings.stream else _whole(made)

    def _request(self, messages: Sequence[tuple[str, str]], sample: int) -> dict[str, Any]:
        given = self._settings
        body: dict[str, Any] = {
            "model": given.model,
            "messages": [{"role": role, "content": text} for role, text in messages],
            "extra_body": dict(given.extra),
        }
        if given.stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        if given.max_tokens:
            body["extra_body"] |= {given.max_tokens_key: given.max_tokens}
        if given.seed >= 0:
            body["seed"] = given.seed + sample
        if given.reasoning_effort:
            body["reasoning_effort"] = given.reasoning_effort
        return body | given.sampling

    def _gathered(self, stream: Any, until: float) -> Reply:
        """An answer from its pieces; one that ends without saying why was cut."""
        texts: list[str] = []
        refusals: list[str] = []
        finish, model, usage, length = "", "", None, 0
        with stream:
            for piece in stream:
                if time.monotonic() > until:
                    raise Mishap(f"the answer took more than {self._settings.total_s:g} s")
                model = getattr(piece, "model", "") or model
                usage = _usage(getattr(piece, "usage", None)) or usage
                for choice in (getattr(piece, "choices", None) or [])[:1]:
                    delta = getattr(choice, "delta", None)
                    texts.append(getattr(delta, "content", None) or "")
                    refusals.append(getattr(delta, "refusal", None) or "")
                    length += len(texts[-1])
                    finish = getattr(choice, "finish_reason", None) or finish
                if length > _LONGEST:
                    finish = "length"
                    break
        if not finish:
            raise Mishap("the answer was cut: it ended without a reason")
        return Reply(text="".join(texts), finish=finish, model=model, usage=usage, refusal="".join(refusals))


def _key_of(settings: Settings, place: str) -> str:
    """The endpoint's key; empty: none is sent. Raises UsageError where the environment variable is not set."""
    if not settings.key_env:
        return ""
    key = os.environ.get(settings.key_env, "")
    if not key:
        raise UsageError(
            f"{place} {settings.url} needs a key: set the environment variable {settings.key_env}, or name another as "
            "api_key_env"
        )
    return key


def _explained(
    error: Exception, status: int, headers: Mapping[str, str], settings: Settings, place: str
) -> Mishap | Declined | UsageError:
    """What a status other than success means."""
    message = f"status {status}: {str(error)[:500]}"
    if status in _SETTINGS:
        return UsageError(f"{place} {settings.url} answered {message}; look at {_SETTINGS[status]}")
    if status in _REPEATED or status >= 500:
        return Mishap(message, pause_of(headers))
    filtered = any(word in str(error).lower() for word in ("content_filter", "content policy", "content management"))
    return Declined(message, filtered=filtered)


def pause_of(headers: Mapping[str, str]) -> float:
    """Seconds for which a response wants no request (RFC 9110, 10.2.3: seconds or a date); 0: it does not say."""
    for name, unit_s in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        said = (headers.get(name) or "").strip()
        try:
            number = float(said) * unit_s
        except ValueError:
            parsed = email.utils.parsedate_tz(said) if said else None
            number = email.utils.mktime_tz(parsed) - time.time() if parsed else 0.0
        if math.isfinite(number) and number > 0:
            return number
    return 0.0


def _whole(made: Any) -> Reply:
    choices: Iterable[Any] = getattr(made, "choices", None) or ()
    choice = next(iter(choices), None)
    message = getattr(choice, "message", None)
    if message is None:
        raise Mishap(f"the answer holds no choice: {str(made)[:200]!r}")
    return Reply(
        text=getattr(message, "content", None) or "",
        finish=getattr(choice, "finish_reason", None) or "stop",
        model=getattr(made, "model", None) or "",
        usage=_usage(getattr(made, "usage", None)),
        refusal=getattr(message, "refusal", None) or "",
    )


def _usage(said: Any) -> Usage | None:
    """Usage as chat completions have it; None: it is missing, or makes no sense."""
    if said is None:
        return None
    ahead, after = _count(said, "prompt_tokens"), _count(said, "completion_tokens")
    if ahead is None or after is None:
        return None
    cached = _count(getattr(said, "prompt_tokens_details", None), "cached_tokens") or 0
    reasoning = _count(getattr(said, "completion_tokens_details", None), "reasoning_tokens") or 0
    return Usage(
        tokens_in=ahead, tokens_out=after, tokens_cached=min(cached, ahead), tokens_reasoning=min(reasoning, after)
    )


def _count(holder: Any, name: str) -> int | None:
    value = holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


_FIRST_S = 1.0
"""Expected first wait is half of it; each further one is twice as long (full jitter: Brooker 2015, "Exponential Backoff
and Jitter", AWS Architecture Blog)."""

_LONGEST_S = 60.0
"""Longest wait that is ours; an endpoint may ask for more."""

_T = TypeVar("_T")


class Stopped(Exception):  # noqa: N818 - the answer is not wanted any more
    """The work was given up by its owner."""


class Retries:
    """Sends requests again, from many threads; a pause that the endpoint demands of one of them holds for all."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._until = 0.0

    def stop(self) -> None:
        """The answers are not wanted any more; all calls raise :class:`Stopped`."""
        self._stop.set()

    def call(self, send: Callable[[], _T]) -> tuple[_T, list[str]]:
        """What ``send`` gives, and what went wrong before. Raises Mishap: it went wrong as often as the settings allow,
        or the endpoint wants too long a pause (the message says how often, and why the last time); Declined: as
        ``send`` raises it; Stopped: it was given up.
        """
        with optional("asking models needs"):
            import tenacity

        mishaps: list[str] = []

        def once() -> _T:
            self._hold()
            try:
                return send()
            except Mishap as mishap:
                mishaps.append(str(mishap))
                if 0 < mishap.wait_s <= self._settings.max_wait_s:
                    with self._lock:
                        self._until = max(self._until, time.monotonic() + mishap.wait_s)
                raise
            except Declined:
                raise
            except Exception:
                if self._stop.is_set():  # its connection was closed under it
                    raise Stopped from None
                raise

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._again),
            stop=tenacity.stop_after_attempt(self._settings.tries),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_S, max=_LONGEST_S),
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return retrying(once), mishaps
        except Mishap as mishap:
            if self._stop.is_set():
                raise Stopped from None
            times = f"{len(mishaps)} times" if len(mishaps) > 1 else "once"
            raise Mishap(f"sent {times}; the last time: {mishap}", mishap.wait_s) from mishap

    def _again(self, error: BaseException) -> bool:
        return isinstance(error, Mishap) and error.wait_s <= self._settings.max_wait_s and not self._stop.is_set()

    def _hold(self) -> None:
        """Wait until the endpoint's pause is over."""
        while True:
            with self._lock:
                left = self._until - time.monotonic()
            if left <= 0 and not self._stop.is_set():
                return
            self._sleep(left)

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped


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
        return {
            "model": given.model,
            "max_tokens": given.max_tokens or _MOST_TOKENS,
            "system": "\n\n".join(text for role, text in messages if role == "system"),
            "messages": [{"role": role, "content": text} for role, text in messages if role != "system"],
            # not all models take a temperature: the package no longer knows it
            "extra_body": dict(given.extra) | given.sampling,
        }

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
        usage = _usage_of_messages(made.usage)
        return Reply(text=text, finish=_FINISHES.get(finish, finish), model=made.model, usage=usage)


def _usage_of_messages(said: Any) -> Usage | None:
    """The API counts what it reads from, or writes into, its cache apart from other prompt tokens."""
    fresh, after = getattr(said, "input_tokens", None), getattr(said, "output_tokens", None)
    if not isinstance(fresh, int) or not isinstance(after, int):
        return None
    cached = getattr(said, "cache_read_input_tokens", None) or 0
    written = getattr(said, "cache_creation_input_tokens", None) or 0
    return Usage(tokens_in=fresh + cached + written, tokens_out=after, tokens_cached=cached, tokens_written=written)
