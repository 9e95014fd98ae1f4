"""All commands under one name, in the order of the help, and what ``kerneleval`` does without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from kerneleval import __version__
from kerneleval.cli import generating, judging, machine, results, settings, tasks
from kerneleval.cli.exits import ERROR, PASSED

app = typer.Typer(
    name="kerneleval",
    help="Judge machine-written GPU kernels: whether they are correct and honest, and how fast they are.",
    epilog="Exit codes: 0 passed or done; 1 failed or changed; 2 wrong usage or a machine error; 130 interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[str, Callable[..., int]] = {
    "check": judging.check,
    "matrix": judging.matrix,
    "differ": judging.differ,
    "run": generating.run,
    "generate": generating.generate,
    "estimate": generating.estimate,
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
    "peaks": machine.peaks,
    "doctor": machine.doctor,
}

for _name, _command in _COMMANDS.items():
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
    settings.read()  # a bad variable is named before any work starts


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
