"""How OpenCL kernels are launched: ``kerneleval-launch`` and ``kerneleval-scratch`` headers.

``// kerneleval-launch: KERNEL global=(X,Y,Z) local=(X,Y,Z) entry=NAME``: sizes are integer expressions over the task's
dims, as in ``geometry.py``; lines of one entry point are its steps, in their order.
``// kerneleval-scratch: NAME BYTES`` gives all steps of that entry point one more buffer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from kerneleval.languages.common.geometry import _settings, _tree, _triple, evaluate
from kerneleval.languages.common.header import HeaderLine, read_header
from kerneleval.records import UsageError

__all__ = ["Plan", "Sizes", "Step", "read_plans"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FORM = "KERNEL global=(X,Y,Z) local=(X,Y,Z) entry=NAME"
_SCRATCH_FORM = "ENTRY BYTES"

T = TypeVar("T")
Sizes = tuple[int, int, int]
"""Along x, y, z."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One launch of a kernel, its sizes as expressions over dims."""

    kernel: str
    """Name of the ``kernel`` function."""
    global_size: tuple[str, str, str]
    """Work-items along x, y, z."""
    local_size: tuple[str, str, str]
    """Work-items of a group along x, y, z."""

    def at(self, dims: Mapping[str, int]) -> tuple[Sizes, Sizes]:
        """(global, local) size at those dims; a global size with a 0 in it is not to be launched.

        Raises:
            UsageError: an unknown dim, a negative size, no work-item in a group, or a global size that is no multiple
                of the local one.
        """
        values = [evaluate(size, dims) for size in (*self.global_size, *self.local_size)]
        whole, group = (values[0], values[1], values[2]), (values[3], values[4], values[5])
        if min(whole) < 0 or min(group) < 1:
            raise UsageError(f"{self.kernel} at {dict(dims)}: global={whole} local={group} are no sizes")
        if any(w % g for w, g in zip(whole, group, strict=True)):
            raise UsageError(f"{self.kernel} at {dict(dims)}: global={whole} is no multiple of local={group}")
        return whole, group


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one call of an entry point does."""

    steps: tuple[Step, ...]
    """Launches, in order."""
    scratch: tuple[str, ...] = ()
    """Bytes of each further buffer, as expressions over dims."""

    def scratch_at(self, dims: Mapping[str, int]) -> list[int]:
        """Bytes of each further buffer at those dims; raises UsageError for an unknown dim or a negative size."""
        sizes = [evaluate(size, dims) for size in self.scratch]
        if sizes and min(sizes) < 0:
            raise UsageError(f"kerneleval-scratch at {dict(dims)} is negative: {sizes}")
        return sizes


def read_plans(text: str) -> dict[str, Plan]:
    """The launch and scratch lines in a source's header, by entry point.

    Raises:
        UsageError: a line is not of the form above, or there is no launch line; names the line's number.
    """
    steps: dict[str, list[Step]] = {}
    scratch: dict[str, list[str]] = {}
    for line in read_header(text, "launch"):
        entry, step = _parsed(line, _launch)
        steps.setdefault(entry, []).append(step)
    for line in read_header(text, "scratch"):
        entry, size = _parsed(line, _scratch)
        if entry not in steps:
            raise UsageError(f"line {line.line}: kerneleval-scratch: no launch line has the entry point {entry}")
        scratch.setdefault(entry, []).append(size)
    if not steps:
        raise UsageError(f"no kerneleval-launch line is among the first 60; its form is {_FORM}")
    return {entry: Plan(steps=tuple(its), scratch=tuple(scratch.get(entry, ()))) for entry, its in steps.items()}


def _parsed(line: HeaderLine, parse: Callable[[str], tuple[str, T]]) -> tuple[str, T]:
    try:
        return parse(line.value)
    except UsageError as error:
        raise UsageError(f"line {line.line}: kerneleval-{line.key}: {error}") from error


def _launch(text: str) -> tuple[str, Step]:
    kernel, _, rest = text.partition(" ")
    _check_name(kernel, "kernel", _FORM)
    values = _settings(rest, ("global", "local"), ("entry",), _FORM)
    entry = values.get("entry", kernel)
    _check_name(entry, "entry point", _FORM)
    whole, group = _triple("global", values["global"]), _triple("local", values["local"])
    return entry, Step(kernel=kernel, global_size=whole, local_size=group)


def _scratch(text: str) -> tuple[str, str]:
    entry, _, size = text.partition(" ")
    _check_name(entry, "entry point", _SCRATCH_FORM)
    if not size.strip():
        raise UsageError(f"the size is missing; the form is {_SCRATCH_FORM}")
    _tree(size)
    return entry, size.strip()


def _check_name(name: str, what: str, form: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a {what}; the form is {form}")
