"""Specimens: candidate files that say in their first line what the judge must make of them.

``# specimen: class=NAME task=TASK device=cpu|cuda|opencl|any stage=STAGE reason=SLUG[,SLUG...]`` for an attack; an
honest one says ``verdict=passed``. ``any`` is the CPU or an NVIDIA GPU. Further keys: ``directions``, ``categories``
(of shapes: ``categories=`` means every one; without the key see :func:`judged`), ``distributions`` (without the key
every one), ``allow`` (comma separated), ``timed=yes`` where only the clock's windows give it away, and ``tier`` where
the quick one is too small. A task may also be a problem file below ``problems/``.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kerneleval.judge import Judge
from kerneleval.pipeline import check
from kerneleval.records import Task, Verdict
from kerneleval.tasks import open_task

__all__ = ["ROOT", "Specimen", "cases", "collect", "elsewhere", "every", "got_its_due", "judged"]

ROOT = Path(__file__).resolve().parent
_HEADER = re.compile(r"^(?:#|//) specimen: (.+)$")


@dataclass(frozen=True, kw_only=True)
class Specimen:
    """One candidate and its due."""

    path: Path
    kind: str
    """The class of attack, or of honest pattern."""
    task: str
    device: str
    verdict: str
    stages: tuple[str, ...]
    reasons: tuple[str, ...]
    directions: tuple[str, ...]
    categories: tuple[str, ...] | None
    """Empty: of every category; None: of the usual ones."""
    distributions: tuple[str, ...]
    allow: tuple[str, ...]
    dtypes: tuple[str, ...]
    timed: bool
    tier: str

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


@functools.cache
def _read(path: Path) -> Specimen:
    found = _HEADER.match(path.read_text(encoding="utf-8").splitlines()[0])
    if found is None:
        raise ValueError(f"{path}: the first line is no specimen header")
    keys = dict(part.split("=", 1) for part in found[1].split())

    def words(name: str, default: str = "") -> tuple[str, ...]:
        return tuple(w for w in keys.get(name, default).split(",") if w)

    return Specimen(
        path=path,
        kind=keys["class"],
        task=str(ROOT / keys["task"]) if keys["task"].endswith(".py") else keys["task"],
        device=keys.get("device", "any"),
        verdict=keys.get("verdict", "failed"),
        stages=words("stage"),
        reasons=words("reason"),
        directions=words("directions", "forward"),
        categories=words("categories") if "categories" in keys else None,
        distributions=words("distributions"),
        timed=keys.get("timed") == "yes",
        tier=keys.get("tier", "quick"),
        allow=words("allow", "custom,mixed,library"),
        dtypes=words("dtypes", "float32"),
    )


@functools.cache
def _task(name: str) -> Task:
    """The task of a specimen: a problem file is tried with other inputs once, and not for each of its specimens."""
    return open_task(name)


def judged(judge: Judge, specimen: Specimen) -> Verdict:
    """The verdict on it, up to the first case that fails: at medium sizes too, but not on a host unless its header
    names them; there small ones give an attack away, and tiny ones whose work a kernel does. Whose work that is does
    not depend on the data either: one distribution tells.
    """
    by_its_work = not {"track_not_allowed", "decoy_kernel"}.isdisjoint(specimen.reasons)
    usual: tuple[str, ...] = ("tiny", "small", "medium")
    if judge.pool.device.name in ("cpu", "opencl"):
        usual = ("tiny", "small") if specimen.verdict == "passed" else ("small",)
        usual = ("tiny",) if by_its_work else usual
    categories = usual if specimen.categories is None else specimen.categories
    return check(
        specimen.path,
        _task(specimen.task),
        judge=judge,
        allow=specimen.allow,
        dtypes=specimen.dtypes,
        directions=specimen.directions,
        categories=() if specimen.task.endswith(".py") else categories,
        distributions=("standard",) if by_its_work else specimen.distributions,
        tier=specimen.tier,
        timed=specimen.timed,
        fail_fast=True,
    )


def got_its_due(specimen: Specimen, verdict: Verdict) -> bool:
    """Whether the verdict is the one that the specimen names, at its stage and for its reason."""
    if verdict.verdict != specimen.verdict:
        return False
    return verdict.verdict == "passed" or (verdict.stage in specimen.stages and verdict.reason in specimen.reasons)


def every(folder: str = "") -> list[Specimen]:
    """Every specimen, sorted by path."""
    root = ROOT / folder
    files = sorted(p for p in root.rglob("*") if p.suffix in (".py", ".cpp", ".cu", ".cl") and p.parent != ROOT)
    files = [p for p in files if p.parent.name != "problems"]
    return [_read(p) for p in files if p.name != "__init__.py" and not p.name.startswith("test_")]


def collect(device: str, folder: str = "") -> list[Specimen]:
    """Every specimen for a device, sorted by path."""
    devices = (device,) if device == "opencl" else (device, "any")
    return [s for s in every(folder) if s.device in devices]


_ALWAYS = frozenset(("honest/compiled_whole", "honest/ctypes_library"))
"""Honest ones of a kind that no other stands for."""


def cases(
    specimens: Sequence[Specimen], marks: Callable[[Specimen], list[pytest.MarkDecorator]] = lambda one: []
) -> list[Any]:
    """Parameters of a test: all but the first attack of each class, and one in four of the honest ones, are slow."""
    first = {s.kind: s for s in reversed(specimens) if s.verdict != "passed"}.values()
    honest = [s for s in specimens if s.verdict == "passed"][::4]
    usual = {s.name for s in (*first, *honest)} | _ALWAYS
    slow = [pytest.mark.slow]
    return [pytest.param(s, id=s.name, marks=marks(s) + slow * (s.name not in usual)) for s in specimens]


def elsewhere(device: str) -> dict[str, int]:
    """Other devices, each with how many specimens are for it alone, which are not run on this one."""
    others = (s.device for s in every() if s.device not in (device, "any"))
    return dict(sorted(collections.Counter(others).items()))
