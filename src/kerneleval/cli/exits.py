"""How a command ends: exit codes, signals, and one message for each error."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import typer

from kerneleval.records import KernelEvalError, UsageError
from kerneleval.records.errors import how_to_install

PASSED = 0
"""The candidate passed; the command did what it was asked."""
FAILED = 1
"""The candidate failed; an audit found a change; the doctor found a machine that cannot judge."""
ERROR = 2
"""Wrong usage, or the machine failed: nothing is said of the candidate."""
INTERRUPTED = 130
"""Ctrl-C, as shells count it: 128 and the signal's number."""
PIPE_CLOSED = 141
"""The reader of our output is gone."""

COMMANDS = (
    *("check", "matrix", "differ", "run", "estimate", "generate", "score", "compare", "report", "transitions"),
    *("analyse", "export", "merge", "import", "audit", "tasks", "selftest", "peaks", "doctor"),
)
"""Every command; a test compares them with the command line's."""

# Typer brings its own copy of click in newer versions and uses the separate package in older ones.
_ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class Terminated(BaseException):
    """A signal asked us to end."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Signals that end this process raise :class:`Terminated` instead, so that ``finally`` and ``with`` clean up."""

    def end(number: int, _frame: object) -> None:
        # A second SIGTERM must not interrupt the cleaning up; who presses Ctrl-C twice insists.
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_IGN)
        raise Terminated(number)

    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if in_main else ()
    # What is ignored stays ignored: that is how nohup works.
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command_of(arguments: Sequence[str]) -> str:
    """The command among the arguments; empty: there is none."""
    return next((argument for argument in arguments if argument in COMMANDS), "")


def _how_to_install(module: str) -> str:
    """The command that brings a module, optional or not; empty: it is none that this package uses."""
    name = module.partition(".")[0]
    return how_to_install(name) or (f"pip install {name}" if name in ("sqlalchemy", "rich") else "")


def explain(error: Exception, arguments: Sequence[str]) -> tuple[str, str]:
    """What kind of error it is (usage, infrastructure, internal), and its message."""
    if isinstance(error, _ClickException):
        text = str(error.format_message()).replace("Value error, ", "").rstrip(".")  # type: ignore[attr-defined]
        see = " ".join(filter(None, ("kerneleval", command_of(arguments), "--help")))
        return "usage", f"{text[:1].lower()}{text[1:]}; see {see}"
    if isinstance(error, UsageError):
        return "usage", str(error)
    if isinstance(error, KernelEvalError):
        return "infrastructure", str(error)
    if isinstance(error, ModuleNotFoundError) and (command := _how_to_install(error.name or "")):
        return "infrastructure", f"{error.name} is not installed; install it with: {command}"
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return "infrastructure", f"{error.strerror}{place}"
    if isinstance(error, MemoryError):
        return "infrastructure", "out of memory"
    return "internal", f"unexpected {type(error).__name__}: {error}"
