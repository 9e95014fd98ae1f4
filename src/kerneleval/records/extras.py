"""Optional packages: which extra of this package brings each, and what is said where one is missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kerneleval.records.errors import UsageError

__all__ = ["EXTRAS", "how_to_install", "optional"]

EXTRAS = {
    "anthropic": "anthropic",
    "genai_prices": "llm",
    "httpx2": "llm",
    "jinja2": "report",
    "lizard": "analysis",
    "lizard_languages": "analysis",
    "markupsafe": "report",
    "numba": "numba",
    "openai": "llm",
    "plotly": "report",
    "psycopg": "postgres",
    "pyarrow": "analysis",
    "pyopencl": "opencl",
    "radon": "analysis",
    "tenacity": "llm",
    "torch": "torch",
    "triton": "torch",
}
"""Module -> the extra in ``pyproject.toml`` that brings it."""


def how_to_install(module: str, extra: str = "") -> str:
    """The command that brings an optional module; empty: it is none of them."""
    known = EXTRAS.get(module)
    return f"pip install 'kerneleval[{extra or known}]'" if known else ""


@contextmanager
def optional(what: str, extra: str = "") -> Iterator[None]:
    """Imports optional packages in its block.

    Args:
        what: how the error begins: "an HTML report needs".
        extra: the extra that brings all of them; empty: that of :data:`EXTRAS`.

    Raises:
        UsageError: one is not installed; the message names it and the command that brings it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not (command := how_to_install(module, extra)):
            raise
        raise UsageError(f"{what} {module}; install it with: {command}") from error
