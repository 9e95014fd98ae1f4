"""Commands that judge candidates, here or on many devices, and that ask generators for candidates."""

from __future__ import annotations

from typing import Annotated

import typer

from kerneleval.cli.options import (
    CANDIDATE,
    CAPS,
    RESTRICTIONS,
    Fields,
    FileArgument,
    Json,
    StoreOption,
    TaskOption,
    Tier,
    complete_devices,
    complete_tasks,
    device_of,
    names_of,
    split,
    store_of,
    takes,
)
from kerneleval.cli.output import FAILED, PASSED, progress, show, show_scores
from kerneleval.records import AuditSpec, CandidateSpec, RunSpec, UsageError, asked, to_plain


@takes(
    *("device", "shapes", "allow", "quick", "precise", *RESTRICTIONS, "category", "baseline", "timing", "time", "tf32"),
    *(*CANDIDATE, "suite_seed", "store", "case", "fail_fast", "patience"),
)
def check(file: FileArgument, task: TaskOption, fields: Fields, as_json: Json = False) -> int:
    """Judge one candidate on one task."""
    spec, protocol = asked(CandidateSpec, {**fields, "source": file, "task": task})
    from kerneleval.pipeline import check_candidate  # after the options: a bad one is named without waiting for torch

    with progress(lines=False) as on_event:
        verdict = check_candidate(spec, protocol, on_event=on_event)
    from kerneleval.reports import json, verdict_view

    show(json.verdict_document(verdict) if as_json else verdict, as_json, verdict_view.render_verdict)
    return PASSED if verdict.verdict == "passed" else FAILED


@takes("dtype", "quick", "precise", "allow", *CANDIDATE, allow="custom,mixed,library")
def matrix(
    file: Annotated[str, typer.Argument(help="The candidate's file; .py (Triton), .cu and .hip compile for GPUs.")],
    task: TaskOption,
    fields: Fields,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Architectures (sm_90,gfx942) and devices of this machine (cpu,cuda); default: all."
        ),
    ] = None,
    judged: Annotated[
        bool, typer.Option("--judge/--compile-only", help="Also judge it on the devices of this machine.")
    ] = True,
    as_json: Json = False,
) -> int:
    """Compile a candidate for many GPUs, and judge it here.

    Shows for each GPU and each device of this machine whether it compiles, runs, is right and is fast.
    """
    wanted = names_of("--targets", targets)
    spec, protocol = asked(CandidateSpec, {**fields, "source": file, "task": task})
    from kerneleval import pipeline
    from kerneleval.reports import devices_view

    with progress(lines=False) as on_event:
        found = pipeline.matrix(spec, protocol, targets=wanted, judged=judged, on_event=on_event)
    show(to_plain(found) if as_json else found, as_json, devices_view.render_matrix)
    return FAILED if any("no" in (r.compiles.answer, r.runs.answer, r.correct.answer) for r in found.rows) else PASSED


@takes("shapes", *RESTRICTIONS, "case", "tf32", *CANDIDATE, "suite_seed")
def differ(
    task: TaskOption,
    fields: Fields,
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="One file for several devices, or one for each.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option("--devices", metavar="NAME", help="At least two (cpu,cuda); default: all of this machine."),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="Compare PyTorch's own operators, without a candidate.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Compare the outputs of several devices for equal inputs.

    The inputs are secret. Shows which device is wrong, and how far apart the others are.
    """
    wanted = names_of("--devices", device)
    spec, protocol = asked(CandidateSpec, {**fields, "source": "", "task": task})
    from kerneleval import pipeline
    from kerneleval.reports import devices_view

    with progress(lines=False) as on_event:
        found = pipeline.differ(
            spec, protocol, paths=tuple(files or ()), devices=wanted, reference=reference, on_event=on_event
        )
    show(to_plain(found) | {"wrong": found.wrong} if as_json else found, as_json, devices_view.render_differential)
    return FAILED if any(found.wrong.values()) else PASSED


def audit(
    run_id: Annotated[
        str, typer.Argument(metavar="RUN", help="Identifier or name of a run that is no audit.")
    ] = "latest",
    store: StoreOption = None,
    device: Annotated[
        str | None, typer.Option(help="Device to judge on; default: that of the run.", autocompletion=complete_devices)
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TASK", help="Only these tasks.", autocompletion=complete_tasks)
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only N verdicts, chosen in secret; default: all.")
    ] = None,
    tier: Annotated[Tier | None, typer.Option(help="Timing effort; default: that of the run.")] = None,
    same_shapes: Annotated[
        bool, typer.Option("--same-shapes", help="Judge at the shapes of the run, not at others.")
    ] = False,
    resume: Annotated[bool, typer.Option(help="Continue an unfinished audit of the same kind.")] = True,
    as_json: Json = False,
) -> int:
    """Judge the verdicts of a run again, and show what changed.

    New processes judge them, with new secrets, at other shapes.
    """
    spec = AuditSpec(
        run=run_id,
        store_url=store_of(store),
        device=device_of(device) if device else None,  # not from the environment: the run knows its own device
        only=tuple(split(only)),
        sample=sample or 0,
        tier="" if tier is None else tier.value,
        same_shapes=same_shapes,
        resume=resume,
    )
    from kerneleval.pipeline import audit as auditing
    from kerneleval.reports import changes_view

    with progress(lines=not as_json) as on_event:
        found = auditing.audit(spec, on_event=on_event)
    show(found, as_json, changes_view.render_audit)
    return FAILED if found["changed"] else PASSED


@takes(
    *("generator", "task", "device", "shapes", "store", "quick", "precise", "allow", *RESTRICTIONS, "baseline"),
    *("resume", "name", "target", *CAPS, "patience"),
    allow="custom,mixed,library",
)
def run(fields: Fields, as_json: Json = False) -> int:
    """Judge generators over a suite of tasks, and score them.

    Every result is stored; an interrupted run continues when the same command is given again.
    """
    spec, protocol = asked(RunSpec, fields)
    from kerneleval import pipeline  # after the options: a bad one is named without waiting for torch

    with progress(lines=not as_json) as on_event:
        run_id = pipeline.run_suite(spec, protocol, on_event=on_event)
    return show_scores(pipeline.score(spec.store_url, run_id), as_json)


@takes("task", "device", "shapes", "store", *CAPS)
def generate(
    generator: Annotated[str, typer.Option("--generator", "-g", help="Name, file or directory of a generator.")],
    fields: Fields,
    folder: Annotated[str, typer.Option("--out", metavar="FOLDER", help="Folder to write the candidates to.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the prompts; ask nothing.")] = False,
    as_json: Json = False,
) -> int:
    """Ask a generator for candidates, without judging them.

    They are written into a folder, which is a generator itself: --generator FOLDER.
    """
    if not folder and not dry_run:
        raise UsageError("no folder is given; give --out FOLDER for the candidates, or --dry-run to see the prompts")
    spec, protocol = asked(RunSpec, {**fields, "generators": (generator,)})
    from kerneleval import pipeline
    from kerneleval.reports import generating_view

    if dry_run:
        prompts = pipeline.prompts(spec, protocol)
        return show(prompts, as_json, generating_view.render_prompts)
    with progress(lines=not as_json) as on_event:
        found = pipeline.generate(spec, protocol, folder, on_event=on_event)
    return show(found, as_json, generating_view.render_generated)


@takes("generator", "task", "device", "shapes", "store", "quick", "precise", generator=...)
def estimate(
    fields: Fields,
    against: Annotated[str, typer.Option(metavar="RUN", help="A run of the same plan to compare with.")] = "",
    as_json: Json = False,
) -> int:
    """Predict tokens, money and time of a run.

    The prediction rests on earlier answers and verdicts in the store.
    """
    spec, protocol = asked(RunSpec, fields)
    from kerneleval import pipeline
    from kerneleval.reports import generating_view

    found = pipeline.estimate(spec, protocol, against=against)
    return show(found, as_json, generating_view.render_estimate)
