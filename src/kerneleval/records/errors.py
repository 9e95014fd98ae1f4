"""The errors that this package raises on purpose, the hint that goes with an unknown name or a missing package."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

__all__ = [
    "EXTRAS",
    "InfrastructureError",
    "KernelEvalError",
    "NotJudgedError",
    "ToolError",
    "UsageError",
    "how_to_install",
    "near",
    "optional",
]


class KernelEvalError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(KernelEvalError):
    """The caller's input is wrong; the message names the bad value, where it stands and what would be right."""


class NotJudgedError(UsageError):
    """A case at which the task itself does not settle what is right; says nothing about the candidate.

    :attr:`reason` is ``void`` (whatever a candidate does is right), ``random`` (outputs are drawn), ``state`` (they
    depend on the calls before), ``sizes`` (theirs depend on values) or ``unsound`` (rounding decides).
    """

    def __init__(self, message: str, reason: str = "unsound") -> None:
        super().__init__(message)
        self.reason = reason


class InfrastructureError(KernelEvalError):
    """The machine (device, disk, compiler, store) failed, not the candidate; the message says what to do."""


class ToolError(InfrastructureError):
    """A compiler, runtime or package that a candidate's language needs is missing or computes wrongly here.

    :attr:`reason` says what, and what to install where that helps.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; nothing is said of the candidate")
        self.reason = reason


_MOST_NAMES = 8
"""Names that a hint holds at most, where there are many more."""


def near(name: str, known: Iterable[str], *, see: str = "") -> str:
    """A hint for an unknown name, whatever its case.

    Names that it begins, is a part of or holds are suggested before those that are spelled alike; where there is
    neither, the known names are listed, of more than twelve only eight. ``see`` is where all are listed.
    """
    import difflib

    names = sorted(known)
    wanted = name.strip().casefold()
    folded: dict[str, list[str]] = {}
    for one in names:
        folded.setdefault(one.casefold(), []).append(one)
    close = folded.get(wanted) or _overlapping(wanted, names)
    if not close:
        alike = difflib.get_close_matches(wanted, folded, n=3, cutoff=0.6)
        # costum is as much like custom as tpu is like cpu: where the first letter differs, more of the rest must agree
        far = {one for one in alike if one[:1] != wanted[:1]} - set(difflib.get_close_matches(wanted, folded, 3, 0.7))
        close = [one for match in alike if match not in far for one in folded[match]]
    if close:
        return f"did you mean {', '.join(close[:_MOST_NAMES])}?"
    if len(names) <= _MOST_NAMES * 3 // 2:
        return f"known are {', '.join(names)}"
    more = f"{len(names) - _MOST_NAMES} more" + (f"; see {see}" if see else "")
    return f"known are {', '.join(names[:_MOST_NAMES])} and {more}"


def _overlapping(wanted: str, names: list[str]) -> list[str]:
    """Names that begin with what is wanted, then those that hold it, then those that it holds, the longest first."""
    if len(wanted) < 2:
        return []
    begin = [one for one in names if one.casefold().startswith(wanted)]
    hold = [one for one in names if wanted in one.casefold()]
    held = sorted((one for one in names if len(one) > 2 and one.casefold() in wanted), key=len, reverse=True)
    return list(dict.fromkeys([*begin, *hold, *held]))


_BROUGHT = {
    "analysis": "lizard lizard_languages pyarrow radon",
    "anthropic": "anthropic",
    "llm": "genai_prices httpx2 openai tenacity",
    "numba": "numba",
    "opencl": "pyopencl",
    "postgres": "psycopg",
    "report": "jinja2 markupsafe plotly",
    "torch": "torch triton",
}
"""Extra in ``pyproject.toml`` -> the modules that it brings."""

EXTRAS = {module: extra for extra, modules in _BROUGHT.items() for module in modules.split()}
"""Module -> the extra that brings it."""


def how_to_install(module: str, extra: str = "") -> str:
    """The command that brings an optional module; empty: it is none of them."""
    known = EXTRAS.get(module)
    return f"pip install 'kerneleval[{extra or known}]'" if known else ""


@contextmanager
def optional(what: str, extra: str = "") -> Iterator[None]:
    """Imports optional packages in its block. Raises UsageError: one is not installed; the message names it and the
    command that brings it. It begins with ``what``: "an HTML report needs". ``extra`` brings all of them; empty: that
    of :data:`EXTRAS`.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not (command := how_to_install(module, extra)):
            raise
        raise UsageError(f"{what} {module}; install it with: {command}") from error
