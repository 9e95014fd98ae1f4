"""What a worker's answers mean: exceptions, outputs of the wrong form, what it says of tampering.

All of it is a claim: it may fail a candidate and never passes one. Messages come through ``worker/host.py``; outputs
are compared by ``oracle/comparison.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kerneleval.records import Case, Failed, Outcome, Passed
from kerneleval.worker.host import WorkerError

__all__ = ["TamperingClaim", "claimed", "raised", "tampering_claims", "without_gradient"]

_WRONG = ("count", "type", "shape", "dtype", "device")
"""What a worker may say is wrong with an output; the reason is ``wrong_`` and one of these."""

_MOST_CLAIMS = 32
"""Claims of tampering that are read from one answer."""


def raised(error: WorkerError) -> Failed:
    """The outcome of a candidate that raised during a call."""
    if error.kind == "GradientWrittenError":
        return Failed(stage="honesty", reason="input_mutation", message=str(error)[:500], evidence=error.evidence)
    if error.unsupported:
        evidence = {"no_gradient": True} if error.kind == "NoGradientError" else {}
        return Failed(stage="call", reason="unsupported", message=str(error)[:500], evidence=evidence)
    return Failed(stage="call", reason="exception", message=f"{error.kind}: {error}"[:1000], evidence=error.evidence)


def without_gradient(outcomes: Mapping[Case, Outcome]) -> dict[Case, Outcome]:
    """The backward cases whose result carried no gradient, though results of others of the dtype did: such a candidate
    has a backward, and trains nothing there. Empty cases, where there is nothing to train, aside.
    """
    right = {(case.direction, case.dtype) for case, outcome in outcomes.items() if isinstance(outcome, Passed)}
    text = "the forward result carries no gradient here, and does in other backward cases of this dtype"
    return {
        case: Failed(stage="correctness", reason="missing_gradient", message=text)
        for case, outcome in outcomes.items()
        if isinstance(outcome, Failed)
        and outcome.evidence.get("no_gradient")
        and (case.direction, case.dtype) in right
        and all(size for _, size in case.dims)
    }


def claimed(wrong: dict[str, Any]) -> Failed:
    """The outcome of a candidate whose own worker says that an output has the wrong form."""
    what = wrong.get("what", "")
    if what == "argument":
        now, given = wrong.get("got", "an argument is another tensor"), wrong.get("want", "otherwise")
        message = f"after the call {now}; it was given {given}"
        return Failed(stage="honesty", reason="input_mutation", message=message, evidence=dict(wrong))
    if what == "alias":
        message = f"{wrong.get('got', 'an output lies in the memory of an input')}: outputs must be new tensors"
        return Failed(stage="correctness", reason="output_alias", message=message, evidence=dict(wrong))
    if what not in _WRONG:  # a reason is a slug for programs: no text of a worker's becomes one
        message = "the worker says that an output is wrong in a way that there is not"
        return Failed(stage="correctness", reason="protocol", message=message, evidence=dict(wrong))
    message = f"{wrong.get('got', 'something else')}; expected {wrong.get('want', 'another form')}"
    return Failed(stage="correctness", reason=f"wrong_{what}", message=message, evidence=dict(wrong))


@dataclass(frozen=True, kw_only=True)
class TamperingClaim:
    """One thing that the candidate did that it should leave alone, as its worker says."""

    what: str
    """Verb and object, for people."""
    level: Literal["warn", "fail"]
    """``warn`` for what an honest candidate might do."""
    when: Literal["load", "call"]
    """Whether it was there when the candidate had been loaded, before any call."""


def tampering_claims(answer: Mapping[str, Any]) -> list[TamperingClaim]:
    """The claims in a worker's answer; what is no claim is left out."""
    listed = answer.get("tampering")
    found = []
    for one in listed[:_MOST_CLAIMS] if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(one.get("what"), str):
            found.append(
                TamperingClaim(
                    what=one["what"][:200],
                    level="warn" if one.get("level") == "warn" else "fail",
                    when="load" if one.get("when") == "load" else "call",
                )
            )
    return found
