"""The program: all commands under one name; one of them run, every error one message, every ending an exit code."""

from __future__ import annotations

import functools
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from kerneleval import __version__
from kerneleval.cli import judging, options, results, tasks
from kerneleval.cli.output import ERROR, INTERRUPTED, PASSED, PIPE_CLOSED, one_line, print_json
from kerneleval.records import KernelEvalError, UsageError
from kerneleval.records.errors import how_to_install

app = typer.Typer(
    name="kerneleval",
    help="Judge machine-written GPU kernels: whether they are correct and honest, and how fast they are.",
    epilog="Exit codes: 0 passed or done; 1 failed or changed; 2 wrong usage or a machine error; 130 interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

COMMANDS: dict[str, Callable[..., int]] = {
    "check": judging.check,
    "matrix": judging.matrix,
    "differ": judging.differ,
    "run": judging.run,
    "generate": judging.generate,
    "estimate": judging.estimate,
    "score": results.score,
    "compare": results.compare,
    "report": results.report,
    "analyse": results.analyse,
    "transitions": results.transitions,
    "export": results.export,
    "merge": results.merge,
    "import": results.import_results,
    "audit": judging.audit,
    "tasks": tasks.tasks,
    "selftest": tasks.selftest,
    "peaks": tasks.peaks,
    "doctor": tasks.doctor,
}
"""Every command, in the order of the help."""

for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the versions and exit.", is_eager=True)] = False,
) -> None:
    if version:
        typer.echo(_versions())
        raise typer.Exit(PASSED)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(ERROR)
    options.read_settings()  # a bad variable is named before any work starts


def _versions() -> str:
    import platform
    from importlib import metadata

    parts = [f"Python {platform.python_version()}"]
    for package in ("torch", "triton", "numba"):
        try:
            parts.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            parts.append(f"no {package}")
    return f"kerneleval {__version__} ({', '.join(parts)})"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, with the arguments given (None: those of this process); returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character must not cost the verdict
    try:
        with _signals_as_exceptions():
            code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output is gone: print nothing, and keep Python from complaining while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


@functools.cache
def _program() -> Callable[..., int | None]:
    """All commands, put together once: that takes longer than many of them."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> int:
    show_traceback = os.environ.get("KERNELEVAL_TRACEBACK", "") not in ("", "0")
    try:
        code = _program()(args=arguments, prog_name="kerneleval", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except _Terminated as terminated:
        code = 128 + terminated.number
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything becomes one message and exit code 2
        if show_traceback:
            import traceback

            traceback.print_exc()
        kind, message = _explain(error, arguments)
        if kind == "internal" and not show_traceback:
            message += "; set KERNELEVAL_TRACEBACK=1 to see where"
        sys.stderr.write(f"error: {one_line(message)}\n")
        if "--json" in arguments:
            print_json({"error": {"kind": kind, "message": message}})
        return ERROR
    if code and code >= 128:
        resumes = "; finished cells are in the store, the same command goes on from there"
        resumes = resumes if _command_of(arguments) in ("run", "audit") else ""
        sys.stderr.write(f"interrupted{resumes}\n")
    return int(code or 0)


# Typer brings its own copy of click in newer versions and uses the separate package in older ones.
_ClickException: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


class _Terminated(BaseException):
    """A signal to end the process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Signals that end this process raise :class:`_Terminated` instead, so that ``finally`` and ``with`` clean up."""

    def end(number: int, _frame: object) -> None:
        # A second SIGTERM must not interrupt the cleaning up; a second Ctrl-C may.
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_IGN)
        raise _Terminated(number)

    in_main = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if in_main else ()
    # What is ignored stays ignored: that is how nohup works.
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _command_of(arguments: Sequence[str]) -> str:
    """The command among the arguments; empty: there is none."""
    return next((argument for argument in arguments if argument in COMMANDS), "")


def _explain(error: Exception, arguments: Sequence[str]) -> tuple[str, str]:
    """What kind of error it is (usage, infrastructure, internal), and its message."""
    if isinstance(error, _ClickException):
        text = str(error.format_message()).replace("Value error, ", "").rstrip(".")  # type: ignore[attr-defined]
        command = _command_of(arguments)
        hint = f"; {tasks.HINT}" if command == "tasks" and "extra argument" in text else ""
        see = " ".join(filter(None, ("kerneleval", command, "--help")))
        return "usage", f"{text[:1].lower()}{text[1:]}{hint}; see {see}"
    if isinstance(error, UsageError):
        return "usage", str(error)
    if isinstance(error, KernelEvalError):
        return "infrastructure", str(error)
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        if command := how_to_install(name) or (f"pip install {name}" if name in ("sqlalchemy", "rich") else ""):
            return "infrastructure", f"{error.name} is not installed; install it with: {command}"
    if isinstance(error, OSError) and error.strerror:
        place = f": {error.filename}" if error.filename else ""
        return "infrastructure", f"{error.strerror}{place}"
    if isinstance(error, MemoryError):
        return "infrastructure", "out of memory"
    return "internal", f"unexpected {type(error).__name__}: {error}"
