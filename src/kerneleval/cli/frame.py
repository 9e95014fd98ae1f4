"""The outermost frame: one command run, every error one message, every ending an exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

import typer

from kerneleval.cli.commands import app
from kerneleval.cli.exits import (
    ERROR,
    INTERRUPTED,
    PIPE_CLOSED,
    Terminated,
    command_of,
    explain,
    signals_as_exceptions,
)
from kerneleval.cli.output import one_line, print_json


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments without the program's name; None: those of this process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character must not cost the verdict
    try:
        with signals_as_exceptions():
            code = _run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output went away: say nothing, and keep Python from complaining while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED


def _run(arguments: list[str]) -> int:
    show_traceback = os.environ.get("KERNELEVAL_TRACEBACK", "") not in ("", "0")
    try:
        code = app(args=arguments, prog_name="kerneleval", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Terminated as terminated:
        code = 128 + terminated.number
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - the outermost frame: everything becomes one message and exit code 2
        if show_traceback:
            import traceback

            traceback.print_exc()
        kind, message = explain(error, arguments)
        if kind == "internal" and not show_traceback:
            message += "; set KERNELEVAL_TRACEBACK=1 to see where"
        sys.stderr.write(f"error: {one_line(message)}\n")
        if "--json" in arguments:
            print_json({"error": {"kind": kind, "message": message}})
        return ERROR
    if code and code >= 128:
        resumes = "; finished cells are in the store, the same command goes on from there"
        resumes = resumes if command_of(arguments) in ("run", "audit") else ""
        sys.stderr.write(f"interrupted{resumes}\n")
    return int(code or 0)
