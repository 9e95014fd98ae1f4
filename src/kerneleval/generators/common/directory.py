"""A directory of candidate files, such as an earlier model run left behind.

Samples of a task are, in this order of sample index::

    <task>.py             sample 0 (any suffix of a known language: .py, .cpp, .cu ...)
    <task>__3.cpp         sample 3
    <task>/5.py           sample 5
    <task>/sample_7.cu    sample 7
    <task>/other.py       the lowest indices that are free, in the order of the names

Where a task's directory holds one directory for each device (``<task>/cuda/...``), only that of the device is read.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from kerneleval.languages import read_candidate
from kerneleval.records import Candidate, Origin, Task, UsageError

_SIDE_FILES = (".json", ".md", ".txt", ".log", ".toml", ".yaml", ".yml", ".jsonl", ".csv")
"""Not candidates, whatever their name: origins, notes, logs."""

_INDEX = re.compile(r"(?:.*?[^0-9])?([0-9]+)$")


class Directory:
    """The generator of the files under a directory, named as it is. Raises UsageError: there is no such directory."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_dir():
            raise UsageError(f"{self.path}: no such directory")
        self.name, self.summary = self.path.resolve().name or "root", f"candidates in {self.path}"

    def candidates(self, task: Task, device: str) -> Iterator[Candidate]:
        """The task's files in the order of their sample index.

        The origin of a file that states none (no side file, no header) becomes this generator and the sample's index;
        a stated one keeps what it says, except the index, which is the file's. Raises UsageError where a file cannot be
        read, or two files are the same sample.
        """
        for sample, file in sorted(self._samples(task.name, device).items()):
            candidate = read_candidate(file)
            origin = dataclasses.replace(candidate.origin, sample=sample, path=str(file))
            if candidate.origin.generator == Origin().generator:
                origin = dataclasses.replace(origin, generator=self.name)
            yield dataclasses.replace(candidate, origin=origin)

    def _samples(self, task: str, device: str) -> dict[int, Path]:
        found: dict[int, Path] = {}
        unnumbered: list[Path] = []
        for file in self._files(self.path):
            stem, _, number = file.stem.rpartition("__")
            if file.stem == task:
                _claim(found, 0, file)
            elif stem == task and number.isdecimal():
                _claim(found, int(number), file)
        folder = self.path / task
        if folder.is_dir():
            own = folder / device
            for file in self._files(own if own.is_dir() else folder):
                match = _INDEX.match(file.stem)
                if match:
                    _claim(found, int(match.group(1)), file)
                else:
                    unnumbered.append(file)
        free = (index for index in itertools.count() if index not in found)
        for file in unnumbered:
            found[next(free)] = file
        return found

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        try:
            entries = sorted(folder.iterdir())
        except OSError as error:
            raise UsageError(f"{folder}: cannot be read: {error.strerror or error}") from error
        return [e for e in entries if e.is_file() and not e.name.startswith((".", "_")) and e.suffix not in _SIDE_FILES]


def _claim(found: dict[int, Path], sample: int, file: Path) -> None:
    if sample in found:
        raise UsageError(f"sample {sample} is there twice: {found[sample]} and {file}")
    found[sample] = file
