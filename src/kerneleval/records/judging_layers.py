"""The layers of judging: which of them a failure or a finding comes from, and what each of them found in a verdict.

Nothing of this is stored: it follows from stage, reason and check, so verdicts of the past have their layers too.
"""

from __future__ import annotations

from kerneleval.records.findings import Finding, Ghost, TrackEvidence
from kerneleval.records.outcomes import Failed, Passed
from kerneleval.records.verdicts import Verdict

__all__ = ["LAYERS", "caught_by", "layer_of", "layer_of_finding", "layers_of"]

LAYERS: dict[str, str] = {
    "build": "it compiles, loads and has an entry point",
    "sandbox": "the limits of its process: crashes, time, memory, output",
    "wire": "the worker answers as the protocol says",
    "behavioural": "what calls do besides their outputs: exceptions, inputs changed, memory shared, sizes left out",
    "numerical": "outputs against the oracle, and relations between them",
    "launch": "operators dispatched and own kernels launched, from which the track follows",
    "ghost": "calls with own kernels made no-ops: what is right without them was computed elsewhere",
    "temporal": "outputs of the windows that are timed, and whether their times can be true",
    "tampering": "what it did to the worker, and to functions that everybody relies on",
    "static": "what its sources say; it warns, and fails only what must quantise and names no narrow arithmetic",
}
"""What each layer looks at, in the order in which they are shown."""

_BY_REASON = {
    "broken_relation": "numerical",
    "build_error": "build",
    "crash": "sandbox",
    "decoy_kernel": "ghost",
    "dependent_draws": "numerical",
    "device_error": "sandbox",
    "exception": "behavioural",
    "exit": "sandbox",
    "hard_coded_shapes": "behavioural",
    "impossible": "temporal",
    "input_mutation": "behavioural",
    "load_error": "build",
    "memory_limit": "sandbox",
    "missing": "build",
    "not_quantised": "static",
    "not_reproducible": "numerical",
    "output_alias": "behavioural",
    "output_flood": "sandbox",
    "protocol": "wire",
    "tampering": "tampering",
    "output_reused": "behavioural",
    "refuses_values": "behavioural",
    "refuses_when_timed": "behavioural",
    "timeout": "sandbox",
    "track_not_allowed": "launch",
    "unjoined_work": "behavioural",
    "unsupported": "behavioural",
    "weights_mismatch": "behavioural",
    "wrong_count": "numerical",
    "wrong_device": "numerical",
    "wrong_dtype": "numerical",
    "wrong_output": "numerical",
    "wrong_in_training": "numerical",
    "missing_gradient": "numerical",
    "wrong_shape": "numerical",
    "wrong_type": "numerical",
    "wrong_when_watched": "launch",
}

_BY_CHECK = {
    "conditions": "temporal",
    "drawing": "numerical",
    "limits": "temporal",
    "low_precision": "static",
    "relations": "numerical",
    "resources": "static",
    "secret_shapes": "numerical",
    "static": "static",
    "tampering": "tampering",
    "timing": "temporal",
    "track": "launch",
    "training": "numerical",
    "uses": "static",
}

_GHOST: dict[Ghost, str] = {
    "decoy": "right without its kernels",
    "little": "nearly right without its kernels",
    "needed": "its kernels are needed",
}


def layer_of(stage: str, reason: str, check: str = "") -> str:
    """The layer that a failure (by stage and reason) or a finding (by check, where it has no reason) comes from.

    Empty where it comes from none: nothing failed, or a check or reason that this version does not know.
    """
    layer = _BY_REASON.get(reason) or _BY_CHECK.get(check, "")
    return "temporal" if stage == "timing" and layer == "numerical" else layer


def layer_of_finding(finding: Finding) -> str:
    """The layer of a finding of a verdict."""
    return layer_of(finding.stage, finding.reason, finding.check)


def caught_by(verdict: Verdict) -> str:
    """The layer that made the verdict fail; empty: it passed."""
    return "" if verdict.verdict == "passed" else layer_of(verdict.stage, verdict.reason)


def layers_of(verdict: Verdict) -> dict[str, str]:
    """What each layer found, in a few words; layers that had nothing to say are left out."""
    words = {layer: _words(verdict, layer) for layer in LAYERS}
    return {layer: ", ".join(said) for layer, said in words.items() if said}


def _words(verdict: Verdict, layer: str) -> list[str]:
    outcomes = [cell.outcome for cell in verdict.cells]
    failed = [o for o in outcomes if isinstance(o, Failed) and o.reason != "unsupported"]
    here = sum(layer_of(o.stage, o.reason) == layer for o in failed)
    said: list[str] = []
    if layer == "numerical":
        right = sum(isinstance(o, Passed) for o in outcomes)
        said += [f"{right}/{right + len(failed)} right"] if right or here else []
    elif here:
        said.append(_counted(here, "case") + " failed")
    if layer == "temporal":
        timed = sum(isinstance(o, Passed) and o.timing is not None for o in outcomes)
        said += [f"{timed} timed"] if timed else []
    elif layer == "launch" and verdict.track:
        said.append(verdict.track)
    elif layer == "ghost":
        tracked = (f.evidence for f in verdict.findings)
        said += [_GHOST[of.ghost] for of in tracked if isinstance(of, TrackEvidence) and of.ghost][:1]
    own = [f for f in verdict.findings if layer_of_finding(f) == layer]
    for level, noun in (("fail", "failure"), ("warn", "warning")):
        count = sum(f.level == level for f in own)
        said += [_counted(count, noun)] if count else []
    return said


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
