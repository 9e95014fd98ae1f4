"""The command line: arguments in, calls of :mod:`kerneleval.pipeline`, an exit code out.

Exit codes: 0 passed or done; 1 the candidate failed, or an audit found a change; 2 usage or infrastructure; 130
interrupted. Errors are one line on stderr; with ``--json`` stdout holds ``{"error": {"kind", "message"}}`` as well.
``KERNELEVAL_TRACEBACK=1`` shows where an error came from. SIGTERM and SIGHUP end a command as Ctrl-C does: workers and
temporary files go first.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kerneleval import __version__, settings
from kerneleval.exits import (
    ERROR,
    FAILED,
    INTERRUPTED,
    PASSED,
    PIPE_CLOSED,
    Terminated,
    command_of,
    explain,
    signals_as_exceptions,
)
from kerneleval.options import (
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
    RunsArgument,
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
    query_of,
    split,
    store_of,
    tier_of,
)
from kerneleval.records import (
    CATEGORIES,
    DIRECTIONS,
    DISTRIBUTIONS,
    DTYPES,
    SHAPE_CATEGORIES,
    TRACKS,
    Event,
    UsageError,
)

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main"]

app = typer.Typer(
    name="kerneleval",
    help="Judge kernels that machines write: right at every shape, honest, and how fast.",
    epilog="Exit codes: 0 passed or done, 1 failed or changed, 2 usage or infrastructure, 130 interrupted.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.command()
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

    with _progress(lines=False) as on_event:
        verdict = pipeline.check(file, task, **options, on_event=on_event)
    if as_json:
        from kerneleval.reports import json

        _print_json(json.verdict_document(verdict))
    else:
        from kerneleval.reports import terminal

        terminal.render_verdict(verdict, _console())
    return PASSED if verdict.verdict == "passed" else FAILED


@app.command()
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

    with _progress(lines=False) as on_event:
        found = pipeline.matrix(file, task, **options, on_event=on_event)
    if as_json:
        from kerneleval.records import to_plain

        _print_json(to_plain(found))
    else:
        from kerneleval.reports import matrix_view

        matrix_view.render_matrix(found, _console())
    return FAILED if any("no" in (r.compiles.answer, r.runs.answer, r.correct.answer) for r in found.rows) else PASSED


@app.command()
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

    with _progress(lines=False) as on_event:
        found = pipeline.differ(tuple(files or ()), task, **options, on_event=on_event)
    if as_json:
        from kerneleval.records import to_plain

        _print_json(to_plain(found) | {"wrong": found.wrong})
    else:
        from kerneleval.reports import differ_view

        differ_view.render_differential(found, _console())
    return FAILED if any(found.wrong.values()) else PASSED


@app.command()
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

    with _progress(lines=not as_json) as on_event:
        run_id = pipeline.run(**options, on_event=on_event)
    return _show_scores(pipeline.score(store_url, run_id), as_json)


@app.command()
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
        _print_json(prompts) if as_json else generating_view.render_prompts(prompts, _console())
        return PASSED
    with _progress(lines=not as_json) as on_event:
        found = pipeline.generate(generator, folder, tuple(split(task)), **common, **caps, on_event=on_event)
    _print_json(found) if as_json else generating_view.render_generated(found, _console())
    return PASSED


@app.command()
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
    _print_json(found) if as_json else generating_view.render_estimate(found, _console())
    return PASSED


@app.command()
def score(
    runs: RunsArgument = None,
    store: StoreOption = None,
    explain: Annotated[
        str, typer.Option(metavar="NAME", help="Say what this score means, or every one: all; reads no run.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Compute the scores of a stored run again, or say what a score means."""
    if explain:
        from kerneleval import scores
        from kerneleval.reports import scores_view

        said = [scores.explanation(name) for name in (scores.all_scores() if explain == "all" else (explain,))]
        _print_json(said) if as_json else scores_view.render_explanations(said, _console())
        return PASSED
    from kerneleval import pipeline

    return _show_scores(pipeline.score(store_of(store), runs or "latest"), as_json)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN:GENERATOR, or a generator of the latest run.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same: what is held against A.")],
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Compare two runs or generators cell by cell: what got better, what got worse, what cannot be told.

    Two without a cell in common (other shapes or machines, published results) are compared task by task.
    """
    from kerneleval import pipeline
    from kerneleval.reports import compare_view

    found = pipeline.compare(first, second, store_url=store_of(store))
    _print_json(found) if as_json else compare_view.render_comparisons(found, _console())
    return PASSED


@app.command()
def report(
    runs: RunsArgument = None,
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Write one HTML file that opens without a network.")
    ] = "",
    markdown: Annotated[
        str, typer.Option("--markdown", metavar="FILE", help="Write a summary for a pull request.")
    ] = "",
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Print the headline of a run, and write a report to look at."""
    from kerneleval import pipeline

    found = pipeline.report(runs or "latest", store_url=store_of(store), html_to=html, markdown_to=markdown)
    if as_json:
        from kerneleval.reports import json

        _print_json(json.scores_document(found["run"], found["scores"]) | {"written": found["written"]})
    else:
        from kerneleval.reports import scores_view

        scores_view.render_headline(found, _console())
    return PASSED


@app.command()
def analyse(
    runs: RunsArgument = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Tell what correctness depends on, what makes tasks hard, how readable the code is, how machines differ."""
    from kerneleval import pipeline

    found = pipeline.analyse(runs or "latest", store_url=store_of(store))
    if as_json:
        _print_json(found)
        return PASSED
    from kerneleval.analysis import difficulty, rubric
    from kerneleval.reports import analysis_view

    console = _console()
    for one in found["attribution"]:
        analysis_view.render_attribution(one, console)
    analysis_view.render_difficulty(found["difficulty"], console, difficulty.PROXIES)
    analysis_view.render_sources(found["sources"], console)
    analysis_view.render_compiled(found["compiled"], console)
    analysis_view.render_rubric(found["rubric"], console, rubric.AXES, rubric.LEVELS)
    analysis_view.render_hardware(found["hardware"], console)
    return PASSED


@app.command()
def transitions(
    source: Annotated[
        str, typer.Argument(metavar="RUN", help="Identifier or name, or a .jsonl file of KernelBench-X's corpus.")
    ] = "latest",
    store: StoreOption = None,
    noise: Annotated[
        float | None, typer.Option(min=0, max=10, help="What a change of speed without an interval must exceed: 0.02.")
    ] = None,
    pairs: Annotated[str, typer.Option(metavar="FILE", help="Write pairs to learn from, .jsonl or .parquet.")] = "",
    as_json: Json = False,
) -> int:
    """Tell what became of candidates from one iteration to the next: rescued, regressed, faster, slower."""
    from kerneleval import pipeline
    from kerneleval.reports import transitions_view

    found = pipeline.transitions(source, store_url=store_of(store), noise=noise, pairs_to=pairs)
    _print_json(found) if as_json else transitions_view.render_transitions(found, _console())
    return PASSED


@app.command()
def export(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where the files go; made where it is not there.")],
    runs: RunsArgument = None,
    store: StoreOption = None,
    file_format: Annotated[str, typer.Option("--format", metavar="NAME", help="parquet or jsonl.")] = "parquet",
    as_json: Json = False,
) -> int:
    """Write a run as tables for other programs: cells, attempts, candidates and scores."""
    if file_format not in ("parquet", "jsonl"):
        raise UsageError(f"--format {file_format!r} is unknown; known are parquet, jsonl")
    from kerneleval import pipeline

    written = pipeline.export(folder, runs or "latest", store_url=store_of(store), file_format=file_format)
    if as_json:
        _print_json(written)
    else:
        for path, count in written.items():
            typer.echo(f"{_one_line(path)}: {count} rows")
    return PASSED


@app.command()
def merge(
    sources: Annotated[list[str], typer.Argument(metavar="SOURCE", help="Paths or URLs of stores; only read.")],
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Copy the runs of other stores into one, so that runs of several machines can be scored together."""
    from kerneleval import pipeline
    from kerneleval.reports import merge_view

    with _progress(lines=False) as on_event:
        found = pipeline.merge(sources, store_url=store_of(store), on_event=on_event)
    _print_json(found) if as_json else merge_view.render_merged(found, _console())
    return PASSED


@app.command("import")
def import_results(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="eval_results.json of KernelBench, or a .jsonl of KernelBench-X's corpus."),
    ],
    file_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="kernelbench or kernelbenchx.")
    ] = "kernelbench",
    baseline: Annotated[
        str, typer.Option(metavar="FILE", help="KernelBench's times of the reference, baseline_time_torch.json.")
    ] = "",
    solutions: Annotated[
        str, typer.Option(metavar="FOLDER", help="KernelBench's sources, level_L_problem_P_sample_S_kernel.py.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of run and generator; that of the folder otherwise.")] = "",
    hardware: Annotated[str, typer.Option(help="Name of the device, where the file does not state it.")] = "",
    level: Annotated[
        int | None, typer.Option(min=1, max=999, help="KernelBench's level, which its results don't state.")
    ] = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Store results that others published as a run; nothing of them is judged."""
    from kerneleval import pipeline

    found = pipeline.import_results(
        file,
        file_format=file_format,
        baseline=baseline,
        solutions=solutions,
        name=name,
        hardware=hardware,
        level=level,
        store_url=store_of(store),
    )
    if as_json:
        _print_json(found)
        return PASSED
    told = "" if found["written"] else "(imported before, left as it is)"
    typer.echo(f"{_one_line(found['name'])}  {found['run']}  {told}".rstrip())
    typer.echo(", ".join(f"{count} {what}" for what, count in found["counts"].items()))
    for remark in found["remarks"]:
        typer.echo(f"note: {_one_line(remark)}")
    return PASSED


@app.command()
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
    from kerneleval import audit as auditing

    with _progress(lines=not as_json) as on_event:
        found = auditing.audit(run_id, **options, on_event=on_event)
    if as_json:
        _print_json(found)
    else:
        from kerneleval.reports import terminal

        terminal.render_audit(found, _console())
    return FAILED if found["changed"] else PASSED


@app.command()
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
    query = query_of(given)  # before torch is waited for
    from kerneleval import tasks as stage
    from kerneleval.reports import peers, tasks_view
    from kerneleval.reports import tasks as report

    if peer:
        names = peers.summarise_peer(peer)
        _print_json(names) if as_json else peers.render_peer(names, _console())
        return PASSED
    if name:
        task = report.describe(stage.open_task(name))
        _print_json(task) if as_json else tasks_view.render_task(task, _console())
        return PASSED
    every = list(stage.all_tasks().values())
    chosen_of("--source", source, sorted({task.source for task in every}))
    listed = [report.summarise(task) for task in query.select(every)]
    listed.sort(key=lambda task: (CATEGORIES.index(task["category"]), task["name"]))
    _print_json(listed) if as_json else tasks_view.render_tasks(listed, _console(), len(every))
    return PASSED


@app.command()
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

    with _progress(lines=not as_json) as on_event:
        found = pipeline.selftest(tuple(task or ()), **options, on_event=on_event)
    if as_json:
        _print_json(found)
    else:
        from kerneleval.reports import tasks_view

        tasks_view.render_selftest(found, _console())
    return PASSED if all(one["passed"] for one in found) else FAILED


@app.command()
def peaks(
    device: DeviceOption = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure all of them anew.")] = False,
    as_json: Json = False,
) -> int:
    """Tell what this machine can do at best, as measured: bandwidth and operations a second, beside the data sheet."""
    options: dict[str, Any] = {"device": device_of(device), "again": measure}
    from kerneleval import pipeline
    from kerneleval.reports import peaks_view

    with _progress(lines=not as_json) as on_event:
        found = pipeline.peaks(**options, on_event=on_event)
    _print_json(found) if as_json else peaks_view.render_peaks(found, _console())
    return PASSED


@app.command()
def doctor(store: StoreOption = None, as_json: Json = False) -> int:
    """Tell what this machine can do: devices, languages, sandbox, clock, store, and what to install."""
    from kerneleval.reports import doctor as report
    from kerneleval.reports import doctor_view

    found = report.examine(store_of(store), settings.read().cache_dir)
    _print_json(found) if as_json else doctor_view.render(found, _console())
    return PASSED if found["usable"] else FAILED


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


# --------------------------------------------------------------------------------------------------------------------
# Output
# --------------------------------------------------------------------------------------------------------------------


def _console() -> Console:
    from rich.console import Console

    # In a pipe or a log there is no width to fit into, and a table cut to 80 columns would lose figures.
    return Console(highlight=False, width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else 140)


def _one_line(message: str) -> str:
    """The message without line breaks, and without what a file's name or a candidate's text would do to a terminal."""
    from kerneleval.reports.text import safe

    return safe(" ".join(line.strip() for line in message.splitlines()), 4000).replace("\t", " ")


def _print_json(value: Any) -> None:
    from kerneleval.reports import json

    sys.stdout.write(json.dumps(value) + "\n")


def _progress(*, lines: bool) -> AbstractContextManager[Callable[[Event], None] | None]:
    """Bars on stderr where a person watches; elsewhere nothing, or with ``lines`` a line every ten seconds."""
    if not lines and not sys.stderr.isatty():
        return nullcontext(None)
    from kerneleval.reports import terminal

    return terminal.progress()


def _show_scores(scores: dict[str, Any], as_json: bool) -> int:
    if as_json:
        from kerneleval.reports import json

        _print_json(json.scores_document(scores["run"], scores["scores"]))
    else:
        from kerneleval.reports import terminal

        terminal.render_scores(scores, _console())
    return PASSED


# --------------------------------------------------------------------------------------------------------------------
# The outermost frame
# --------------------------------------------------------------------------------------------------------------------


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
        sys.stderr.write(f"error: {_one_line(message)}\n")
        if "--json" in arguments:
            _print_json({"error": {"kind": kind, "message": message}})
        return ERROR
    if code and code >= 128:
        resumes = "; finished cells are in the store, the same command goes on from there"
        resumes = resumes if command_of(arguments) in ("run", "audit") else ""
        sys.stderr.write(f"interrupted{resumes}\n")
    return int(code or 0)
