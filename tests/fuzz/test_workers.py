"""Real workers that answer the judge themselves: every field of every answer replaced by what it must not be.

The candidate exchanges, in its own process, the method that sends answers. Where the judge believes a field, the
verdict is ``failed`` for a documented reason; where it believes nothing of it, a right candidate passes. Either way the
judge lives, keeps no descriptor, and judges an honest candidate afterwards.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console
from tests.fuzz.hostile import CONTROL, SCALE
from tests.fuzz.test_claims import DOCUMENTED

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.records import STAGES, Failed, Verdict
from kerneleval.reports.json import dumps, verdict_document
from kerneleval.reports.verdict_view import render_verdict

HONEST = "import torch\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"
RAISES = 'def gelu(x):\n    raise ValueError("no")\n'
MODULE = """
import torch

class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""
LINEAR = Path(__file__).parents[1] / "attacks" / "problems" / "linear_relu.py"

FORGER = """
import json as _json
from kerneleval.worker import wire as _wire

class _Forging:
    def __getattr__(self, name):
        return getattr(_json, name)

    def dumps(self, message, **keywords):
        if "tampering" in message:
            message = {{**message, "tampering": []}}
        if message.get("op") != {op!r}:
            return _json.dumps(message, **keywords)
        plain, at = _json.loads(_json.dumps(message)), {path!r}
        inner = plain
        for key in at[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {{}}
            inner = inner[key]
        inner[at[-1]] = "@@@"
        return _json.dumps(plain).replace('"@@@"', {raw!r})

_wire.json = _Forging()
"""

VALUES = {
    "null": "null",
    "true": "true",
    "false": "false",
    "negative": "-1",
    "small": "3",
    "nan": "NaN",
    "infinite": "1e400",
    "huge": "1" + "0" * 400,
    "larger_than_python_reads": "9" * 5000,
    "empty_list": "[]",
    "list": '[null, 1, "x", [], {}]',
    "texts": '["\\u001b[2J", "[bold]x[/]", "\\ud800"]',
    "empty_object": "{}",
    "object": '{"\\u001b[31m": [1], "what": "\\ud800\\u0000[/]", "got": {"x": 1e400}, "k": 1e400}',
    "text": '"\\u001b]0;x\\u0007\\u202e[bold green]PASSED[/] \\ud800\\u0000"',
    "long_text": '"' + "x" * 2_000_000 + '"',
    "deep": "[" * 900 + "]" * 900,
    "deep_object": '{"k":' * 400 + "1" + "}" * 400,
    "rows": '[["linear.weight", ["a"], "float32"]]',
    "strange_rows": '[["linear.weight", [1e400, 4], null], [{}, [1], []]]',
    "accusation": '[{"what": "\\u001b[2J[bold]x[/]", "level": "fail", "when": "call"}, {"what": "\\ud800"}]',
    "missing": '0, "op": null, "x": 0',
}
"""JSON text, some of which is none, that takes the place of a field; the last ends the object's ``op`` too."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A field of an answer, and whether the judge believes anything of it."""

    op: str
    path: tuple[str, ...]
    source: str = HONEST
    believed: bool = True

    @property
    def name(self) -> str:
        return f"{self.op}-{'.'.join(self.path)}"


FIELDS = (
    Field(op="loaded", path=("op",)),
    Field(op="loaded", path=("backward",), believed=False),
    Field(op="loaded", path=("tampering",)),
    Field(op="prepared", path=("op",)),
    Field(op="computed", path=("op",)),
    Field(op="collected", path=("op",)),
    Field(op="collected", path=("event_ns",), believed=False),
    Field(op="collected", path=("wrong",)),
    Field(op="collected", path=("wrong", "what")),
    Field(op="collected", path=("wrong", "got")),
    Field(op="observing", path=("op",)),
    Field(op="observed", path=("op",)),
    Field(op="observed", path=("aten",), believed=False),
    Field(op="observed", path=("launches",), believed=False),
    Field(op="observed", path=("tampering",)),
    Field(op="observed", path=("extensions",), believed=False),
    Field(op="error", path=("op",), source=RAISES),
    Field(op="error", path=("kind",), source=RAISES),
    Field(op="error", path=("message",), source=RAISES),
    Field(op="error", path=("traceback",), source=RAISES),
    Field(op="error", path=("unsupported",), source=RAISES),
    Field(op="error", path=("broken",), source=RAISES),
    Field(op="module", path=("op",), source=MODULE),
    Field(op="module", path=("state",), source=MODULE),
    Field(op="weighted", path=("op",), source=MODULE),
)


def judged(
    judge: Judge, source: str, folder: Path, categories: tuple[str, ...] = ("tiny",), shapes: str = "default"
) -> Verdict:
    file = folder / "candidate.py"
    file.write_text(source)
    module = "ModelNew" in source
    return check(
        file,
        str(LINEAR) if module else "gelu",
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=["forward"],
        categories=() if module else categories,
        shapes=shapes,
        timed=False,
    )


def is_sound(verdict: Verdict) -> None:
    """It can be read by programs and shown to people, whatever the worker said."""
    assert verdict.stage in STAGES
    assert verdict.reason in DOCUMENTED
    assert len(verdict.message) < 6000
    for cell in verdict.cells:
        if isinstance(cell.outcome, Failed):
            assert cell.outcome.reason in DOCUMENTED
            assert len(cell.outcome.message) < 6000
    text = dumps(verdict_document(verdict))
    assert len(text) < 2_000_000
    assert json.loads(text, parse_constant=pytest.fail)["verdict"] == verdict.verdict
    out = io.StringIO()
    render_verdict(verdict, Console(file=out, width=120, highlight=False))
    assert not CONTROL & set(out.getvalue())


def _chosen(field: Field) -> list[str]:
    """Some of the values, other ones every time; all of them where more is wanted."""
    if SCALE > 1:
        return list(VALUES)
    rng = random.Random(field.name) if os.environ.get("CI") else random.SystemRandom()
    return rng.sample(list(VALUES), 2)


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0


@pytest.mark.slow(every=13)
@pytest.mark.parametrize("field", FIELDS, ids=[f.name for f in FIELDS])
def test_a_forged_field_harms_nobody_else(judge: Judge, field: Field, tmp_path: Path) -> None:
    for value in _chosen(field):
        raw = VALUES[value]
        verdict = judged(judge, FORGER.format(op=field.op, path=field.path, raw=raw) + field.source, tmp_path)
        is_sound(verdict)
        said = f"{value}: {verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message[:300]}"
        readable = value not in ("nan", "larger_than_python_reads", "missing")
        if not readable:
            assert (verdict.verdict, verdict.reason) == ("failed", "protocol"), said
        elif field.path == ("op",):
            assert verdict.verdict == "failed", said
            assert verdict.reason == "protocol", said
        elif not field.believed:
            assert verdict.verdict == "passed", said
        elif field.path == ("wrong",):  # believed where it has the form of an accusation
            assert (verdict.verdict == "failed") == (value in ("object", "empty_object", "deep_object")), said
        elif field.path == ("tampering",):
            assert (verdict.verdict == "failed") == (value == "accusation"), said
        else:
            assert verdict.verdict == "failed", said
    honest = judged(judge, HONEST, tmp_path)
    assert honest.verdict == "passed", honest.message


def test_nothing_is_left_of_forgers(judge: Judge, tmp_path: Path) -> None:
    """Descriptors in the judge are as many after some of them as after one."""
    counts = []
    for _ in range(4):
        judged(judge, FORGER.format(op="computed", path=("op",), raw="null") + HONEST, tmp_path)
        judge.pool.quiet()
        judge.pool._spare.result()  # type: ignore[union-attr]
        counts.append(_descriptors())
    assert counts[1] == counts[-1], counts


# --------------------------------------------------------------------------------------------------------------------
# What these found, one by one
# --------------------------------------------------------------------------------------------------------------------


def test_a_process_may_call_itself_anything(judge: Judge, tmp_path: Path) -> None:
    """``/proc`` shows the name as it is, and the judge reads that file: the bytes need not be UTF-8."""
    for name in (rb"\xff\xfe", rb") R 1 1 1", rb"\n\n) Z", b""):
        named = f'import ctypes\nctypes.CDLL(None).prctl(15, b"{name.decode()}", 0, 0, 0)\n'
        verdict = judged(judge, named + HONEST, tmp_path)
        assert verdict.verdict == "passed", verdict.message


def test_a_candidate_that_loads_only_once_fails_by_itself(judge: Judge, tmp_path: Path) -> None:
    """It dies in its first call, and refuses to be loaded into the next worker."""
    until = time.time() + 4
    source = (
        f"import os, time\nif time.time() > {until}:\n    raise ImportError('later')\n"
        f"def gelu(x):\n    time.sleep(max(0, {until} - time.time()))\n    os._exit(3)\n"
    )
    verdict = judged(judge, source, tmp_path, ("tiny", "small"))
    is_sound(verdict)
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "call", "exit")
    assert verdict.cells[-1].outcome.reason == "load_error"  # type: ignore[union-attr]
    assert judged(judge, HONEST, tmp_path).verdict == "passed"


def test_a_module_that_dies_as_it_is_made_fails_by_itself(judge: Judge, tmp_path: Path) -> None:
    source = MODULE.replace("super().__init__()", "super().__init__(); import os; os._exit(3)")
    verdict = judged(judge, source, tmp_path, shapes="sweep")
    is_sound(verdict)
    assert (verdict.verdict, verdict.reason) == ("failed", "exit")
    assert len(verdict.cells) > 1
    assert judged(judge, HONEST, tmp_path).verdict == "passed"
