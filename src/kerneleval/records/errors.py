"""The errors that this package raises on purpose, and the hint that goes with an unknown name."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["InfrastructureError", "KernelEvalError", "UsageError", "near"]

# --------------------------------------------------------------------------------------------------------------------
# The whole tree:
#
# KernelEvalError              anything this package raises on purpose
# ├── UsageError               the caller's input is wrong: the message names the value, the place and the fix (exit 2)
# └── InfrastructureError      the machine, not the candidate, is at fault (exit 2)
# --------------------------------------------------------------------------------------------------------------------


class KernelEvalError(Exception):
    """Base of every error that this package raises on purpose."""


class UsageError(KernelEvalError):
    """The caller's input is wrong; the message names the bad value, where it stands and what would be right."""


class InfrastructureError(KernelEvalError):
    """The machine (device, disk, compiler, store) failed, not the candidate; the message says what to do."""


def near(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the three nearest known ones."""
    import difflib

    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
    return f"did you mean {', '.join(close)}?" if close else f"known are {', '.join(names)}"
