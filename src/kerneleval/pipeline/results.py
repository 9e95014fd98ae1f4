"""Stored runs: scores, comparisons, analyses, reports, tables.

A run is an identifier, its beginning, a name or ``latest``; several are one, with the machines of all. A store is a
path or URL; None: ``./kerneleval.db``. Each function raises UsageError where there is no such store or run.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kerneleval.pipeline.stored import StoredRuns, collects_later, rounds_of, same_baseline
from kerneleval.records import OnEvent, UsageError, near, tell, to_plain
from kerneleval.scores.common.cells import by_key

if TYPE_CHECKING:
    from kerneleval.analysis.rubric import Profile
    from kerneleval.scores.limit import Point
    from kerneleval.store.plan import RunInfo
    from kerneleval.store.store import Store


@collects_later()
def score(store_url: str | None = None, run: str | Sequence[str] = "latest") -> dict[str, Any]:
    """Every score of the generators of one or more runs, as plain data: ``run`` and ``scores``."""
    runs = StoredRuns(store_url, run)
    return {"run": to_plain(runs.info), "scores": to_plain(runs.scores)}


@collects_later()
def export(
    folder: str | Path,
    run: str | Sequence[str] = "latest",
    *,
    store_url: str | None = None,
    file_format: str = "parquet",
) -> dict[str, int]:
    """Write runs as tables: ``cells``, ``attempts``, ``samples``, ``candidates`` and ``scores``, a file each,
    ``parquet`` or ``jsonl``; gives the path of each file -> its number of rows.

    The folder is made where it is not there; files of these names are replaced, each by a whole one. Raises UsageError
    for a folder that cannot be written, or a package that is missing.
    """
    from kerneleval.reports import export as tables

    runs = StoredRuns(store_url, run)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{place} can't be made: {error.strerror}; give another folder") from error
    rows: dict[str, Iterable[dict[str, Any]]] = {
        "cells": tables.cell_rows(runs.results),
        "attempts": tables.attempt_rows(runs.verdicts),
        "samples": tables.sample_rows(runs.verdicts, runs.store.candidate, runs.setting.measured),
        "candidates": tables.candidate_rows(runs.candidates.values()),
        "scores": tables.score_rows(runs.scores),
    }
    paths = {name: place / f"{name}.{file_format}" for name in rows}
    return {str(paths[name]): tables.write_table(paths[name], tables.TABLES[name], of) for name, of in rows.items()}


def import_results(path: str | Path, *, store_url: str | None = None, **options: Any) -> dict[str, Any]:
    """Store what others published as a run; nothing of it is judged. Arguments and errors are those of
    :func:`kerneleval.analysis.published.load`. Returns ``run``, ``written`` (whether it was not there yet), ``name``,
    ``machine``, ``counts`` and ``remarks``.
    """
    from kerneleval.analysis import published
    from kerneleval.store import open_store

    found = published.load(path, **options)
    with open_store(store_url) as store:
        run, written = published.put(store, found)
    return {
        "run": run,
        "written": written,
        "name": found.name,
        "machine": found.machine.name,
        "counts": dict(found.counts),
        "remarks": list(found.remarks),
    }


@collects_later()
def compare(first: str, second: str, *, store_url: str | None = None) -> dict[str, Any]:
    """The second of two runs, or of two generators, against the first, as plain data.

    Each is ``RUN``, ``RUN:GENERATOR``, or a generator of the latest run. Of two runs, the generators that both have are
    compared, each with itself; where each run has just one generator, these two.

    Returns ``comparisons``, each with ``before`` and ``after`` (run, name, generator), ``by`` (``cell``; ``task`` where
    the two have no cell in common), ``comparison`` (a :class:`kerneleval.scores.common.paired.Comparison`, or a
    :class:`kerneleval.scores.common.by_task.TaskComparison`) and ``counts`` (change -> cells; empty by task); and
    ``not_compared``: generators that one of the runs lacks. Raises UsageError where both are the same, or have nothing
    in common, or cells in common that are judged against different baselines.
    """
    from kerneleval.scores import by_generator
    from kerneleval.scores.common import by_task, paired
    from kerneleval.store import open_store
    from kerneleval.tasks import peers

    store = open_store(store_url, create=False, write=False)
    sides = [_side(store, text) for text in (first, second)]
    (run, chosen), (other_run, other_chosen) = sides
    names = [(a, b) for a in chosen for b in other_chosen if a == b]
    if len(chosen) == len(other_chosen) == 1:
        names = [(chosen[0], other_chosen[0])]
    if not names:
        have = f"{first} has {', '.join(chosen)}, {second} has {', '.join(other_chosen)}"
        raise UsageError(f"{have}: name one of each, as {run.id}:{chosen[0]}")
    if (run.id, names[0][0]) == (other_run.id, names[0][1]):
        raise UsageError(f"{first} and {second} are the same; give another run, or two generators of it")
    rows = by_generator(store.results(run.id, generators=[name for name, _ in names]))
    other_rows = by_generator(store.results(other_run.id, generators=[name for _, name in names]))
    comparisons = []
    for name, other in names:
        plain: dict[str, Any] = {
            "before": {"run": run.id, "name": run.name, "generator": name},
            "after": {"run": other_run.id, "name": other_run.name, "generator": other},
        }
        mine, theirs = rows.get(name, []), other_rows.get(other, [])
        if paired.in_common(mine, theirs):
            same_baseline([run, other_run])
            found = paired.compare(mine, theirs)
            plain |= {"by": "cell", "counts": found.counts(), "comparison": to_plain(found)}
        else:
            same = peers.same_tasks(r.task for r in (*mine, *theirs))
            plain |= {"by": "task", "counts": {}, "comparison": to_plain(by_task.compare_tasks(mine, theirs, same))}
        comparisons.append(plain)
    compared = {name for both in names for name in both}
    left = [name for name in dict.fromkeys((*chosen, *other_chosen)) if name not in compared]
    return {"comparisons": comparisons, "not_compared": left}


@collects_later()
def report(
    run: str | Sequence[str] = "latest",
    *,
    store_url: str | None = None,
    html_to: str | Path = "",
    markdown_to: str | Path = "",
) -> dict[str, Any]:
    """A run to look at: one HTML file that needs no network, a Markdown summary of at most sixty lines, and the
    scores as plain data. Files that are not named are not written.

    Returns ``run`` and ``scores`` as :func:`score` gives them, and ``written``: the files. Raises UsageError for a file
    that cannot be written, or a package that is missing.
    """
    from kerneleval.analysis import rubric
    from kerneleval.reports import html, markdown
    from kerneleval.reports.files import write_text
    from kerneleval.scores.limit import roofline

    runs = StoredRuns(store_url, run)
    scores, written = runs.scores, []
    if html_to or markdown_to:
        extras = {
            "roofline": [_in_roofline(point) for point in roofline(runs.results, runs.setting)],
            "rubric": _as_levels(rubric.profiles(runs.ratings)),
            "rounds": rounds_of(runs.store, runs.ids),
        }
        document = html.build(runs.info, scores, runs.results, runs.verdicts, runs.candidates, extras)
        if html_to:
            html.write(document, html_to)
        if markdown_to:
            write_text(markdown_to, markdown.render(document))
        written = [str(path) for path in (html_to, markdown_to) if path]
    return {"run": to_plain(runs.info), "scores": to_plain(scores), "written": written}


def _in_roofline(point: Point) -> dict[str, Any]:
    return {
        "generator": point.result.generator,
        "task": point.result.task,
        "case": point.result.case.key,
        "intensity": point.flop / point.nbytes if point.nbytes else math.inf,
        "achieved_flop_s": point.flop / point.time_s,
        "fraction": point.fraction,
    }


def _as_levels(profiles: Sequence[Profile]) -> dict[str, dict[str, dict[str, Any]]]:
    """Generator -> axis -> level -> attempts; ``none``: not evaluated, ``why``."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in profiles:
        levels: dict[str, Any] = {str(level): count for level, count in one.counts.items()}
        levels |= {"none": sum(one.not_evaluated.values()), "why": "; ".join(one.not_evaluated)}
        found.setdefault(one.generator, {})[one.axis] = levels
    return found


@collects_later()
def analyse(run: str | Sequence[str] = "latest", *, store_url: str | None = None) -> dict[str, Any]:
    """What correctness depends on, what makes tasks hard, how readable the code is, how machines differ; plain data.
    Raises UsageError where a package is missing.
    """
    from kerneleval.analysis import attribution, compiled, difficulty, hardware, rubric, sources

    runs = StoredRuns(store_url, run)
    results, metrics = runs.results, runs.metrics
    keys = (attribution.of_category, attribution.of_group)
    return {
        "runs": runs.ids,
        "attribution": [to_plain(attribution.attribute(results, key=key)) for key in keys],
        "difficulty": to_plain(difficulty.difficulty(results, runs.tasks)),
        "sources": to_plain(sources.by_generators(metrics, results)),
        "compiled": to_plain(compiled.by_generators(runs.compiled, results)),
        "rubric": to_plain(rubric.profiles(runs.ratings)),
        "hardware": to_plain(hardware.hardware(results)),
    }


def transitions(
    source: str = "latest", *, store_url: str | None = None, noise: float | None = None, pairs_to: str | Path = ""
) -> dict[str, Any]:
    """What became of candidates from one iteration to the next, as plain data.

    The source is a run or a file of KernelBench-X's corpus (``.jsonl``). Of a run its rounds of refinement are read. A
    change of speed without an interval must exceed ``noise``, a ratio minus 1. Error-correction and optimisation pairs
    go to a file, ``.parquet`` or ``.jsonl``, where one is named. Raises UsageError where there is no such file or
    corpus, or a file cannot be written.
    """
    from kerneleval.analysis import transitions as between
    from kerneleval.analysis.formats import kernelbenchx

    runs: list[str] = []
    if source.endswith(".jsonl"):
        chains = [[record.before, record.after] for record in kernelbenchx.read(source)]
    else:
        from kerneleval.store import open_store

        store = open_store(store_url, create=False, write=False)
        own = store.run(source).id
        runs = [other.id for other in store.runs() if other.rounds_of == own] or [own]
        hashes = dict.fromkeys(attempt.candidate for run in runs for attempt in store.attempts(run))
        sources = {h: store.candidate(h) for h in hashes if h}
        chains = [chain for run in runs for chain in between.steps_of_run(store.verdicts(run), sources)]
    found = between.transitions(chains, noise=between.NOISE if noise is None else noise)
    rows = list(between.pairs(found))
    if pairs_to:
        from kerneleval.reports import export as tables

        tables.write_table(pairs_to, between.COLUMNS, rows)
    return {
        "runs": runs,
        "transitions": len(found),
        "tasks": len({one.before.task for one in found}),
        "counts": between.counts(found),
        "shares": to_plain(between.shares(found)),
        "repair_bias": to_plain(between.repair_bias(found)),
        "pairs": dict(Counter(row["kind"] for row in rows)),
        "left_out": between.left_out(found),
        "written": str(pairs_to),
    }


def _side(store: Store, text: str) -> tuple[RunInfo, list[str]]:
    """The run meant, and which of its generators."""
    run, _, generator = text.rpartition(":") if ":" in text else (text, "", "")
    latest = store.run()
    if not generator and text in latest.generators:
        return latest, [text]
    info = store.run(run)
    if generator and generator not in info.generators:
        raise UsageError(f"run {run} has no generator {generator!r}; {near(generator, info.generators)}")
    return info, [generator] if generator else list(info.generators)


def merge(sources: Sequence[str], *, store_url: str | None = None, on_event: OnEvent | None = None) -> dict[str, Any]:
    """Copy every run of other stores, which are only read, with all that they need, into one store, made where there is
    none; and give the result as plain data.

    Each source is one transaction: after a failure the store holds the sources before it and nothing of the one that
    failed, and the same call continues. What is there already stays as it is.

    Returns ``store``; ``sources``: a :class:`kerneleval.store.merging.Merged` for each; ``names``: names that several
    runs of the store have -> identifiers, the latest first; ``machines``: number of machines of all merged runs. Raises
    UsageError where no source is given, or one that is no store, of a newer version, or the target itself, or a run is
    in both with other contents; InfrastructureError where a source is damaged, disk or server fail.
    """
    from kerneleval.store import open_store

    if not sources:
        raise UsageError("no source is given; give the path or URL of a store")
    opened = [open_store(url, create=False, write=False) for url in sources]  # a bad one is named before anything moves
    found = []
    with open_store(store_url) as target:
        for source in opened:
            with source:
                on_rows = functools.partial(tell, on_event, "merge", text=source.place)
                found.append(target.merge(source, on_rows))
        names = by_key((info.name, info.id) for info in target.runs())
        place = target.place
    merged = {run.id: run for one in found for run in one.runs}
    return {
        "store": place,
        "sources": [to_plain(one) for one in found],
        "names": {name: ids for name, ids in names.items() if len(ids) > 1 and set(ids) & set(merged)},
        "machines": len({machine.fingerprint for run in merged.values() for machine in run.machines}),
    }
