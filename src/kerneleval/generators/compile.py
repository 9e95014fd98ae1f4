"""``torch.compile`` as a generator: the task's own reference, compiled.

``compile`` is the default mode; a settings file chooses others (``kind = "compile"``, ``docs/generators.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kerneleval.generators.common.base import Cache
from kerneleval.generators.common.prompts.source import reference_source
from kerneleval.generators.common.registry import KINDS, register
from kerneleval.generators.common.settings import typed
from kerneleval.records import Candidate, Origin, Task, UsageError, near

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
"""Of ``torch.compile``."""

_HEAD = """
import torch as _torch

_torch._dynamo.config.cache_size_limit = {limit}
_torch._dynamo.config.fail_on_cache_limit_hit = True
"""

_FUNCTION = """_compiled = _torch.compile(reference{options})


def run(*args):
    return _compiled(*args)
"""

_MODULE = """

class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.compile({options})
"""


@register
@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The generator.

    Beyond its limit of recompilations PyTorch would go back to eager execution in silence; here it raises instead.
    """

    name: str = "compile"
    mode: str = "default"
    """One of :data:`MODES`."""
    fullgraph: bool = False
    dynamic: bool | None = None
    """Whether sizes are symbols from the first call on; None: PyTorch's own choice, from the second size on."""
    recompile_limit: int = 256
    """How often one function is compiled: for each dtype, layout and kind of size once."""

    @property
    def summary(self) -> str:
        """Which mode."""
        return f"the reference under torch.compile, mode {self.mode}"

    def candidates(self, task: Task, device: str) -> Iterator[Candidate]:
        """One candidate; none where the reference has no source, as of a function that a program made."""
        source = task.baseline_source if task.module else reference_source(task)
        if not source.strip() or device == "opencl":
            return
        options = [f"mode={self.mode!r}"] if self.mode != "default" else []
        options += ["fullgraph=True"] if self.fullgraph else []
        options += [f"dynamic={self.dynamic}"] if self.dynamic is not None else []
        tail = _HEAD + (_MODULE if task.module else _FUNCTION)
        given = ", ".join(options)
        text = tail.format(limit=self.recompile_limit, options=given if task.module or not given else f", {given}")
        yield Candidate(
            files=(("candidate.py", f"{source.rstrip()}\n\n{text}"),),
            language="torch",
            entry="ModelNew" if task.module else "run",  # the reference may define a function of the task's name
            origin=Origin(generator=self.name, model=f"torch.compile {self.mode}", human_edits=0),
        )


@KINDS.register(name="compile")
def from_settings(table: Mapping[str, Any], place: str, cache: Cache | None = None) -> Compiled:
    """The generator of a settings file. Raises UsageError for an unknown key or mode, or a value of the wrong type."""
    values = typed(Compiled, table, place)
    mode = str(table.get("mode", "default"))
    if mode not in MODES:
        raise UsageError(f"{place} mode {mode!r:.80} is unknown; {near(mode, MODES)}")
    if table.get("recompile_limit", 1) < 1:
        raise UsageError(f"{place} recompile_limit must be 1 or more, not {table['recompile_limit']}")
    name = table.get("name") or ("compile" if mode == "default" else f"compile-{mode}")
    return Compiled(**{**values, "name": name, "mode": mode})
