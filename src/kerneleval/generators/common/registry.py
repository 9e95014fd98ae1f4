"""The registries of generators and of kinds of settings. See :class:`~kerneleval.records.registry.Registry`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kerneleval.generators.common.base import Asked, Cache, Generator
from kerneleval.records.registry import Registry


def _problem(plugin: Any) -> str:
    if isinstance(plugin, (Generator, Asked)):
        return ""
    return "it needs name, summary and candidates(); or name, summary, samples, rounds, identity, concurrency and ask()"


GENERATORS: Registry[Generator | Asked] = Registry(
    "generator", "kerneleval.generators", problem=_problem, packages=True
)

FromSettings = Callable[[Mapping[str, Any], str, Cache | None], Generator | Asked]
"""(the table [generator] without ``kind``, its place for messages, where answers are kept) -> generator."""

KINDS: Registry[FromSettings] = Registry(
    "kind of generator",
    "kerneleval.generators",
    problem=lambda plugin: "" if callable(plugin) else "it must be a function",
    packages=True,
    beside=GENERATORS,
)

register = GENERATORS.register
