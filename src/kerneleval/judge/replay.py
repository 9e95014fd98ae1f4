"""The command lines that judge again: a whole candidate, or one case of it."""

from __future__ import annotations

import shlex
from dataclasses import replace

from kerneleval import languages
from kerneleval.records import STORED, Candidate, Case, Failed, Outcome, Protocol, UsageError

__all__ = ["Replay"]


class Replay:
    """Makes the command lines that judge a candidate again.

    Args:
        candidate: what is judged.
        source: the path that the user gave for it, or its name in the store (:attr:`Candidate.stored_name`).
        task: what the user gave as ``--task``.
        device: name of the device.
        protocol: how it is judged.
        only: the one case that the user asked for; None: the plan.
        store: where a candidate from the store lies; empty: in the default store.
    """

    def __init__(
        self,
        candidate: Candidate,
        source: str,
        task: str,
        device: str,
        protocol: Protocol,
        only: Case | None = None,
        store: str = "",
    ) -> None:
        self._protocol, self._only = protocol, only
        self._words = ["kerneleval", "check", source, "--task", task, "--device", device]
        self._words += _options({"--store": store} if source.startswith(STORED) else _identity(candidate, source))
        self._words += _options(
            {
                "--shapes": "" if protocol.shapes == "default" else protocol.shapes,
                "--allow": "" if protocol.allow == Protocol().allow else ",".join(protocol.allow),
            }
        )
        if protocol.tf32:
            self._words.append("--tf32")

    def line(self) -> str:
        """The line that judges all of it again, under the same protocol."""
        protocol = self._protocol
        words = _options(
            {
                "--dtype": ",".join(protocol.dtypes),
                "--direction": ",".join(protocol.directions),
                "--distribution": ",".join(protocol.distributions),
                "--category": ",".join(protocol.categories),
                "--suite-seed": str(protocol.suite_seed) if protocol.suite_seed else "",
            }
        )
        if not protocol.timed:
            words.append("--no-timing")
        return self._join(words + self._timing(), self._only)

    def line_of(self, case: Case, stage: str) -> str:
        """The line that judges one case again, up to the stage at which it failed."""
        words = []
        if stage == "timing":
            words = self._timing()
            if self._protocol.dtypes or self._protocol.timed_dtypes:  # else another dtype is the one that is timed
                words += ["--dtype", case.dtype]
        return self._join(words, case)

    def attach(self, case: Case, outcome: Outcome) -> Outcome:
        """A failed outcome with its replay line."""
        if isinstance(outcome, Failed) and not outcome.replay and outcome.stage not in ("build", "load"):
            return replace(outcome, replay=self.line_of(case, outcome.stage))
        return outcome

    def _timing(self) -> list[str]:
        """Options that say how it is timed."""
        words = [] if self._protocol.tier == "standard" else [f"--{self._protocol.tier}"]
        return words + _options({"--baseline": "" if self._protocol.baseline == "eager" else self._protocol.baseline})

    def _join(self, words: list[str], case: Case | None) -> str:
        return shlex.join([*self._words, *words, *([] if case is None else ["--case", case.key])])


def _options(values: dict[str, str]) -> list[str]:
    """The options that have a value."""
    return [word for option, value in values.items() if value for word in (option, value)]


def _identity(candidate: Candidate, path: str) -> dict[str, str]:
    """What makes the file at that path this candidate; a stored one brings it along."""
    return {
        "--entry": candidate.entry,
        "--backward-entry": candidate.backward_entry,
        "--language": "" if _detected(path, candidate.main) == candidate.language else candidate.language,
    }


def _detected(path: str, text: str) -> str:
    """The language that is found where none is named; empty: none is."""
    try:
        return languages.detect(path, text)
    except UsageError:
        return ""
