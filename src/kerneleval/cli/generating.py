"""Commands that ask generators for candidates: a whole run, its candidates alone, what it will cost."""

from __future__ import annotations

from typing import Annotated

import typer

from kerneleval.cli.options import CAPS, RESTRICTIONS, Fields, Json, takes
from kerneleval.cli.output import progress, show, show_scores
from kerneleval.records import RunSpec, UsageError, asked


@takes(
    *("generator", "task", "device", "shapes", "store", "quick", "precise", "allow", *RESTRICTIONS, "baseline"),
    *("resume", "name", "target", *CAPS),
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
