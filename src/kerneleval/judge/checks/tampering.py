"""What the candidate did to what it should leave alone, as its workers report; also where it gained nothing.

It fails by what an honest candidate never does. The rest warns. What was there at load time was no part of computing
anything, and is the reason of the verdict whatever came out later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from kerneleval.judge.checks.common.registry import register
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.windows.protocol import TamperingClaim
from kerneleval.records import Case, Failed, Finding, Outcome, Reason, TamperingEvidence
from kerneleval.worker.host import WorkerError, WorkerFailure

_TIMEOUT_S = 30.0
_SHOWN = 4

_LEVELS: tuple[Literal["fail", "warn"], ...] = ("fail", "warn")
_TIMES: tuple[Literal["load", "call"], ...] = ("load", "call")


@register(needs_worker=False)  # a worker that is gone has reported what it saw at load time
def tampering(calls: Calls, cases: Sequence[Case], outcomes: Mapping[Case, Outcome]) -> Iterable[Finding]:
    """What the candidate did to what it should leave alone."""
    yield from _ask(calls, outcomes)
    yield from findings(calls.loaded.tampering.values())


def _ask(calls: Calls, outcomes: Mapping[Case, Outcome]) -> Iterator[Finding]:
    """Have the worker tell what it saw until now. Where a worker is gone after all went well, something is hidden."""
    worker = calls.loaded.runner.worker
    if not worker.alive:  # it was ended for something that is reported already
        return
    try:
        worker.request(
            "observe", {"record": False, "mute": False, "in_order": False}, "observing", timeout_s=_TIMEOUT_S
        )
        calls.loaded.note(worker.request("observed", {}, "observed", timeout_s=_TIMEOUT_S))
    except (WorkerError, WorkerFailure) as error:
        if not any(isinstance(o, Failed) and o.reason != "unsupported" for o in outcomes.values()):
            reason = error.reason if isinstance(error, WorkerFailure) else "exception"
            yield Finding(level="fail", reason=reason, message=str(error)[:500])


def findings(claims: Iterable[TamperingClaim]) -> Iterator[Finding]:
    """One finding for each level and time at which something was done."""
    claims = list(claims)
    for level, when in itertools.product(_LEVELS, _TIMES):
        done = [c.what for c in claims if (c.level, c.when) == (level, when)]
        if done:
            more = f" and {len(done) - _SHOWN} more" if len(done) > _SHOWN else ""
            time = "while it was loaded" if when == "load" else "when called"
            message = f"{time}: {'; '.join(done[:_SHOWN])}{more}"
            reason: Reason | Literal[""] = "tampering" if level == "fail" else ""
            yield Finding(level=level, reason=reason, message=message, evidence=TamperingEvidence(when=when))
