"""Commands on the tasks themselves: to find and show them, and to test them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneleval.cli.exits import FAILED, PASSED
from kerneleval.cli.options import (
    SHORT_DTYPES,
    DeviceOption,
    DirectionOption,
    DtypeOption,
    Json,
    chosen_of,
    complete_tasks,
    device_of,
    split,
)
from kerneleval.cli.output import console, print_json, progress
from kerneleval.records import CATEGORIES, DIRECTIONS, DTYPES, GROUPS, UsageError

if TYPE_CHECKING:
    from kerneleval.tasks.search import Query

__all__ = ["selftest", "tasks"]


def tasks(
    name: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="Show just this one: a name, or a problem file.", autocompletion=complete_tasks
        ),
    ] = "",
    category: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these operator categories.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only these KernelBench-X categories.")
    ] = None,
    source: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only from there: aten, vllm ...")] = None,
    level: Annotated[list[str] | None, typer.Option(metavar="N", help="Only 1 operators, 2 fusions, 3 models.")] = None,
    complexity: Annotated[
        list[str] | None, typer.Option(metavar="K", help="Only these K of the rubric, 1 to 4.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(metavar="DTYPE", help="Only tasks judged in one of these.")] = None,
    direction: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only tasks judged forward, backward.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="Only tasks with shapes of real models (--shapes real).")
    ] = False,
    search: Annotated[str, typer.Option("--search", "-s", metavar="TEXT", help="Words of the name or formula.")] = "",
    peer: Annotated[
        str, typer.Option(metavar="NAME", help="The map of one: KernelBench-X, KernelGenBench, KernelBench.")
    ] = "",
    as_json: Json = False,
) -> int:
    """List the tasks, or show one with its formula, sizes, arguments, rules and cost, or the map of a peer.

    Options that choose may be repeated and may hold commas; of several values in one any will do.
    """
    given = {
        "--category": category,
        "--group": group,
        "--source": source,
        "--level": level,
        "--complexity": complexity,
        "--dtype": dtype,
        "--direction": direction,
        "--real": real,
        "--search": search,
    }
    filters = [option for option, value in given.items() if value]
    if (name or peer) and filters:
        raise UsageError(f"give either {'a task' if name else '--peer'} or {', '.join(filters)}")
    if name and peer:
        raise UsageError("give either a task or --peer")
    query = _query(given)  # before torch is waited for
    from kerneleval import tasks as stage
    from kerneleval.reports import peers, tasks_view
    from kerneleval.reports import tasks as report

    if peer:
        names = peers.summarise_peer(peer)
        print_json(names) if as_json else peers.render_peer(names, console())
        return PASSED
    if name:
        task = report.describe(stage.open_task(name))
        print_json(task) if as_json else tasks_view.render_task(task, console())
        return PASSED
    every = list(stage.all_tasks().values())
    chosen_of("--source", source, sorted({task.source for task in every}))
    listed = [report.summarise(task) for task in query.select(every)]
    listed.sort(key=lambda task: (CATEGORIES.index(task["category"]), task["name"]))
    print_json(listed) if as_json else tasks_view.render_tasks(listed, console(), len(every))
    return PASSED


def _query(given: Mapping[str, Any]) -> Query:
    """What the filters of ``kerneleval tasks`` ask for; ``--source`` as it is, because only the tasks know their own.

    Raises:
        UsageError: an unknown value; the message has the known ones.
    """
    from kerneleval.tasks.search import Query

    levels = chosen_of("--level", given["--level"], "123")
    complexities = chosen_of("--complexity", given["--complexity"], "1234")
    return Query(
        categories=chosen_of("--category", given["--category"], CATEGORIES),
        groups=chosen_of("--group", given["--group"], GROUPS, {group.lower(): group for group in GROUPS}),
        sources=tuple(split(given["--source"])),
        levels=tuple(map(int, levels)),
        complexities=tuple(map(int, complexities)),
        dtypes=chosen_of("--dtype", given["--dtype"], DTYPES, SHORT_DTYPES),
        directions=chosen_of("--direction", given["--direction"], DIRECTIONS),
        real=given["--real"],
        text=given["--search"],
    )


def selftest(
    task: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK]...",
            help="Names or problem files; every built-in task otherwise.",
            autocompletion=complete_tasks,
        ),
    ] = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    direction: DirectionOption = None,
    as_json: Json = False,
) -> int:
    """Test the tasks on a device: their references must pass, trivial and damaged outputs must not."""
    options: dict[str, Any] = {
        "device": device_of(device),
        "dtypes": chosen_of("--dtype", dtype, DTYPES, SHORT_DTYPES),
        "directions": chosen_of("--direction", direction, DIRECTIONS),
    }
    from kerneleval import pipeline

    with progress(lines=not as_json) as on_event:
        found = pipeline.selftest(tuple(task or ()), **options, on_event=on_event)
    if as_json:
        print_json(found)
    else:
        from kerneleval.reports import tasks_view

        tasks_view.render_selftest(found, console())
    return PASSED if all(one["passed"] for one in found) else FAILED
