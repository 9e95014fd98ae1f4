"""Workspaces: what an agent finds, what is taken from it, and that nothing of it stays."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import stat
import sys
import tempfile
from pathlib import Path

from kerneleval.generators.agent import client
from kerneleval.generators.common.prompts import Prompt
from kerneleval.generators.common.prompts.facts import clean, costed_shapes, device_facts
from kerneleval.generators.common.prompts.source import reference_source
from kerneleval.languages import read_candidate
from kerneleval.records import Candidate, Request, UsageError
from kerneleval.sandbox import reaper

_PREFIX = "kerneleval-agent-"
_LOCK = "lock"

_USAGE_BYTES = 16 * 1024 * 1024
"""Most bytes that are read of an agent's report of its usage."""

_FIRST = """\
# How to answer

Write your candidate to the file `{candidate}` in this directory. That file is what counts, not what you print: where
the text below asks for an answer in a fenced block, the file stands for it. `README.md` says what else is here and how
a draft is judged. You have {seconds:g} seconds, without the time that the judge takes.
"""

_EARLIER = """
This is round {number}: `earlier/` holds the candidates of the rounds before, `feedback/` what was said of them.
"""

_README = """\
# This workspace

| | |
|---|---|
| `TASK.md` | what is to be written, the rules, the device |
| `reference.py` | the reference in PyTorch, which defines the right answer |
| `device.json` | what is known of the device |
| `earlier/round_N{suffix}`, `feedback/round_N.md` | candidates of earlier rounds, and what was said of them, if any |
| `{candidate}` | yours to write; it is taken when you end |
| `tmp/` | for temporary files (`TMPDIR`); `/tmp` can't be used |

{checks}

Nothing else of this machine can be read or changed but the system and what the settings grant.{network}
"""

_CHECKS = """\
`kerneleval check {candidate}` has a draft judged, at other sizes than the final ones, and prints what came of it. You
have {budget} such checks; exit code 0: it passed, 1: it was rejected, 2: the file or the command line is wrong, which
costs nothing, 3: none is left, 4: the judge does not answer."""

_NO_CHECKS = "Drafts can't be judged in this call."

_TOOL = """\
#!/bin/sh
exec {python} -I -S {client} "$@"
"""


class Workspace:
    """A fresh directory for one command, and one beside it that the command can't reach; both go when it is left.
    The prompt is the task in words, ``candidate`` the name of the file that is taken, ``checks`` the number of drafts
    that are judged. Raises OSError where it can't be made.
    """

    def __init__(
        self, request: Request, prompt: Prompt, *, candidate: str, seconds: float, checks: int, network: bool
    ) -> None:
        self._request, self._prompt, self._candidate = request, prompt, candidate
        self._seconds, self._checks, self._network = seconds, checks, network
        self._base = Path()
        self._held = -1

    def __enter__(self) -> Workspace:
        _sweep()
        self._base = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
        self.path = self._base / "workspace"
        # where ``kerneleval`` is, temporary files go, and the judge's socket goes
        self.tools, self.temporary, self.checking = (self.path / name for name in ("bin", "tmp", ".kerneleval"))
        try:
            new = self._base / f"new-{_LOCK}"
            self._held = os.open(new, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX)
            new.rename(self._base / _LOCK)  # no free lock is ever seen
            for folder in (self.path, self._base / "taken", self.tools, self.temporary, self.checking):
                folder.mkdir(mode=0o700)
            self._fill()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._base.name:
            reaper.remove(str(self._base))
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    def _fill(self) -> None:
        request, suffix = self._request, Path(self._candidate).suffix
        first = _FIRST.format(candidate=self._candidate, seconds=self._seconds)
        if request.history:
            first += _EARLIER.format(number=request.round + 1)
        self._write("TASK.md", "\n\n".join([first.strip(), *(text for _, text in self._prompt.messages)]) + "\n")
        budget = _CHECKS.format(candidate=self._candidate, budget=self._checks) if self._checks else _NO_CHECKS
        network = "" if self._network else " There is no network."
        readme = _README.format(suffix=suffix, candidate=self._candidate, checks=budget, network=network)
        self._write("README.md", readme)
        self._write("reference.py", clean(reference_source(request.task)))
        device = device_facts(request, costed_shapes(request.task, request.device))
        self._write("device.json", json.dumps(device, indent=1) + "\n")
        for number, turn in enumerate(request.history, 1):
            said = turn.feedback.strip() or turn.answer.message or "Nothing was said of it."
            self._write(f"feedback/round_{number}.md", clean(said) + "\n")
            if turn.answer.candidate is not None:
                kept = Path(turn.answer.candidate.files[0][0]).suffix or suffix
                self._write(f"earlier/round_{number}{kept}", turn.answer.candidate.main)
        own = self.checking / "client.py"
        shutil.copyfile(client.__file__, own)
        tool = self.tools / "kerneleval"
        tool.write_text(_TOOL.format(python=shlex.quote(sys.executable), client=shlex.quote(str(own))))
        tool.chmod(0o700)

    def _write(self, name: str, text: str) -> None:
        path = self.path / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "replace"))

    # What follows reads what an agent left: it may be anything.

    def draft(self, data: bytes) -> Candidate:
        """A candidate of a draft's bytes. Raises UsageError, which names the agent's file, where they are none."""
        # A file of our own: the agent can't change what is read, and no side file gives an origin.
        folder = Path(tempfile.mkdtemp(dir=self._base / "taken"))
        path = folder / self._candidate
        path.write_bytes(data)
        try:
            return read_candidate(path)
        except UsageError as error:
            raise UsageError(str(error).replace(str(path), self._candidate)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def take(self) -> Candidate:
        """The final candidate. Raises UsageError where there is none."""
        try:
            data = client.read_file(self.path / self._candidate)
        except FileNotFoundError as error:
            raise UsageError(f"it left no {self._candidate}") from error
        except (OSError, ValueError) as error:
            said = error.strerror or error if isinstance(error, OSError) else error
            raise UsageError(f"{self._candidate}: {said}") from error
        return self.draft(data)

    def usage(self, name: str) -> str:
        """Text of the file with its usage; empty: there is none."""
        try:
            return client.read_file(self.path / name, _USAGE_BYTES).decode("utf-8", "replace")
        except (OSError, ValueError):
            return ""


def _sweep() -> None:
    """Remove what a process that was killed left: its lock is free. Others' directories are left alone."""
    for base in Path(tempfile.gettempdir()).glob(_PREFIX + "*"):
        with contextlib.suppress(OSError):
            status = base.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            held = os.open(base / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                reaper.remove(str(base))
            finally:
                os.close(held)
