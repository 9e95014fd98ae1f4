"""What an answer costs: by the public list of genai-prices, or by the user's own table."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import math
from dataclasses import dataclass
from decimal import Decimal

from kerneleval.generators.llm.settings import PriceTable, Settings
from kerneleval.records.errors import optional


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of one answer, as the endpoint reports them."""

    tokens_in: int
    """Prompt tokens."""
    tokens_out: int
    """Completion tokens, those of reasoning included."""
    tokens_cached: int = 0
    """Prompt tokens out of the endpoint's cache, among ``tokens_in``."""
    tokens_written: int = 0
    """Prompt tokens that were put into that cache at a price of their own, among ``tokens_in``."""
    tokens_reasoning: int = 0
    """Tokens of reasoning, among ``tokens_out``."""


def price_of(usage: Usage, settings: Settings, model: str = "") -> tuple[float, str]:
    """(US dollars, the list they are from); (0, "") where no list has the model: nothing is made up.

    Args:
        usage: what was used.
        settings: whose table counts, where there is one; else where the model is asked and what it is called.
        model: the model that answered, as the endpoint says; empty: the one asked for.
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
    return float(found.total_price), f"genai-prices {_version()} on {today}: {found.provider.id} {found.model.id}"


@functools.cache
def _version() -> str:
    return importlib.metadata.version("genai-prices")
