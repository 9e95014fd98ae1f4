"""Commands on the tasks: to find, show and test them; and on the machine: what it can do, and what is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from kerneleval.cli.options import (
    SHORT_DTYPES,
    DeviceOption,
    Fields,
    Json,
    Option,
    StoreOption,
    chosen_of,
    complete_tasks,
    device_of,
    read_settings,
    restriction,
    split,
    store_of,
    takes,
)
from kerneleval.cli.output import FAILED, PASSED, progress, show
from kerneleval.records import CATEGORIES, DIRECTIONS, DTYPES, GROUPS, UsageError

_FILTERS: dict[str, Option] = {
    "category": restriction("--category", "categories", "Only these operator categories.", CATEGORIES),
    "group": restriction(
        "--group",
        "groups",
        "Only these categories of KernelBench-X.",
        GROUPS,
        {group.lower(): group for group in GROUPS},
    ),
    "source": Option(
        field="sources",
        type=list[str] | None,
        declared=typer.Option(metavar="NAME", help="Only from these sources: aten, vllm, ..."),
        read=lambda given: tuple(split(given)) or (() if given else None),
    ),
    "level": replace(
        restriction("--level", "levels", "Only these levels: 1 operators, 2 fusions, 3 models.", "123", metavar="N"),
        read=lambda given: tuple(map(int, chosen_of("--level", given, "123"))) or None,
    ),
    "complexity": replace(
        restriction("--complexity", "complexities", "Only these levels of the rubric's K axis.", "1234", metavar="K"),
        read=lambda given: tuple(map(int, chosen_of("--complexity", given, "1234"))) or None,
    ),
    "dtype": restriction(
        "--dtype", "dtypes", "Only tasks judged in one of these dtypes.", DTYPES, SHORT_DTYPES, "DTYPE"
    ),
    "direction": restriction("--direction", "directions", "Only tasks judged forward, or backward.", DIRECTIONS),
    "real": Option(
        field="real",
        type=bool,
        declared=typer.Option("--real", help="Only tasks with shapes of models (--shapes real)."),
        default=False,
        read=lambda flag: flag or None,
    ),
    "search": Option(
        field="text",
        type=str,
        declared=typer.Option("--search", "-s", metavar="TEXT", help="Words of the name or formula."),
        default="",
        read=lambda words: words or None,
    ),
}
"""Options that choose tasks -> fields of :class:`kerneleval.tasks.search.Query`."""

_NO_TASKS = ("list", "show")
"""Words that are taken for commands of ``kerneleval tasks``, which has none."""
HINT = "kerneleval tasks lists all of them, kerneleval tasks NAME shows one"
"""How it is used."""


@takes(*_FILTERS, options=_FILTERS)
def tasks(
    fields: Fields,
    name: Annotated[
        str,
        typer.Argument(
            metavar="TASK", help="Show only this task: a name, or a problem file.", autocompletion=complete_tasks
        ),
    ] = "",
    peer: Annotated[
        str, typer.Option(metavar="NAME", help="Tasks of a peer: KernelBench-X, KernelGenBench or KernelBench.")
    ] = "",
    as_json: Json = False,
) -> int:
    """List the tasks, show one, or show the tasks of a peer.

    A task is shown with its formula, sizes, arguments, rules and cost.

    Options that choose tasks may be repeated and may hold commas; a task must match one of the values.
    """
    filters = [f"--{option}" for option, of in _FILTERS.items() if of.field in fields]
    if (name or peer) and filters:
        raise UsageError(f"{name or '--peer'} and {', '.join(filters)} exclude each other; leave one out")
    if name and peer:
        raise UsageError(f"{name} and --peer exclude each other; leave one out")
    if name in _NO_TASKS:
        raise UsageError(f"{name!r} is no task: {HINT}")
    from kerneleval import tasks as stage
    from kerneleval.reports import tasks as report
    from kerneleval.reports import tasks_view
    from kerneleval.tasks.search import Query

    if peer:
        return show(report.summarise_peer(peer), as_json, tasks_view.render_peer)
    if name:
        return show(report.describe(stage.open_task(name)), as_json, tasks_view.render_task)
    every = list(stage.all_tasks().values())
    if "sources" in fields:
        chosen_of("--source", fields["sources"] or [""], sorted({task.source for task in every}))
    listed = [report.summarise(task) for task in Query(**fields).select(every)]
    listed.sort(key=lambda task: (CATEGORIES.index(task["category"]), task["name"]))
    return show(listed, as_json, lambda found, screen: tasks_view.render_tasks(found, screen, len(every)))


@takes("device", "dtype", "direction")
def selftest(
    task: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TASK]...",
            help="Names of tasks or problem files; default: every built-in task.",
            autocompletion=complete_tasks,
        ),
    ] = None,
    *,
    fields: Fields,
    as_json: Json = False,
) -> int:
    """Test the tasks themselves on a device.

    The reference of each task must pass; trivial and damaged outputs must not.
    """
    from kerneleval import pipeline
    from kerneleval.reports import tasks_view

    with progress(lines=not as_json) as on_event:
        found = pipeline.selftest(tuple(task or ()), **fields, on_event=on_event)
    show(found, as_json, tasks_view.render_selftest)
    return PASSED if all(one["passed"] for one in found) else FAILED


def peaks(
    device: DeviceOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure all peaks again.")] = False,
    as_json: Json = False,
) -> int:
    """Measure the peaks of this machine.

    Shows bandwidth and operations per second, next to the figures of the data sheet.
    """
    kind = device_of(device)
    from kerneleval import pipeline
    from kerneleval.reports import machine_view

    with progress(lines=not as_json) as on_event:
        found = pipeline.peaks(device=kind, again=measure, on_event=on_event)
    return show(found, as_json, machine_view.render_peaks)


def doctor(store: StoreOption = None, as_json: Json = False) -> int:
    """Check this machine, and say what to install.

    Looks at devices, languages, sandbox, clock and store.
    """
    from kerneleval.pipeline import doctor as report
    from kerneleval.reports import machine_view

    found = report.examine(store_of(store), read_settings().cache_dir)
    show(found, as_json, machine_view.render_doctor)
    return PASSED if found["usable"] else FAILED
