"""The registry of formats of published results. See :class:`~kerneleval.records.registry.Registry`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kerneleval.analysis.formats.common.published import Published
from kerneleval.records.registry import Registry


@dataclass(frozen=True, kw_only=True)
class PublishedFiles:
    """What is to be read, and what the reader was told of it."""

    path: Path
    baseline: Path | None = None
    """Times of the reference; None: those in the results."""
    solutions: Path | None = None
    name: str = ""
    """Name of run and generator; empty: the format chooses one."""
    hardware: str = ""
    """Name of the device, where the files do not state it."""
    level: int | None = None


FORMATS: Registry[Callable[[PublishedFiles], Published]] = Registry(
    "format",
    "kerneleval.analysis.formats",
    problem=lambda plugin: "" if callable(plugin) else "it must be a function",
    module_is_name=True,
)

register = FORMATS.register
