"""Scripted agents, and what they are run with."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from kerneleval import tasks
from kerneleval.generators.agent import Agent
from kerneleval.generators.agent.settings import settings_of
from kerneleval.records import Request
from kerneleval.sandbox import jail

RIGHT = "import numba\n\n\ndef gelu(x):\n    return x\n"
"""Text of a candidate that the fake judge takes for right."""


class FakeCache:
    """Answers in a dict."""

    def __init__(self) -> None:
        self.kept: dict = {}

    def response(self, key):
        return self.kept.get(key)

    def put_response(self, key, body):
        self.kept.setdefault(key, body)


def script(folder: Path, text: str, name: str = "agent.py") -> list[str]:
    """Command line of a Python script with that text."""
    folder = folder / "scripts"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(textwrap.dedent(text))
    return [sys.executable, str(folder / name)]


def agent(folder: Path, text: str, *, words: tuple = (), cache=None, jail=jail.command, **table) -> Agent:
    """The agent of a script."""
    command = [*script(folder, text), *map(str, words)]
    settings = {"name": "scripted", "command": command, "reads": [str(folder / "scripts")], "max_seconds": 60, **table}
    return Agent(settings_of(settings, "a.toml: [generator]"), cache, jail)


def request(check=None, *, sample=0, history=(), task="gelu") -> Request:
    """A question for the CPU."""
    return Request(task=tasks.find(task), device="cpu", sample=sample, history=history, check=check)


def unconfined(argv, readable, writable, network=False):
    """No jail at all: what a test sees refused must work here."""
    return list(argv)
