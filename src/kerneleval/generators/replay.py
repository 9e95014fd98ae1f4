"""Candidates of an earlier run, or of an exported file of samples, judged again as they are.

A file of samples is what ``kerneleval export`` writes (``samples.jsonl``); it may be compressed (``.jsonl.gz``).
"""

from __future__ import annotations

import functools
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kerneleval.generators.common.base import Cache, candidate_name
from kerneleval.generators.common.registry import KINDS
from kerneleval.generators.common.settings import known_keys
from kerneleval.records import Candidate, Origin, Task, UsageError, from_plain, near
from kerneleval.store import open_store

_SUFFIXES = (".jsonl", ".jsonl.gz")
_SAME = (
    *("model", "prompt_hash", "parent", "licence", "prices", "guidance", "round", "sample", "human_edits"),
    *("tokens_in", "tokens_out", "tokens_cached", "tokens_reasoning", "money_usd"),
)
_ORIGIN = {name: name for name in _SAME} | {"seconds": "making_s"}
"""Field of an origin -> column of a table of samples."""
_LONGEST = 16 << 20
"""Bytes of one line; a source has 4 MiB at most."""

Kept = Callable[[], Iterator[tuple[str, Candidate]]]
"""Every (task name, candidate), in order."""


class Replay:
    """Earlier candidates, with the origin that they had: model, prompt and cost are those of their making, and count as
    they did then; nothing is spent anew. They are read when candidates are needed first; ``only`` those of that
    generator count.
    """

    def __init__(self, name: str, summary: str, kept: Kept, only: str = "") -> None:
        self.name, self.summary = name, summary
        self._read, self._only = kept, only
        self._by_task: dict[str, list[Candidate]] | None = None

    def candidates(self, task: Task, device: str) -> Iterator[Candidate]:
        """The task's samples in their order; those of several generators are numbered one after another. Raises
        UsageError, which names the line, where the file or the run cannot be read.
        """
        if self._by_task is None:
            self._by_task = self._sorted()
        found = self._by_task.get(task.name, [])
        taken = [candidate.origin.sample for candidate in found]
        own = len(set(taken)) == len(taken)
        for number, candidate in enumerate(found):
            origin = replace(candidate.origin, generator=self.name, sample=taken[number] if own else number)
            yield replace(candidate, origin=origin)

    def _sorted(self) -> dict[str, list[Candidate]]:
        by_task: dict[str, dict[tuple[str, int, str], Candidate]] = {}
        makers: set[str] = set()
        for task, candidate in self._read():
            makers.add(candidate.origin.generator)
            if not self._only or candidate.origin.generator == self._only:
                key = (candidate.origin.generator, candidate.origin.sample, candidate.hash)
                by_task.setdefault(task, {}).setdefault(key, candidate)  # of several machines' rows one is enough
        if self._only and self._only not in makers:
            raise UsageError(f"{self.name}: nothing there is by {self._only!r:.80}; {near(self._only, makers)}")
        return {task: [of[key] for key in sorted(of, key=lambda k: k[:2])] for task, of in by_task.items()}


def of_file(path: Path, name: str = "", only: str = "") -> Replay:
    """The generator of a file of samples. Raises UsageError where there is no such file."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    stem = path.name.partition(".")[0]
    return Replay(name or stem, f"samples of {path}", lambda: _samples(path), only)


def _samples(path: Path) -> Iterator[tuple[str, Candidate]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            number = 0
            while line := file.readline(_LONGEST):
                number += 1
                if len(line) >= _LONGEST:
                    raise UsageError(f"{path}:{number}: the line has more than {_LONGEST >> 20} MiB")
                if line.strip():
                    found = _sample(line, f"{path}:{number}")
                    if found is not None:
                        yield found
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error


def _sample(line: bytes, where: str) -> tuple[str, Candidate] | None:
    """One row; None: an attempt without a candidate."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: not valid JSON: {error}") from error
    if not isinstance(row, dict):
        raise UsageError(f"{where}: expected an object, got {type(row).__name__}")
    if row.get("source") is None and not row.get("candidate") and "task" in row:
        return None
    texts = {key: row.get(key) for key in ("task", "source", "language")}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise UsageError(f"{where}: {key!r} is missing or no text; 'kerneleval export' writes files of samples")
    language = str(texts["language"])
    candidate = Candidate(
        files=((candidate_name(language), str(texts["source"])),),
        language=language,
        entry=_text(row, "entry", where),
        backward_entry=_text(row, "backward_entry", where),
        origin=_origin(row, where),
    )
    return str(texts["task"]), candidate


def _origin(row: Mapping[str, Any], where: str) -> Origin:
    plain = {field: row[key] for field, key in _ORIGIN.items() if row.get(key) is not None}
    try:
        return from_plain(Origin, plain | {"generator": row.get("generator") or "replay"})
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def _text(row: Mapping[str, Any], key: str, where: str) -> str:
    value = row.get(key) or ""
    if not isinstance(value, str):
        raise UsageError(f"{where}: {key!r} must be text, not {value!r:.80}")
    return value


_KEYS = ("name", "path", "store", "run", "generator")


@KINDS.register(name="replay")
def from_settings(table: Mapping[str, Any], place: str, cache: Cache | None = None) -> Replay:
    """The replay of a settings file: ``path`` (samples), or ``store`` and ``run``; ``generator`` chooses one. Raises
    UsageError for an unknown key, none or both of the two, or no such file.
    """
    known_keys(table, _KEYS, place)
    for key, value in table.items():
        if not isinstance(value, str) or not value:
            raise UsageError(f"{place} {key} must be a string, not {value!r:.80}")
    name, only = str(table.get("name", "")), str(table.get("generator", ""))
    if ("path" in table) == ("run" in table):
        raise UsageError(f"{place} needs either path (a file of samples) or run (of store), and not both")
    if "path" in table:
        path = Path(table["path"])
        if not path.name.endswith(_SUFFIXES):
            raise UsageError(f"{place} path {path.name!r:.80} must end in {' or '.join(_SUFFIXES)}")
        return of_file(path, name, only)
    run = table["run"]
    kept = functools.partial(_candidates_of_run, table.get("store"), run)
    return Replay(name or f"replay-{run}", f"candidates of run {run}", kept, only)


def _candidates_of_run(store_url: str | None, run: str) -> Iterator[tuple[str, Candidate]]:
    """The candidates of a stored run with their origin, by task name; raises UsageError for no such store or run."""
    with open_store(store_url, create=False, write=False) as store:
        for attempt in store.attempts(store.run(run).id):
            if attempt.candidate and attempt.origin is not None:
                origin = replace(attempt.origin, generator=attempt.generator, sample=attempt.sample)
                yield attempt.task, replace(store.candidate(attempt.candidate), origin=origin)
