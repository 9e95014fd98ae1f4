"""Commands on stored runs: scores, comparisons, reports, analyses, tables, and runs that come from elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from kerneleval.cli.options import Json, RunsArgument, StoreOption, store_of
from kerneleval.cli.output import PASSED, one_line, print_json, progress, show, show_scores
from kerneleval.records import UsageError


def score(
    runs: RunsArgument = None,
    store: StoreOption = None,
    explain: Annotated[
        str, typer.Option(metavar="NAME", help="Explain this score, or all of them: all. Reads no run.")
    ] = "",
    as_json: Json = False,
) -> int:
    """Compute the scores of a stored run, or explain a score."""
    if explain:
        from kerneleval import scores
        from kerneleval.reports import scores_view

        said = [scores.explanation(name) for name in (scores.all_scores() if explain == "all" else (explain,))]
        return show(said, as_json, scores_view.render_explanations)
    from kerneleval import pipeline

    return show_scores(pipeline.score(store_of(store), runs or "latest"), as_json)


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="RUN, RUN:GENERATOR, or a generator of the latest run.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same; it is compared with A.")],
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Compare two runs or generators cell by cell.

    Two that have no cell in common (other shapes or machines, published results) are compared task by task.
    """
    from kerneleval import pipeline
    from kerneleval.reports import changes_view

    found = pipeline.compare(first, second, store_url=store_of(store))
    return show(found, as_json, changes_view.render_comparisons)


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
    """Print the headline of a run, or write a report."""
    from kerneleval import pipeline
    from kerneleval.reports import json, scores_view

    found = pipeline.report(runs or "latest", store_url=store_of(store), html_to=html, markdown_to=markdown)
    document = json.scores_document(found["run"], found["scores"]) | {"written": found["written"]} if as_json else found
    return show(document, as_json, scores_view.render_headline)


def analyse(runs: RunsArgument = None, store: StoreOption = None, as_json: Json = False) -> int:
    """Analyse a run: correctness, difficulty, sources, machines."""
    from kerneleval import pipeline
    from kerneleval.reports import analysis_view

    found = pipeline.analyse(runs or "latest", store_url=store_of(store))
    return show(found, as_json, analysis_view.render_analyses)


def transitions(
    source: Annotated[
        str, typer.Argument(metavar="RUN", help="Identifier or name, or a .jsonl file of KernelBench-X's corpus.")
    ] = "latest",
    store: StoreOption = None,
    noise: Annotated[
        float | None,
        typer.Option(min=0, max=10, help="Least change of speed that counts where there is no interval, as 0.02."),
    ] = None,
    pairs: Annotated[str, typer.Option(metavar="FILE", help="Write training pairs to a .jsonl or .parquet file.")] = "",
    as_json: Json = False,
) -> int:
    """Show how candidates changed from one iteration to the next.

    A candidate is rescued, regressed, faster or slower.
    """
    from kerneleval import pipeline
    from kerneleval.reports import changes_view

    found = pipeline.transitions(source, store_url=store_of(store), noise=noise, pairs_to=pairs)
    return show(found, as_json, changes_view.render_transitions)


def export(
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Folder to write to; it is made if it does not exist.")
    ],
    runs: RunsArgument = None,
    store: StoreOption = None,
    file_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format of the files: parquet or jsonl.")
    ] = "parquet",
    as_json: Json = False,
) -> int:
    """Write a run as tables for other programs.

    The tables are cells, attempts, candidates and scores.
    """
    if file_format not in ("parquet", "jsonl"):
        raise UsageError(f"--format {file_format!r} is unknown; known are parquet, jsonl")
    from kerneleval import pipeline

    written = pipeline.export(folder, runs or "latest", store_url=store_of(store), file_format=file_format)
    if as_json:
        print_json(written)
    else:
        for path, count in written.items():
            typer.echo(f"{one_line(path)}: {count} rows")
    return PASSED


def merge(
    sources: Annotated[
        list[str], typer.Argument(metavar="SOURCE", help="Paths or URLs of stores; they are only read.")
    ],
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Copy the runs of other stores into one store.

    Runs of several machines can then be scored together.
    """
    from kerneleval import pipeline
    from kerneleval.reports import merge_view

    with progress(lines=False) as on_event:
        found = pipeline.merge(sources, store_url=store_of(store), on_event=on_event)
    return show(found, as_json, merge_view.render_merged)


def import_results(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="eval_results.json of KernelBench, or a .jsonl of KernelBench-X's corpus."),
    ],
    file_format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format of the file: kernelbench or kernelbenchx.")
    ] = "kernelbench",
    baseline: Annotated[
        str, typer.Option(metavar="FILE", help="Times of KernelBench's reference: baseline_time_torch.json.")
    ] = "",
    solutions: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder of sources: level_L_problem_P_sample_S_kernel.py.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of run and generator; default: name of the folder.")] = "",
    hardware: Annotated[str, typer.Option(help="Name of the device, if the file does not state it.")] = "",
    level: Annotated[
        int | None, typer.Option(min=1, max=999, help="Level of KernelBench, if the file does not state it.")
    ] = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> int:
    """Store published results as a run, without judging them."""
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
        print_json(found)
        return PASSED
    note = "" if found["written"] else "(imported before, left as it is)"
    typer.echo(f"{one_line(found['name'])}  {found['run']}  {note}".rstrip())
    typer.echo(", ".join(f"{count} {what}" for what, count in found["counts"].items()))
    for remark in found["remarks"]:
        typer.echo(f"note: {one_line(remark)}")
    return PASSED
