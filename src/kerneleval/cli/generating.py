"""Commands that ask generators for candidates: a whole run, its candidates alone, what it will cost."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kerneleval.cli.exits import PASSED
from kerneleval.cli.options import (
    SHORT_DTYPES,
    AllowOption,
    Baseline,
    BaselineOption,
    DeviceOption,
    DirectionOption,
    DistributionOption,
    DtypeOption,
    Json,
    Precise,
    Quick,
    Shapes,
    ShapesOption,
    StoreOption,
    chosen_of,
    complete_tasks,
    device_of,
    split,
    store_of,
    tier_of,
)
from kerneleval.cli.output import console, print_json, progress, show_scores
from kerneleval.records import DIRECTIONS, DISTRIBUTIONS, DTYPES, TRACKS, UsageError

__all__ = ["estimate", "generate", "run"]


def run(
    generator: Annotated[
        list[str] | None,
        typer.Option("--generator", "-g", help="Name, file or directory of a generator; may be repeated."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="May be repeated; the default suite otherwise.", autocompletion=complete_tasks
        ),
    ] = None,
    device: DeviceOption = None,
    shapes: ShapesOption = Shapes.default,
    store: StoreOption = None,
    quick: Quick = False,
    precise: Precise = False,
    allow: AllowOption = "custom,mixed,library",
    dtype: DtypeOption = None,
    direction: DirectionOption = None,
    distribution: DistributionOption = None,
    baseline: BaselineOption = Baseline.eager,
    resume: Annotated[bool, typer.Option(help="Go on where an unfinished run of the same plan stopped.")] = True,
    name: Annotated[str, typer.Option(help="Name of the run, for people.")] = "",
    target: Annotated[
        float | None, typer.Option("--target-speedup", metavar="X", help="Refine no draft that is right and so fast.")
    ] = None,
    max_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Ask nothing more when so much is spent.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Ask nothing more after so many tokens.")] = None,
    max_hours: Annotated[
        float | None, typer.Option(metavar="H", help="Ask and judge nothing more after so long.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge generators over a suite of tasks, store every outcome and print the scores."""
    store_url = store_of(store)
    options: dict[str, Any] = {
        "generators": tuple(split(generator)),
        "tasks": tuple(split(task)),
        "device": device_of(device),
        "shapes": shapes.value,
        "store_url": store_url,
        "tier": tier_of(quick, precise),
        "allow": chosen_of("--allow", [allow], TRACKS),
        "dtypes": chosen_of("--dtype", dtype, DTYPES, SHORT_DTYPES),
        "directions": chosen_of("--direction", direction, DIRECTIONS),
        "distributions": chosen_of("--distribution", distribution, DISTRIBUTIONS),
        "baseline": baseline.value,
        "resume": resume,
        "name": name,
        "target": target,
        "max_usd": max_usd,
        "max_tokens": max_tokens,
        "max_hours": max_hours,
    }
    from kerneleval import pipeline

    with progress(lines=not as_json) as on_event:
        run_id = pipeline.run(**options, on_event=on_event)
    return show_scores(pipeline.score(store_url, run_id), as_json)


def generate(
    generator: Annotated[str, typer.Option("--generator", "-g", help="Name, file or directory of a generator.")],
    folder: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Where the candidates go.")] = "",
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="May be repeated; the default suite otherwise.", autocompletion=complete_tasks
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the prompts; ask nothing.")] = False,
    device: DeviceOption = None,
    shapes: ShapesOption = Shapes.default,
    store: StoreOption = None,
    max_usd: Annotated[
        float | None, typer.Option(metavar="USD", help="Ask nothing more when so much is spent.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Ask nothing more after so many tokens.")] = None,
    max_hours: Annotated[float | None, typer.Option(metavar="H", help="Ask nothing more after so long.")] = None,
    as_json: Json = False,
) -> int:
    """Ask a generator for candidates and write them into a folder, unjudged; or print what it would be asked."""
    if not folder and not dry_run:
        raise UsageError("say where the candidates go (--out FOLDER), or ask for the prompts alone (--dry-run)")
    common: dict[str, Any] = {"device": device_of(device), "shapes": shapes.value, "store_url": store_of(store)}
    caps: dict[str, Any] = {"max_usd": max_usd, "max_tokens": max_tokens, "max_hours": max_hours}
    from kerneleval import pipeline
    from kerneleval.reports import generating_view

    if dry_run:
        prompts = pipeline.prompts(generator, tuple(split(task)), **common)
        print_json(prompts) if as_json else generating_view.render_prompts(prompts, console())
        return PASSED
    with progress(lines=not as_json) as on_event:
        found = pipeline.generate(generator, folder, tuple(split(task)), **common, **caps, on_event=on_event)
    print_json(found) if as_json else generating_view.render_generated(found, console())
    return PASSED


def estimate(
    generator: Annotated[
        list[str],
        typer.Option("--generator", "-g", help="Name, file or directory of a generator; may be repeated."),
    ],
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", "-t", help="May be repeated; the default suite otherwise.", autocompletion=complete_tasks
        ),
    ] = None,
    device: DeviceOption = None,
    shapes: ShapesOption = Shapes.default,
    store: StoreOption = None,
    quick: Quick = False,
    precise: Precise = False,
    against: Annotated[str, typer.Option(metavar="RUN", help="A run of the same to compare with.")] = "",
    as_json: Json = False,
) -> int:
    """Predict tokens, money and time of a run before it, from what the store knows of the model and the tasks."""
    options: dict[str, Any] = {
        "device": device_of(device),
        "shapes": shapes.value,
        "store_url": store_of(store),
        "tier": tier_of(quick, precise),
        "against": against,
    }
    from kerneleval import pipeline
    from kerneleval.reports import generating_view

    found = pipeline.estimate(tuple(split(generator)), tuple(split(task)), **options)
    print_json(found) if as_json else generating_view.render_estimate(found, console())
    return PASSED
