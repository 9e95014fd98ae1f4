"""Feedback on a draft: the verdict in words, without what a generator must not know.

It shows cells of the suite at which the draft was judged, which is another one than the final verdict's: the pipeline
draws its shapes from another seed (``pipeline/running.py``). Seeds, replay lines and paths of this machine are left
out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from kerneleval.generators.common.prompts.facts import clean, fenced
from kerneleval.records import Case, CellResult, Failed, Limits, Passed, Task, Timing, Verdict, refusals

_MOST = 9_000
"""Characters altogether: a model's context is limited."""

_LOG = 3_000
"""Characters of a build log or a traceback: its beginning and its end."""

_FAILURES = 4
"""Failing cells that are described in full."""

_SPEEDS = 8
"""Timed cells that are listed, the slowest first."""

_PLACE = re.compile(r"(?<![\w.:/])/(?:[^\s/:\"'`,;()]+/)+")
"""An absolute directory in front of a file's name."""

_SECRET = re.compile(r"\b(?:suite[-_ ]?seed|seed)(?:\s+of\s+\w+)?\s*[=:]?\s*\d+", re.I)


def feedback_of(verdict: Verdict, task: Task, limits: Limits | None = None) -> str:
    """The verdict in words for the author of the candidate; costs of the timed cells are set against what the
    machine can do at best (``limits``; None: not measured).
    """
    failed = [c for c in verdict.cells if isinstance(c.outcome, Failed) and c.outcome.reason != "unsupported"]
    if verdict.verdict == "passed":
        parts = ["The candidate is right in every case that was judged."]
    elif verdict.verdict == "not_judged":
        return clean(_PLACE.sub("", f"The candidate was not judged: {verdict.message}"))
    else:
        parts = [f"The candidate was rejected: {verdict.reason} (stage {verdict.stage})."]
        alike = bool(failed) and isinstance(failed[0].outcome, Failed) and failed[0].outcome.message == verdict.message
        parts += [_log(verdict.message.strip())] if not alike or verdict.stage in ("build", "load") else []
    if verdict.stage not in ("generate", "build", "load"):
        parts += [_counts(verdict.cells), _failures(failed), _unsupported(verdict.cells)]
    parts += [_findings(verdict), _speeds(verdict, task, limits), _resources(verdict)]
    text = clean("\n\n".join(part for part in parts if part))
    return _short(_SECRET.sub("a seed", _PLACE.sub("", text)), _MOST)


def _short(text: str, most: int) -> str:
    """The beginning and the end of what is too long."""
    if len(text) <= most:
        return text
    half = most // 2 - 30
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters are left out ...]\n{text[-half:]}"


def _log(message: str) -> str:
    """A compiler's or an interpreter's words as they are."""
    return fenced(_short(message, _LOG)) if "\n" in message else message


def _counts(cells: Sequence[CellResult]) -> str:
    judged = [c for c in cells if not (isinstance(c.outcome, Failed) and c.outcome.reason == "unsupported")]
    wrong = [c for c in judged if isinstance(c.outcome, Failed)]
    if not judged or not wrong:
        return ""
    lines = [f"{len(judged) - len(wrong)} of {len(judged)} cases are right."]
    views = {name: name for name in ("direction", "dtype", "layout")} | {"inputs": "distribution"}
    for name, field in (views | {"shapes": "shape_category"}).items():
        all_of = Counter(getattr(c.case, field) for c in judged)
        bad = Counter(getattr(c.case, field) for c in wrong)
        if len(all_of) > 1 and any(bad[value] < count for value, count in all_of.items()):
            shown = ", ".join(f"{value} {bad[value]} of {count}" for value, count in all_of.items() if bad[value])
            lines.append(f"- wrong by {name}: {shown}")
    return "\n".join(lines)


def _failures(failed: Sequence[CellResult]) -> str:
    """Some failing cells in full, of unlike reasons, dtypes and directions first."""
    seen: set[tuple[str, ...]] = set()
    chosen: list[CellResult] = []
    for fields in (("direction", "dtype"), ("direction", "dtype", "layout", "distribution"), ("key",)):
        for cell in failed:
            key = (getattr(cell.outcome, "reason", ""), *(getattr(cell.case, name) for name in fields))
            if len(chosen) < _FAILURES and key not in seen and cell not in chosen:
                seen.add(key)
                chosen.append(cell)
    return "\n\n".join(_failure(cell) for cell in chosen)


def _failure(cell: CellResult) -> str:
    outcome = cell.outcome
    assert isinstance(outcome, Failed)
    case, evidence = cell.case, outcome.evidence
    dims = ", ".join(case.dims_texts)
    head = f"{case.direction}, {case.dtype}, {dims}, {case.layout} layout, {case.distribution} inputs: {outcome.reason}"
    lines = [f"Failing case: {head}."]
    trace = str(evidence.get("traceback", ""))
    message = outcome.message.strip()
    if outcome.stage == "call" and trace:
        lines.append(fenced(_short(_own_frames(trace), _LOG)))
    elif message:
        lines.append(_log(message))
    if "worst_index" in evidence and "expected" not in message:
        lines.append(
            f"Worst element {evidence['worst_index']}: expected {evidence.get('expected')}, got {evidence.get('got')}."
        )
    return "\n".join(lines)


def _own_frames(trace: str) -> str:
    """A traceback from the candidate's first frame on."""
    lines = trace.strip().split("\n")
    own = (number for number, line in enumerate(lines) if re.search(r'File "[^"]*candidate[^"/]*"', line))
    return "\n".join(lines[next(own, -1) :])


def _unsupported(cells: Sequence[CellResult]) -> str:
    refused = [c for c in cells if isinstance(c.outcome, Failed) and c.outcome.reason == "unsupported"]
    if not refused:
        return ""
    if any(isinstance(c.outcome, Failed) and c.outcome.stage == "load" for c in refused):
        return f"Of {len(cells)} cases, {refusals(c.outcome for c in refused)}; each counts as not covered."
    some = "; ".join(f"{c.case.direction} {c.case.dtype} {c.case.layout}" for c in refused[:3])
    return (
        f"{len(refused)} of {len(cells)} cases were declared unsupported by the candidate (such as {some}); each "
        "counts as not covered."
    )


def _findings(verdict: Verdict) -> str:
    shown = [f.message for f in verdict.findings if f.level != "info" or f.check == "cause"]
    lines = [f"- {_short(text, 600)}" for text in dict.fromkeys(shown) if text and text != verdict.message]
    return "Found besides:\n" + "\n".join(lines[:6]) if lines else ""


def _resources(verdict: Verdict) -> str:
    """What the compiled kernels take (registers, memory) and use (instructions by class), where it is known."""
    lines = []
    for check in ("resources", "uses"):
        found = [f for f in verdict.findings if f.check == check]
        said = [f.message for f in found if getattr(f.evidence, "kernels", True)]  # a message of no kernel says nothing
        lines += [f"- {line}" for text in said for line in text.split("; ") if line][:8]
    return "\n".join(["The kernels as compiled here:", *lines]) if lines else ""


def _speeds(verdict: Verdict, task: Task, limits: Limits | None) -> str:
    timed = [
        (c.case, c.outcome.timing)
        for c in verdict.cells
        if isinstance(c.outcome, Passed) and c.outcome.timing is not None
    ]
    if not timed:
        return ""
    timed.sort(key=lambda pair: pair[1].speedup)
    lines = []
    if verdict.speedup is not None:
        value, low, high = verdict.speedup.value, verdict.speedup.low, verdict.speedup.high
        lines.append(
            f"Speedup against {verdict.protocol.baseline} PyTorch: {value:.3g}x (95 % interval {low:.3g} to "
            f"{high:.3g}), geometric mean over the timed {verdict.speedup.direction} cases."
        )
    lines.append("Timed cases, the slowest against PyTorch first:")
    lines += [_speed(case, timing, task, limits) for case, timing in timed[:_SPEEDS]]
    if len(timed) > _SPEEDS:
        lines.append(f"- and {len(timed) - _SPEEDS} more, up to {timed[-1][1].speedup:.3g}x")
    return "\n".join(lines)


def _speed(case: Case, timing: Timing, task: Task, limits: Limits | None) -> str:
    dims = ", ".join(case.dims_texts)
    text = f"- {case.direction}, {case.dtype}, {dims}: {timing.speedup:.3g}x ({timing.claim})"
    own, base = timing.medians_ns
    if not math.isnan(own + base):
        text += f", {_time(own)} against {_time(base)}"
        if limits is not None and case.direction == "forward" and not task.module:
            text += _least(case, own, task, limits, timing.samples.calls)
    return text


def _least(case: Case, own_ns: float, task: Task, limits: Limits, calls: int) -> str:
    """The least time of the roofline, and which part of it bounds."""
    dims = case.dims_map
    flops, moved = task.flops(dims), task.bytes(dims, case.dtype)
    least = limits.least_s(flops, moved, case.dtype, calls=calls)
    bound = "memory" if least <= limits.memory_s(moved, calls) else "arithmetic"
    if least <= 0 or own_ns <= 0:
        return ""
    return f"; the machine's limit is {_time(least * 1e9)} (bound by {bound}): {least * 1e9 / own_ns:.0%} of it reached"


def _time(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"
