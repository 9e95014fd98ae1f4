"""Commands that judge a candidate, here or on many devices, and judge a run's verdicts again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kerneleval.cli.exits import FAILED, PASSED
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
    Tier,
    case_of,
    chosen_of,
    complete_devices,
    complete_tasks,
    device_of,
    names_of,
    split,
    store_of,
    tier_of,
)
from kerneleval.cli.output import console, print_json, progress
from kerneleval.records import DIRECTIONS, DISTRIBUTIONS, DTYPES, SHAPE_CATEGORIES, TRACKS

__all__ = ["audit", "check", "differ", "matrix"]


def check(
    file: Annotated[
        str,
        typer.Argument(
            help="The candidate: .py (Triton, Numba, torch), .cpp, .cu, .hip, .metal, .cl; or store:HASH, a stored one."
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            "--task", "-t", help="A task's name, or a KernelBench problem file.", autocompletion=complete_tasks
        ),
    ],
    device: DeviceOption = None,
    shapes: ShapesOption = Shapes.default,
    allow: AllowOption = "custom,mixed",
    quick: Quick = False,
    precise: Precise = False,
    dtype: DtypeOption = None,
    direction: DirectionOption = None,
    distribution: DistributionOption = None,
    category: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only these shape categories.")] = None,
    baseline: BaselineOption = Baseline.eager,
    timing: Annotated[bool, typer.Option(help="Whether a correct candidate is timed.")] = True,
    tf32: Annotated[bool, typer.Option("--tf32", help="Allow TF32 in float32 tasks.")] = False,
    entry: Annotated[str, typer.Option(help="Name of the entry point; found by convention otherwise.")] = "",
    backward_entry: Annotated[
        str, typer.Option(help="Name of the explicit backward entry point; found by convention otherwise.")
    ] = "",
    language: Annotated[str, typer.Option(help="Language of the file; found from its content otherwise.")] = "",
    suite_seed: Annotated[int, typer.Option(min=0, help="Public seed of the shapes.")] = 0,
    store: StoreOption = None,
    case: Annotated[
        str | None, typer.Option(metavar="KEY", help="Judge only this case, as a replay line names it.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Judge one candidate on one task."""
    options: dict[str, Any] = {
        "device": device_of(device),
        "shapes": shapes.value,
        "allow": chosen_of("--allow", [allow], TRACKS),
        "tier": tier_of(quick, precise),
        "dtypes": chosen_of("--dtype", dtype, DTYPES, SHORT_DTYPES),
        "directions": chosen_of("--direction", direction, DIRECTIONS),
        "distributions": chosen_of("--distribution", distribution, DISTRIBUTIONS),
        "categories": chosen_of("--category", category, SHAPE_CATEGORIES),
        "timed": timing,
        "tf32": tf32,
        "baseline": baseline.value,
        "entry": entry,
        "backward_entry": backward_entry,
        "language": language,
        "suite_seed": suite_seed,
        "store_url": store_of(store),
        "case": case_of(case),
    }
    from kerneleval import pipeline  # after the options: a bad one is named without waiting for torch

    with progress(lines=False) as on_event:
        verdict = pipeline.check(file, task, **options, on_event=on_event)
    if as_json:
        from kerneleval.reports import json

        print_json(json.verdict_document(verdict))
    else:
        from kerneleval.reports import terminal

        terminal.render_verdict(verdict, console())
    return PASSED if verdict.verdict == "passed" else FAILED


def matrix(
    file: Annotated[str, typer.Argument(help="The candidate: .py (Triton), .cu, .hip, or a file that only runs here.")],
    task: Annotated[str, typer.Option("--task", "-t", help="A task's name.", autocompletion=complete_tasks)],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Architectures (sm_90,gfx942) and devices that are here (cpu,cuda); all otherwise."
        ),
    ] = None,
    dtype: DtypeOption = None,
    judged: Annotated[bool, typer.Option("--judge/--compile-only", help="Whether it is also judged here.")] = True,
    quick: Quick = False,
    precise: Precise = False,
    allow: AllowOption = "custom,mixed,library",
    entry: Annotated[str, typer.Option(help="Name of the entry point; found by convention otherwise.")] = "",
    backward_entry: Annotated[
        str, typer.Option(help="Name of the explicit backward entry point; found by convention otherwise.")
    ] = "",
    language: Annotated[str, typer.Option(help="Language of the file; found from its content otherwise.")] = "",
    as_json: Json = False,
) -> int:
    """Compile a candidate for many GPUs, judge it on those that are here, and say how far it comes on each."""
    options: dict[str, Any] = {
        "targets": names_of("--targets", targets),
        "dtypes": chosen_of("--dtype", dtype, DTYPES, SHORT_DTYPES),
        "judged": judged,
        "tier": tier_of(quick, precise),
        "allow": chosen_of("--allow", [allow], TRACKS),
        "entry": entry,
        "backward_entry": backward_entry,
        "language": language,
    }
    from kerneleval import pipeline

    with progress(lines=False) as on_event:
        found = pipeline.matrix(file, task, **options, on_event=on_event)
    if as_json:
        from kerneleval.records import to_plain

        print_json(to_plain(found))
    else:
        from kerneleval.reports import matrix_view

        matrix_view.render_matrix(found, console())
    return FAILED if any("no" in (r.compiles.answer, r.runs.answer, r.correct.answer) for r in found.rows) else PASSED


def differ(
    task: Annotated[str, typer.Option("--task", "-t", help="A task's name.", autocompletion=complete_tasks)],
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="One for several devices, or one for each.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--devices", metavar="NAME", help="At least two (cpu,cuda); otherwise all that are here."),
    ] = None,
    reference: Annotated[bool, typer.Option("--reference", help="PyTorch's own operators, no candidate.")] = False,
    shapes: ShapesOption = Shapes.default,
    dtype: DtypeOption = None,
    direction: DirectionOption = None,
    distribution: DistributionOption = None,
    case: Annotated[str | None, typer.Option(metavar="KEY", help="Only this case.")] = None,
    tf32: Annotated[bool, typer.Option("--tf32", help="Allow TF32 in float32 tasks.")] = False,
    entry: Annotated[str, typer.Option(help="Name of the entry point; found by convention otherwise.")] = "",
    backward_entry: Annotated[str, typer.Option(help="Name of the explicit backward entry point.")] = "",
    language: Annotated[str, typer.Option(help="Language of the files; found from their content otherwise.")] = "",
    suite_seed: Annotated[int, typer.Option(min=0, help="Public seed of the shapes.")] = 0,
    as_json: Json = False,
) -> int:
    """Give several devices the same secret inputs: which is wrong, and how far do the others lie apart."""
    options: dict[str, Any] = {
        "devices": names_of("--devices", device),
        "reference": reference,
        "shapes": shapes.value,
        "dtypes": chosen_of("--dtype", dtype, DTYPES, SHORT_DTYPES),
        "directions": chosen_of("--direction", direction, DIRECTIONS),
        "distributions": chosen_of("--distribution", distribution, DISTRIBUTIONS),
        "case": case_of(case),
        "tf32": tf32,
        "entry": entry,
        "backward_entry": backward_entry,
        "language": language,
        "suite_seed": suite_seed,
    }
    from kerneleval import pipeline

    with progress(lines=False) as on_event:
        found = pipeline.differ(tuple(files or ()), task, **options, on_event=on_event)
    if as_json:
        from kerneleval.records import to_plain

        print_json(to_plain(found) | {"wrong": found.wrong})
    else:
        from kerneleval.reports import differ_view

        differ_view.render_differential(found, console())
    return FAILED if any(found.wrong.values()) else PASSED


def audit(
    run_id: Annotated[
        str, typer.Argument(metavar="RUN", help="Identifier or name; the latest run that is no audit otherwise.")
    ] = "latest",
    store: StoreOption = None,
    device: Annotated[
        str | None, typer.Option(help="Device kind; that of the run otherwise.", autocompletion=complete_devices)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TASK", help="Only these tasks.", autocompletion=complete_tasks)
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only N verdicts, chosen in secret; all otherwise.")
    ] = None,
    tier: Annotated[Tier | None, typer.Option(help="Timing effort; the run's own otherwise.")] = None,
    same_shapes: Annotated[
        bool, typer.Option("--same-shapes", help="Judge at the run's own shapes, not at others.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Go on where an unfinished audit of the same kind stopped.")] = True,
    as_json: Json = False,
) -> int:
    """Judge a run's verdicts again, by new processes at other shapes, and tell what changed."""
    options: dict[str, Any] = {
        "store_url": store_of(store),
        "device": device_of(device) if device else None,
        "only": tuple(split(only)),
        "sample": sample or 0,
        "tier": "" if tier is None else tier.value,
        "same_shapes": same_shapes,
        "resume": resume,
    }
    from kerneleval.pipeline import audit as auditing

    with progress(lines=not as_json) as on_event:
        found = auditing.audit(run_id, **options, on_event=on_event)
    if as_json:
        print_json(found)
    else:
        from kerneleval.reports import terminal

        terminal.render_audit(found, console())
    return FAILED if found["changed"] else PASSED
