"""What every benchmark here shares: where results go, how they are headed, tables of plain text, what becomes of one
that is ended early.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kerneleval.records import Machine, to_plain

__all__ = ["Report", "parser", "until_ended"]

_SAME_MOMENT_S = 2.0


def parser(description: str) -> argparse.ArgumentParser:
    """Options that every benchmark takes."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--device", default=None, help="device kind; CUDA where there is one, else the CPU")
    made.add_argument("--out", type=Path, default=Path("results"), help="directory for the results")
    return made


@contextlib.contextmanager
def until_ended() -> Iterator[None]:
    """A block that Ctrl-C, or a limit of time (SIGTERM), ends: what comes after it tells what was measured until then.

    A later signal ends the program; not one of the same moment: ``timeout`` tells the program and then its whole group.
    """
    ended_s = 0.0

    def end(number: int, _frame: object) -> None:
        nonlocal ended_s
        if not ended_s:
            ended_s = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() > ended_s + _SAME_MOMENT_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        if not ended_s:
            signal.signal(signal.SIGTERM, before)


class Report:
    """One benchmark's result: printed as it grows, written as text and JSON at the end."""

    def __init__(self, name: str, machine: Machine, out: Path) -> None:
        self._name, self._machine, self._out = name, machine, out
        self._lines: list[str] = []
        self.data: dict[str, Any] = {}
        date = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        self._date = date
        self.say(f"# {name}")
        self.say(f"{date}, {machine.name} ({machine.arch}), {machine.host}, torch {machine.torch}", "")

    def say(self, *lines: str) -> None:
        """Lines of text."""
        for line in lines:
            print(line, flush=True)
            self._lines.append(line)

    def table(self, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """A table in columns."""
        cells = [[str(c) for c in row] for row in (head, *rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
        for row in cells:
            self.say("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip())
        self.say("")

    def write(self) -> None:
        """Text and JSON files named by benchmark, device and date."""
        self._out.mkdir(parents=True, exist_ok=True)
        stem = f"{self._name}-{self._machine.name.replace(' ', '_')}-{self._date}"
        (self._out / f"{stem}.txt").write_text("\n".join(self._lines) + "\n")
        body = {"machine": to_plain(self._machine), "date": self._date, **to_plain(self.data)}
        (self._out / f"{stem}.json").write_text(json.dumps(body, indent=1) + "\n")
