"""A run as tables for other programs: cells, attempts, samples, candidates, scores; Parquet, or lines of JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kerneleval.analysis import compiled
from kerneleval.records import Candidate, Passed, Result, Score, UsageError, Verdict, to_plain
from kerneleval.records.errors import optional
from kerneleval.reports.files import replacing
from kerneleval.scores.common.registry import AttemptKey
from kerneleval.scores.common.rewards import of_verdict
from kerneleval.scores.measures import AXES
from kerneleval.store import Attempt

Row = dict[str, Any]

FORMATS = ("parquet", "jsonl")

_BATCH = 10_000
"""Rows of a Parquet row group: as many as are in memory at once."""

_MEASURED = (*AXES, "maintainability", "complexity_sum", "complexity_mean", "complexity_max", *compiled.METRICS)

_COLUMNS = {
    "cells": "run generator sample candidate task category group level device machine direction dims dtype layout "
    "distribution shape_category case passed stage reason message replay speedup low high noise claim candidate_ns "
    "baseline_ns protocol_version",
    "attempts": "run generator sample task category level device machine candidate verdict stage reason message track "
    "trust speedup low high claim replay findings judged_s model prompt_hash parent path round tokens_in tokens_out "
    "tokens_cached tokens_reasoning money_usd making_s prices human_edits guidance licence "
    "protocol_version",
    "samples": "run generator model sample round task category device machine candidate parent prompt_hash language "
    "source entry backward_entry licence tokens_in tokens_out tokens_cached tokens_reasoning human_edits money_usd "
    "making_s prices guidance verdict stage reason message track claim speedup low high reward protocol_version "
    + " ".join(_MEASURED),
    "candidates": "candidate language entry backward_entry path text",
    "scores": "generator score of value low high n note",
}
_TYPES = {
    **dict.fromkeys(("sample", "level", "round", "human_edits", "n", "protocol_version"), "int"),
    **dict.fromkeys(("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning"), "int"),
    **dict.fromkeys(("speedup", "low", "high", "noise", "candidate_ns", "baseline_ns", "judged_s"), "float"),
    **dict.fromkeys(("money_usd", "making_s", "reward", "value", *_MEASURED), "float"),
    "passed": "bool",
}
"""Column -> type, where it is no ``string``."""

TABLES: Mapping[str, Mapping[str, str]] = {
    table: {name: _TYPES.get(name, "string") for name in columns.split()} for table, columns in _COLUMNS.items()
}
"""Table -> column -> type: ``string``, ``int``, ``float`` (null: no value) or ``bool``."""


# -- Rows --------------------------------------------------------------------------------------------------------------


def _row(table: str, *records: object, **given: Any) -> Row:
    """A row of the table: what is given, and for other columns the field of that name in the first record with one."""
    row: Row = {}
    for name in TABLES[table]:
        holder = next((record for record in records if hasattr(record, name)), None)
        if holder is not None and name not in given:
            row[name] = getattr(holder, name)
    return row | given


def cell_rows(results: Iterable[Result]) -> Iterator[Row]:
    """A row for every planned cell, times as medians over its windows; dims are a JSON object."""
    for r in results:
        row = _row("cells", r, r.case, r.outcome, dims=json.dumps(r.case.dims_map), case=r.case.key)
        row["passed"] = isinstance(r.outcome, Passed)
        if isinstance(r.outcome, Passed) and (timing := r.outcome.timing) is not None:
            row |= {name: getattr(timing, name) for name in ("speedup", "low", "high", "noise", "claim")}
            row["candidate_ns"], row["baseline_ns"] = (None if math.isnan(ns) else ns for ns in timing.medians_ns)
        yield row


def attempt_rows(verdicts: Iterable[tuple[Attempt, Verdict]]) -> Iterator[Row]:
    """A row for every verdict, with where its candidate came from; ``findings`` is a JSON list."""
    for attempt, verdict in verdicts:
        given: Row = {"trust": verdict.trust.level, "judged_s": verdict.seconds, "speedup": None}
        given["protocol_version"] = verdict.protocol.version
        if verdict.speedup is not None:
            given["speedup"] = verdict.speedup.value
        if attempt.origin is not None:
            given["making_s"] = attempt.origin.seconds
        given["findings"] = json.dumps(to_plain(verdict.findings))
        yield _row("attempts", attempt, verdict, verdict.speedup, attempt.origin, **given)


def sample_rows(
    verdicts: Iterable[tuple[Attempt, Verdict]],
    candidate: Callable[[str], Candidate],
    measured: Mapping[str, Mapping[AttemptKey, float]],
) -> Iterator[Row]:
    """A row for every verdict with the source that it is of and its reward (``scores/common/rewards.py``): data to
    train on, and so none of tasks that are not judged. ``candidate`` gives the source of a content hash, and is called
    once a row; ``measured`` is as :class:`~kerneleval.scores.Setting` has it: levels of the rubric and measures of
    sources.
    """
    judged = [both for both in verdicts if both[1].verdict != "not_judged"]
    for row, (attempt, verdict) in zip(attempt_rows(judged), judged, strict=True):
        source = candidate(attempt.candidate) if attempt.candidate else None
        text = source.main if source is not None else None
        yield row | {
            **{name: getattr(source, name, None) for name in ("language", "entry", "backward_entry")},
            "source": text,
            "reward": of_verdict(verdict).value,
            **{name: known.get((attempt.generator, attempt.task, attempt.sample)) for name, known in measured.items()},
            **dataclasses.asdict(compiled.measure(verdict)),
        }


def candidate_rows(candidates: Iterable[Candidate]) -> Iterator[Row]:
    """A row for every file of every candidate."""
    for candidate in candidates:
        for path, text in candidate.files:
            yield _row("candidates", candidate, candidate=candidate.hash, path=path, text=text)


def score_rows(scores: Mapping[str, Mapping[str, Score | Mapping[str, Score]]]) -> Iterator[Row]:
    """A row for every score, and for every entry of those that are tables; ``of`` is what an entry is of."""
    for generator, of in scores.items():
        for name, found in of.items():
            entries = {"": found} if isinstance(found, Score) else found
            for key, one in entries.items():
                yield _row("scores", one, generator=generator, score=name, of=key)


# -- Files ------------------------------------------------------------------------------------------------------------


def write_table(path: str | os.PathLike[str], columns: Mapping[str, str], rows: Iterable[Row]) -> int:
    """Write one table with the columns of one of :data:`TABLES` into a ``.parquet`` or ``.jsonl`` file, whole or not at
    all; returns the number of rows. Columns that a row lacks, NaN and infinities are null. Raises UsageError for
    another ending, a folder that is not there or cannot be written, or where pyarrow is not installed.
    """
    target = Path(path)
    write = {".parquet": _write_parquet, ".jsonl": _write_jsonl}.get(target.suffix)
    if write is None:
        raise UsageError(f"{target}: a table is written as {' or '.join(f'.{name}' for name in FORMATS)}; rename it")
    with replacing(target) as unfinished:
        return write(unfinished, columns, (_known(row, columns) for row in rows))


def _known(row: Row, columns: Mapping[str, str]) -> Row:
    found = {name: row.get(name) for name in columns}
    for name, value in found.items():
        if isinstance(value, float) and not math.isfinite(value):
            found[name] = None
        elif isinstance(value, str):
            found[name] = value.encode("utf-8", "backslashreplace").decode()  # lone surrogates are no text elsewhere
    return found


def _write_jsonl(path: Path, columns: Mapping[str, str], rows: Iterable[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
            count += 1
    return count


def _write_parquet(path: Path, columns: Mapping[str, str], rows: Iterable[Row]) -> int:
    with optional("Parquet needs"):
        import pyarrow
        from pyarrow import parquet
    types = {"string": pyarrow.string(), "int": pyarrow.int64(), "float": pyarrow.float64(), "bool": pyarrow.bool_()}
    layout = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    count, left = 0, iter(rows)
    with parquet.ParquetWriter(path, layout, compression="zstd") as writer:
        while (batch := list(itertools.islice(left, _BATCH))) or not count:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=layout))
            count += len(batch)
            if not batch:
                break
    return count
