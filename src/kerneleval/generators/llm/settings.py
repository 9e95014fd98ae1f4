"""What a model's settings file may say, checked key by key; and what an answer costs."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.metadata
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from kerneleval.generators.common.settings import check_bounds, check_language, typed
from kerneleval.records import GUIDANCE, UsageError, near
from kerneleval.records.errors import optional

APIS = ("openai", "anthropic")
"""Protocols: chat completions, as almost every server speaks them, and Anthropic's messages."""

HOSTED = {"openai": "https://api.openai.com/v1", "anthropic": "https://api.anthropic.com"}
"""API -> its address when no ``base_url`` is given."""

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
"""API -> environment variable of its key, where no ``base_url`` is given."""


@dataclass(frozen=True, kw_only=True)
class PriceTable:
    """A user's own prices, in US dollars for a million tokens."""

    input: float
    output: float
    """Completion tokens, those of reasoning included."""
    cached: float = math.nan
    """Prompt tokens that the endpoint had in its cache; NaN: as other prompt tokens."""
    date: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A model, its endpoint, and how it is used."""

    model: str
    name: str = ""
    """The generator's name; empty: the model's, without its organisation."""
    api: str = "openai"
    """One of :data:`APIS`."""
    base_url: str = ""
    """Where the endpoint is; empty: the maker's of the API."""
    api_key_env: str = ""
    """Environment variable that holds the key; empty: none is sent, but to the maker's endpoint."""
    language: str = ""
    """Language of the candidates; empty: Triton, and Numba for the CPU."""
    samples: int = 1
    rounds: int = 1
    concurrency: int = 8
    examples: int = 1
    template: str = ""
    """A built-in prompt template by name, or a file; empty: the language's newest."""
    temperature: float = math.nan
    """NaN: the endpoint's own."""
    top_p: float = math.nan
    """NaN: the endpoint's own."""
    max_tokens: int = 0
    """Most tokens of an answer; 0: the endpoint's own limit."""
    max_tokens_key: str = "max_tokens"
    """What the endpoint calls that: ``max_completion_tokens`` for OpenAI's reasoning models."""
    reasoning_effort: str = ""
    """As the endpoint knows it; empty: not sent."""
    seed: int = -1
    """Seed of the first sample, each further one the next number; -1: not sent."""
    stream: bool = True
    """Whether the answer is sent piece by piece: a stuck one can then be distinguished from a slow one."""
    timeout_s: float = 300.0
    """Silence after which a request is given up."""
    total_s: float = 3600.0
    """Time after which an answer is given up, however it flows."""
    tries: int = 8
    max_wait_s: float = 600.0
    """Longest wait before it is sent again; an endpoint that wants more is given up."""
    guidance: str = ""
    """What guidance the prompt gives beyond the task, for your own template (``Origin.guidance``); empty: ``none``
    for a built-in template, not recorded for another."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Sent with every request as it is, for what an endpoint knows beyond these."""
    prices: PriceTable | None = None

    @property
    def url(self) -> str:
        """Where the endpoint is."""
        return self.base_url or HOSTED[self.api]

    @property
    def key_env(self) -> str:
        """Environment variable that holds the key; empty: none is sent."""
        return self.api_key_env or ("" if self.base_url else _KEYS[self.api])

    @property
    def asked(self) -> dict[str, Any]:
        """All that an answer depends on, besides the messages and the sample."""
        names = ("model", "api", "max_tokens", "max_tokens_key", "reasoning_effort", "seed")
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found |= {"temperature": None, "top_p": None} | self.sampling
        return found | {"url": self.url, "extra": dict(self.extra)}

    @property
    def sampling(self) -> dict[str, float]:
        """Temperature and ``top_p``, as far as they are set."""
        return {name: value for name in ("temperature", "top_p") if not math.isnan(value := getattr(self, name))}


_AT_LEAST = {
    **dict.fromkeys(("samples", "rounds", "concurrency", "tries"), 1),
    **dict.fromkeys(("examples", "max_tokens", "temperature"), 0),
    "seed": -1,
}
_ABOVE = ("timeout_s", "total_s", "max_wait_s", "top_p")
_AT_MOST = {"concurrency": 1024, "tries": 100, "top_p": 1.0, "rounds": 100}


def settings_of(table: Mapping[str, Any], place: str) -> Settings:
    """Settings from a table of a TOML file; ``place`` is where it stands, for messages. Raises UsageError for an
    unknown key, a value of the wrong type or beyond its limits, or no model.
    """
    values = typed(Settings, table, place)
    if "prices" in values:
        if not isinstance(values["prices"], Mapping):
            raise UsageError(
                f"{place} prices must be a table with input and output, in US dollars for a million tokens"
            )
        values["prices"] = _typed_prices(values["prices"], f"{place} prices")
    if not isinstance(values.get("extra", {}), Mapping):
        raise UsageError(f"{place} extra must be a table")
    if not values.get("model"):
        raise UsageError(f"{place} model is missing: the model's name, as the endpoint knows it")
    made = Settings(**values)
    _limits(made, place)
    name = made.name or (PurePosixPath(made.model).name or made.model).replace(":", "-").replace("/", "-")
    if ":" in name or not name.isprintable():
        raise UsageError(f"{place} name {name!r:.80} must have neither colons nor control characters")
    return dataclasses.replace(made, name=name)


def _typed_prices(table: Mapping[str, Any], place: str) -> PriceTable:
    values = typed(PriceTable, table, place)
    for key in ("input", "output"):
        if key not in values:
            raise UsageError(f"{place} {key} is missing, in US dollars for a million tokens")
    for key in ("input", "output", "cached"):
        if values.get(key, 0.0) < 0:
            raise UsageError(f"{place} {key} must be 0 or more, not {values[key]}")
    return PriceTable(**values)


def _limits(made: Settings, place: str) -> None:
    check_bounds(made, place, least=_AT_LEAST, most=_AT_MOST, above_zero=_ABOVE)
    check_language(made.language, place)
    if made.api not in APIS:
        raise UsageError(f"{place} api {made.api!r:.80} is unknown; {near(made.api, APIS)}")
    if made.guidance and made.guidance not in GUIDANCE:
        raise UsageError(f"{place} guidance {made.guidance!r:.80} is unknown; {near(made.guidance, GUIDANCE)}")
    if made.base_url and not made.base_url.startswith(("http://", "https://")):
        raise UsageError(f"{place} base_url must begin with http:// or https://, not {made.base_url!r:.80}")
    if made.extra and (taken := {"model", "messages", "stream", "n"} & made.extra.keys()):
        raise UsageError(f"{place} extra must not hold {sorted(taken)[0]!r}")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one answer, as the endpoint reports them."""

    tokens_in: int
    tokens_out: int
    """Completion tokens, those of reasoning included."""
    tokens_cached: int = 0
    """Prompt tokens out of the endpoint's cache, among ``tokens_in``."""
    tokens_written: int = 0
    """Prompt tokens that were put into that cache at a price of their own, among ``tokens_in``."""
    tokens_reasoning: int = 0


def price_of(usage: Usage, settings: Settings, model: str = "") -> tuple[float, str]:
    """(US dollars, the list they are from); (0, "") where no list has the model: nothing is made up. The settings'
    own table counts, where there is one. ``model`` is the one that answered, as the endpoint says; empty: the settings'
    own.
    """
    if settings.prices is not None:
        date = settings.prices.date
        return float(_own(usage, settings.prices)), f"own table of {date}" if date else "own table"
    names = tuple(dict.fromkeys(name for name in (model, settings.model) if name))
    for name in names:
        found = _listed(usage, name, settings.url)
        if found is not None:
            return found
    return 0.0, ""


def _own(usage: Usage, table: PriceTable) -> Decimal:
    million = Decimal(1_000_000)
    price = {key: Decimal(str(getattr(table, key))) / million for key in ("input", "output")}
    cached = price["input"] if math.isnan(table.cached) else Decimal(str(table.cached)) / million
    fresh = usage.tokens_in - usage.tokens_cached
    return fresh * price["input"] + usage.tokens_cached * cached + usage.tokens_out * price["output"]


def _listed(usage: Usage, model: str, url: str) -> tuple[float, str] | None:
    """By the list that the package carries; it is not fetched anew. Some prices depend on the date, which is given."""
    with optional("prices of models need"):
        import genai_prices

    counted = genai_prices.Usage(
        input_tokens=usage.tokens_in,
        output_tokens=usage.tokens_out,
        cache_read_tokens=usage.tokens_cached or None,
        cache_write_tokens=usage.tokens_written or None,
    )
    try:
        found = genai_prices.calc_price(counted, model, provider_api_url=url)
    except LookupError:
        return None
    today = datetime.datetime.now(datetime.UTC).date()
    version = importlib.metadata.version("genai-prices")
    return float(found.total_price), f"genai-prices {version} on {today}: {found.provider.id} {found.model.id}"
