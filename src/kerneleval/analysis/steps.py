"""One candidate in a chain of iterations, by any judge, and whether code really changed between two."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kerneleval.records import Candidate, Passed, Verdict
from kerneleval.store import Attempt


@dataclass(frozen=True, kw_only=True)
class Step:
    """One candidate for a task, in a chain of those that were made from one another."""

    task: str
    """Task, by the name that its judge has for it."""
    chain: str
    """What it belongs to: a generator, with the sample where there are several."""
    round: int
    """Place in the chain, from 0."""
    code: str
    """Its source; of several files one after another."""
    built: bool | None
    """Whether it built; None: its judge does not distinguish building from calling."""
    called: bool
    correct: bool
    stage: str = ""
    """Stage of the failure; empty: none."""
    reason: str = ""
    """Slug of the failure; empty: none."""
    message: str = ""
    speedup: float = math.nan
    """Baseline time over its own; NaN: not timed."""
    low: float = math.nan
    """Lower end of the 95 % interval; NaN: its judge gave none."""
    high: float = math.nan
    """Upper end."""
    noise: float = math.nan
    """Noise floor as a ratio minus 1; NaN: its judge gave none."""
    cells: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    """Case -> its speedup with the ends of its 95 % interval; empty: its judge gives no single cells."""
    machine: str = ""
    """Where it was timed: times of different machines are not compared."""
    generator: str = ""
    model: str = ""
    source: str = "KernelEval"
    """Who judged and published it."""
    licence: str = ""
    """Licence under which the source is available; empty: not known."""

    @property
    def timed(self) -> bool:
        """Whether it has a speedup that counts: that of a right candidate."""
        return self.correct and self.speedup > 0


def steps_of_run(verdicts: Iterable[tuple[Attempt, Verdict]], sources: Mapping[str, Candidate]) -> list[list[Step]]:
    """The chains of a stored run: attempts of one generator, task and machine of which each names the one before it as
    the parent of its candidate (``Origin.parent``). Attempts that nothing refines and that refine nothing are left out.

    Args:
        verdicts: every finished attempt with its verdict.
        sources: candidate hash -> candidate.
    """
    groups: dict[tuple[str, str, str], dict[str, tuple[Attempt, Verdict]]] = {}
    for attempt, verdict in verdicts:
        if attempt.candidate:
            where = (attempt.generator, attempt.task, attempt.machine)
            groups.setdefault(where, {}).setdefault(attempt.candidate, (attempt, verdict))
    chains = []
    for (generator, _, _), known in groups.items():
        parents = {h: a.origin.parent for h, (a, _) in known.items() if a.origin and a.origin.parent in known}
        for last in known:
            if last in parents and last not in parents.values():
                line = [last]
                while (parent := parents.get(line[-1])) is not None and parent not in line:
                    line.append(parent)
                line.reverse()
                name = f"{generator} #{known[last][0].sample}"
                chains.append([_step(*known[h], sources, name, i) for i, h in enumerate(line)])
    return chains


def _step(attempt: Attempt, verdict: Verdict, sources: Mapping[str, Candidate], chain: str, place: int) -> Step:
    candidate = sources.get(attempt.candidate)
    failed = verdict.stage if verdict.verdict == "failed" else ""
    speed = verdict.speedup
    timed = [
        (c.case, c.outcome.timing)
        for c in verdict.cells
        if isinstance(c.outcome, Passed) and c.outcome.timing is not None
    ]
    noise = [timing.noise for _, timing in timed]
    direction = "forward" if speed is None else speed.direction
    return Step(
        task=attempt.task,
        chain=chain,
        round=place,
        code="\n".join(text for _, text in candidate.files) if candidate else "",
        built=failed not in ("generate", "build"),
        called=failed not in ("generate", "build", "call"),
        correct=not failed,
        stage=failed,
        reason=verdict.reason if failed else "",
        message=verdict.message if failed else "",
        speedup=math.nan if speed is None else speed.value,
        low=math.nan if speed is None else speed.low,
        high=math.nan if speed is None else speed.high,
        noise=sum(noise) / len(noise) if noise else math.nan,
        cells={case.key: (t.speedup, t.low, t.high) for case, t in timed if case.direction == direction},
        machine=attempt.machine,
        generator=attempt.generator,
        model=attempt.origin.model if attempt.origin else "",
        licence=attempt.origin.licence if attempt.origin else "",
    )


def really_changed(before: str, after: str) -> bool:
    """Whether two sources differ in more than comments, docstrings and white space."""
    return before != after and essence(before) != essence(after)


def essence(code: str) -> str:
    """A source without comments, docstrings and white space: of Python the dump of its syntax tree; of what does not
    parse as Python, the text without C's and Python's comments and without white space.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.sub(
            r"\s+",
            "",
            re.sub(
                r"/\*.*?\*/|//[^\n]*|#(?!\s*(?:include|define|pragma|if|el|end|undef))[^\n]*", "", code, flags=re.DOTALL
            ),
        )
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(tree)
