"""Agents: any command line, run in a fresh workspace from which it reaches nothing of the judge's.

``docs/agents.md`` has the settings, and what the jail gives and does not. What an agent leaves is never executed here.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kerneleval.generators.agent.check_socket import CheckSocket
from kerneleval.generators.agent.running import Ended, read_usage, run
from kerneleval.generators.agent.settings import STDOUT, Settings, settings_of
from kerneleval.generators.agent.workspace import Workspace
from kerneleval.generators.common.base import Cache, candidate_name, usual_language
from kerneleval.generators.common.prompts import Prompt, render
from kerneleval.generators.common.prompts.facts import clean
from kerneleval.generators.common.registry import KINDS
from kerneleval.records import Answer, Candidate, InfrastructureError, Origin, Problem, Request, UsageError, digest
from kerneleval.sandbox import jail

_LAST = 300
"""Characters of a command's last words that a message has."""

_GPU = ("/sys", "/proc/driver/nvidia", "/proc/devices", "/proc/modules", "/run/nvidia-persistenced")
_LEAVING_S = 15.0


@KINDS.register(name="agent")
def from_settings(table: Mapping[str, Any], place: str, cache: Cache | None = None) -> Agent:
    """The agent of a settings file. Raises UsageError, which names file and key, where something in it is wrong."""
    return Agent(settings_of(table, place), cache)


class Agent:
    """A command that is run for each candidate. Answers are kept in the cache; ``confine`` (as
    :func:`kerneleval.sandbox.jail.command`) keeps a command from the rest of the machine.
    """

    def __init__(
        self, settings: Settings, cache: Cache | None = None, confine: Callable[..., list[str]] = jail.command
    ) -> None:
        self.settings, self._cache, self._confine = settings, cache, confine
        self.name = settings.name
        self.samples, self.rounds, self.concurrency = settings.samples, settings.rounds, settings.concurrency
        self._stop = threading.Event()
        self._idle = threading.Condition()
        self._under_way = 0

    @property
    def summary(self) -> str:
        """Which program."""
        return f"the command {self.settings.command[0]}"

    @property
    def identity(self) -> str:
        """Digest of all that its answers depend on but the task: another one is another run."""
        given = self.settings
        parts = (given.language, given.samples, given.rounds)
        return digest(*(f"{key}={value!r}" for key, value in sorted(given.asked.items())), *map(repr, parts))

    def language(self, device: str) -> str:
        """Language of the candidates for a device kind."""
        return self.settings.language or usual_language(device)

    def prompt(self, request: Request) -> Prompt:
        """The task in words, without earlier rounds. Raises UsageError: there is no prompt in this language."""
        return render(dataclasses.replace(request, history=()), language=self.language(request.device))

    def stop(self) -> None:
        """Give up what is under way; returns when its processes have ended and its workspaces are gone."""
        self._stop.set()
        with self._idle:
            self._idle.wait_for(lambda: not self._under_way, timeout=_LEAVING_S)

    def ask(self, request: Request) -> Answer:
        """See :meth:`kerneleval.generators.common.base.Asked.ask`."""
        prompt = self.prompt(request)
        origin = self._origin(request, prompt)
        key = self._key(origin, request)
        kept = self._cache.response(key) if self._cache is not None else None
        if kept is not None:
            return self._answer(kept, origin)
        with self._idle:
            self._under_way += 1
        try:
            if self._stop.is_set():
                return Answer.without("endpoint", "it was given up before it was run", origin)
            body = self._run(request, prompt)
        except OSError as error:
            raise InfrastructureError(f"no workspace for the agent {self.name!r}: {error}") from error
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()
        if self._cache is not None and body["problem"] in ("", "no_code"):
            self._cache.put_response(key, body)
        return self._answer(body, origin)

    def _run(self, request: Request, prompt: Prompt) -> dict[str, Any]:
        """Run the command; all that came of it, as plain data."""
        given, language = self.settings, self.language(request.device)
        begun = time.monotonic()
        budget = given.checks if request.check is not None else 0
        workspace = Workspace(
            request,
            prompt,
            candidate=given.candidate or candidate_name(language),
            seconds=given.max_seconds,
            checks=budget,
            network=given.network,
        )
        with workspace:
            argv = self._command(request, language, workspace)
            with CheckSocket(workspace.checking, workspace.draft, request.check, budget) as checks:
                try:
                    ended = run(
                        argv,
                        folder=workspace.path,
                        environment=self._environment(workspace),
                        seconds=given.max_seconds,
                        stop=self._stop,
                        paused_s=lambda: checks.judging_s,
                    )
                except OSError as error:
                    ended = Ended(code=-1, cut="unstarted", output=f"{argv[0]}: {error.strerror or error}")
            try:
                candidate, missing = workspace.take(), ""
            except UsageError as error:
                candidate, missing = None, str(error)
            usage = ended.output if given.usage == STDOUT else workspace.usage(given.usage) if given.usage else ""
        problem, message = self._problem(ended, candidate, missing)
        return {
            "command": list(given.command),
            "problem": problem,
            "message": message,
            "files": [list(file) for file in candidate.files] if candidate is not None and not problem else [],
            "language": candidate.language if candidate is not None else "",
            "text": ended.output,
            "exit_code": ended.code,
            "cut": ended.cut,
            "usage": read_usage(usage),
            "checks": checks.used,
            "judging_s": checks.judging_s,
            "seconds": time.monotonic() - begun,
            "answered_unix_s": time.time(),
        }

    def _command(self, request: Request, language: str, workspace: Workspace) -> list[str]:
        """Words of the command line in its jail."""
        given = self.settings
        filled = {
            "{task}": request.task.name,
            "{language}": language,
            "{device}": request.device,
            "{seconds}": f"{given.max_seconds:g}",
        }
        argv = list(given.command)
        for name, value in filled.items():  # other braces stay as they are
            argv = [word.replace(name, value) for word in argv]
        readable, writable = [Path(p) for p in given.reads], [workspace.path, *(Path(p) for p in given.writes)]
        if given.gpu:
            readable += [Path(p) for p in _GPU] + sorted(Path("/dev").glob("nvidia*"))
        return self._confine(argv, readable, writable, network=given.network)

    def _environment(self, workspace: Workspace) -> dict[str, str]:
        """All that the command gets of this process's environment, and what is new in it."""
        found = {name: os.environ[name] for name in ("LANG", "TERM", *self.settings.env) if name in os.environ}
        found.setdefault("HOME", str(workspace.path))
        found["PATH"] = os.pathsep.join([str(workspace.tools), os.environ.get("PATH", os.defpath)])
        found["TMPDIR"] = str(workspace.temporary)
        return found

    def _problem(self, ended: Ended, candidate: Candidate | None, missing: str) -> tuple[Problem, str]:
        """Why there is no candidate; two empty texts: there is one."""
        last = " ".join(clean(ended.output[-4 * _LAST :]).split())[-_LAST:]
        said = f"; its last words: {last}" if last else ""
        if ended.cut == "stopped":
            return "endpoint", "the agent was given up before it ended"
        if ended.cut == "unstarted":
            return "endpoint", f"the agent could not be started: {last}"
        if candidate is not None:
            return "", ""
        if ended.cut == "time":
            limit = f"{self.settings.max_seconds:g} seconds"
            return "budget", f"the agent had no candidate when its {limit} were over: {missing}{said}"
        how = f"exit code {ended.code}" if ended.code >= 0 else f"signal {-ended.code}"
        problem: Problem = "endpoint" if ended.code else "no_code"
        return problem, f"the agent ended with {how} and no candidate: {missing}{said}"

    def _origin(self, request: Request, prompt: Prompt) -> Origin:
        rounds: list[str] = []
        for turn in request.history:
            rounds += [turn.answer.candidate.hash if turn.answer.candidate is not None else "", turn.feedback]
        return Origin(
            generator=self.name,
            prompt_hash=digest("agent/1", prompt.hash, *rounds),
            sample=request.sample,
            parent=request.parent,
            round=request.round,
        )

    def _key(self, origin: Origin, request: Request) -> str:
        """All that the answer depends on: a sample's index too, for samples of one prompt are to differ."""
        asked = [f"{key}={value!r}" for key, value in sorted(self.settings.asked.items())]
        judged = str(request.check is not None)
        return digest("agent/1", *asked, origin.prompt_hash, str(request.sample), str(request.round), judged)

    def _answer(self, kept: Mapping[str, Any], origin: Origin) -> Answer:
        usage = {key: value for key, value in kept["usage"].items() if key != "turns"}
        origin = dataclasses.replace(origin, seconds=kept["seconds"], **usage)
        if kept["problem"]:
            return Answer.without(kept["problem"], kept["message"], origin, kept["text"])
        files = tuple((str(name), str(text)) for name, text in kept["files"])
        candidate = Candidate(files=files, language=kept["language"], origin=origin)
        return Answer(candidate=candidate, origin=origin, text=kept["text"])
