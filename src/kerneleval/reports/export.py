"""A run as tables for other programs: cells, attempts, samples, candidates, scores; Parquet, or lines of JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kerneleval.analysis import compiled
from kerneleval.records import Candidate, Failed, Result, Score, UsageError, Verdict, to_plain
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

TABLES: Mapping[str, Mapping[str, str]] = {
    "cells": {
        **dict.fromkeys(("run", "generator"), "string"),
        "sample": "int",
        **dict.fromkeys(("candidate", "task", "category", "group"), "string"),
        "level": "int",
        **dict.fromkeys(("device", "machine", "direction", "dims", "dtype", "layout", "distribution"), "string"),
        **dict.fromkeys(("shape_category", "case"), "string"),
        "passed": "bool",
        **dict.fromkeys(("stage", "reason", "message", "replay"), "string"),
        **dict.fromkeys(("speedup", "low", "high", "noise"), "float"),
        "claim": "string",
        **dict.fromkeys(("candidate_ns", "baseline_ns"), "float"),
    },
    "attempts": {
        **dict.fromkeys(("run", "generator"), "string"),
        "sample": "int",
        **dict.fromkeys(("task", "category"), "string"),
        "level": "int",
        **dict.fromkeys(("device", "machine", "candidate"), "string"),
        **dict.fromkeys(("verdict", "stage", "reason", "message", "track", "trust"), "string"),
        **dict.fromkeys(("speedup", "low", "high"), "float"),
        **dict.fromkeys(("claim", "replay", "findings"), "string"),
        "judged_s": "float",
        **dict.fromkeys(("model", "prompt_hash", "parent", "path"), "string"),
        **dict.fromkeys(("round", "tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning"), "int"),
        **dict.fromkeys(("money_usd", "making_s"), "float"),
        "prices": "string",
        "human_edits": "int",
        "guidance": "string",
        "licence": "string",
    },
    "samples": {
        **dict.fromkeys(("run", "generator", "model"), "string"),
        **dict.fromkeys(("sample", "round"), "int"),
        **dict.fromkeys(("task", "category", "device", "machine", "candidate", "parent", "prompt_hash"), "string"),
        **dict.fromkeys(("language", "source", "entry", "backward_entry", "licence"), "string"),
        **dict.fromkeys(("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "human_edits"), "int"),
        **dict.fromkeys(("money_usd", "making_s"), "float"),
        **dict.fromkeys(("prices", "guidance"), "string"),
        **dict.fromkeys(("verdict", "stage", "reason", "message", "track", "claim"), "string"),
        **dict.fromkeys(("speedup", "low", "high", "reward"), "float"),
        **dict.fromkeys((*AXES, "maintainability", "complexity_sum", "complexity_mean", "complexity_max"), "float"),
        **dict.fromkeys(compiled.METRICS, "float"),
    },
    "candidates": dict.fromkeys(("candidate", "language", "entry", "backward_entry", "path", "text"), "string"),
    "scores": {
        **dict.fromkeys(("generator", "score", "of"), "string"),
        **dict.fromkeys(("value", "low", "high"), "float"),
        "n": "int",
        "note": "string",
    },
}
"""Table -> column -> type: ``string``, ``int``, ``float`` (null: no value) or ``bool``."""


# -- Rows -------------------------------------------------------------------------------------------------------------


def cell_rows(results: Iterable[Result]) -> Iterator[Row]:
    """A row for every planned cell, times as medians over its windows; dims are a JSON object."""
    for r in results:
        case, outcome = r.case, r.outcome
        row: Row = {name: getattr(r, name) for name in ("run", "generator", "sample", "candidate", "task", "category")}
        row |= {name: getattr(r, name) for name in ("group", "level", "device", "machine")}
        row |= {name: getattr(case, name) for name in ("direction", "dtype", "layout", "distribution")}
        row |= {"dims": json.dumps(case.dims_map), "shape_category": case.shape_category, "case": case.key}
        if isinstance(outcome, Failed):
            row |= {"passed": False, "stage": outcome.stage, "reason": outcome.reason, "message": outcome.message}
            row["replay"] = outcome.replay
        else:
            row["passed"] = True
            if (timing := outcome.timing) is not None:
                row |= {name: getattr(timing, name) for name in ("speedup", "low", "high", "noise", "claim")}
                row["candidate_ns"] = _median(timing.samples.candidate_ns)
                row["baseline_ns"] = _median(timing.samples.baseline_ns)
        yield row


def attempt_rows(verdicts: Iterable[tuple[Attempt, Verdict]]) -> Iterator[Row]:
    """A row for every verdict, with where its candidate came from; ``findings`` is a JSON list."""
    for attempt, verdict in verdicts:
        row: Row = {name: getattr(attempt, name) for name in ("run", "generator", "sample", "task", "category")}
        row |= {name: getattr(attempt, name) for name in ("level", "device", "machine", "candidate")}
        row |= {name: getattr(verdict, name) for name in ("verdict", "stage", "reason", "message", "track", "replay")}
        row |= {"trust": verdict.trust.level, "judged_s": verdict.seconds}
        row["findings"] = json.dumps(to_plain(verdict.findings))
        if verdict.speedup is not None:
            row |= {"speedup": verdict.speedup.value}
            row |= {name: getattr(verdict.speedup, name) for name in ("low", "high", "claim")}
        if (origin := attempt.origin) is not None:
            row |= {name: getattr(origin, name) for name in _OF_ORIGIN}
            row["making_s"] = origin.seconds
        yield row


_OF_ORIGIN = (
    *("model", "prompt_hash", "parent", "path", "round", "tokens_in", "tokens_out", "tokens_cached"),
    *("tokens_reasoning", "money_usd", "prices", "human_edits", "guidance", "licence"),
)


def sample_rows(
    verdicts: Iterable[tuple[Attempt, Verdict]],
    candidate: Callable[[str], Candidate],
    measured: Mapping[str, Mapping[AttemptKey, float]],
) -> Iterator[Row]:
    """A row for every verdict with the source that it is of and its reward (``scores/common/rewards.py``): data to
    train on.

    Args:
        verdicts: attempts with their verdicts.
        candidate: content hash -> source; asked once a row, for attempts that have one.
        measured: as :class:`~kerneleval.scores.Setting` has it: levels of the rubric and measures of sources.
    """
    for row, (attempt, verdict) in zip(attempt_rows(first := list(verdicts)), first, strict=True):
        source = candidate(attempt.candidate) if attempt.candidate else None
        yield row | {
            "language": None if source is None else source.language,
            "source": None if source is None else source.main,
            "entry": None if source is None else source.entry,
            "backward_entry": None if source is None else source.backward_entry,
            "reward": of_verdict(verdict).value,
            **{name: known.get((attempt.generator, attempt.task, attempt.sample)) for name, known in measured.items()},
            **dataclasses.asdict(compiled.measure(verdict)),
        }


def candidate_rows(candidates: Iterable[Candidate]) -> Iterator[Row]:
    """A row for every file of every candidate."""
    for candidate in candidates:
        for path, text in candidate.files:
            yield {
                "candidate": candidate.hash,
                "language": candidate.language,
                "entry": candidate.entry,
                "backward_entry": candidate.backward_entry,
                "path": path,
                "text": text,
            }


def score_rows(scores: Mapping[str, Mapping[str, Score | Mapping[str, Score]]]) -> Iterator[Row]:
    """A row for every score, and for every entry of those that are tables; ``of`` is what an entry is of."""
    for generator, of in scores.items():
        for name, found in of.items():
            entries = {"": found} if isinstance(found, Score) else found
            for key, one in entries.items():
                figures = {"value": one.value, "low": one.low, "high": one.high, "n": one.n, "note": one.note}
                yield {"generator": generator, "score": name, "of": key, **figures}


def _median(times_ns: Sequence[float]) -> float | None:
    return statistics.median(times_ns) if times_ns else None


# -- Files ------------------------------------------------------------------------------------------------------------


def write_table(path: str | os.PathLike[str], columns: Mapping[str, str], rows: Iterable[Row]) -> int:
    """Write one table; returns the number of rows. The file appears when it is whole, and replaces one that was there.

    Args:
        path: ends with ``.parquet`` or ``.jsonl``.
        columns: column -> type, as one of :data:`TABLES` has them.
        rows: columns that a row lacks, NaN and infinities are null, in both formats.

    Raises:
        UsageError: another ending, a folder that is not there or cannot be written, or pyarrow is not installed.
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
    types: dict[str, Callable[[], Any]] = {
        "string": pyarrow.string,
        "int": pyarrow.int64,
        "float": pyarrow.float64,
        "bool": pyarrow.bool_,
    }
    layout = pyarrow.schema([(name, types[kind]()) for name, kind in columns.items()])
    count = 0
    with parquet.ParquetWriter(path, layout, compression="zstd") as writer:
        batch: list[Row] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _BATCH:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=layout))
                count, batch = count + len(batch), []
        if batch or not count:
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=layout))
            count += len(batch)
    return count
