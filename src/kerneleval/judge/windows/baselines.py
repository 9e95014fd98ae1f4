"""Baselines: trusted code, run in a worker of its own under the candidate's protocol, so that overheads cancel.

What a baseline is, and the last few that are loaded. They are timed by ``timing/timer.py``.
"""

from __future__ import annotations

from kerneleval.judge.windows.worker_pool import BuildFailed, Loaded, WorkerPool
from kerneleval.records import Candidate, Case, InfrastructureError, Origin, Protocol, Task, UsageError

__all__ = ["Baselines", "baseline_candidate"]

_KINDS = ("eager", "compile")

_BUILT_IN = """import importlib.util
import sys

import torch

import kerneleval

# a worker may read the tasks but not list the package's directory, so the finder needs their place
_place = kerneleval.__path__[0] + "/tasks"
_spec = importlib.util.spec_from_file_location(
    "kerneleval.tasks", _place + "/__init__.py", submodule_search_locations=[_place]
)
_tasks = sys.modules.get("kerneleval.tasks") or importlib.util.module_from_spec(_spec)
if "kerneleval.tasks" not in sys.modules:
    sys.modules["kerneleval.tasks"] = _tasks
    _spec.loader.exec_module(_tasks)
_reference = _tasks.find({name!r}).reference
{flags}

def run(*args):
    return _reference(*args)
"""

_FLAGS = """
torch.backends.cuda.matmul.allow_tf32 = {tf32}
torch.backends.cudnn.allow_tf32 = {tf32}
"""

_COMPILED = """
_eager = run
run = torch.compile(_eager)
"""


def baseline_candidate(task: Task, protocol: Protocol) -> Candidate:
    """The baseline of a task as a candidate: the reference itself, eager or under ``torch.compile``.

    Raises:
        UsageError: no such baseline.
    """
    if protocol.baseline not in _KINDS:
        raise UsageError(f"baseline {protocol.baseline!r} is unknown; known are {', '.join(_KINDS)}")
    flags = _FLAGS.format(tf32=protocol.tf32)
    if task.baseline_source:
        source = task.baseline_source + "\n\nimport torch\n" + flags
        if protocol.baseline == "compile":
            if task.module:
                raise UsageError("the compile baseline of module problems is not offered yet; use eager")
            source += _COMPILED
        entry = "Model" if task.module else "run"
    else:
        source = _BUILT_IN.format(name=task.name, flags=flags)
        if protocol.baseline == "compile":
            source += _COMPILED
        entry = "run"
    return Candidate(
        files=(("baseline.py", source),),
        language="torch",
        entry=entry,
        origin=Origin(generator=protocol.baseline),
    )


class Baselines:
    """Loaded baselines, the last few kept for the next candidate of the same task."""

    _KEPT = 2

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._loaded: dict[tuple[str, str, bool], Loaded] = {}

    def get(self, task: Task, protocol: Protocol, *, fresh: bool = False) -> Loaded:
        """The loaded baseline; ``fresh`` replaces its process first.

        Raises:
            InfrastructureError: the trusted baseline does not load.
        """
        candidate = baseline_candidate(task, protocol)
        key = (candidate.hash, protocol.baseline, protocol.tf32)
        paces: dict[Case, float] = {}
        if fresh and key in self._loaded:
            paces = self._loaded[key].paces
            self._loaded.pop(key).close()
        if key not in self._loaded:
            while len(self._loaded) >= self._KEPT:
                self._loaded.pop(next(iter(self._loaded))).close()
            try:
                self._loaded[key] = Loaded(self._pool, candidate, ("run",), trusted=True, tf32=protocol.tf32)
            except BuildFailed as error:
                raise InfrastructureError(f"the {protocol.baseline} baseline of {task.name} failed: {error}") from error
            self._loaded[key].paces = paces
        return self._loaded[key]

    def drop(self, loaded: Loaded) -> None:
        """Forget a baseline whose process died."""
        self._loaded = {key: kept for key, kept in self._loaded.items() if kept is not loaded}
        loaded.close()

    def close(self) -> None:
        """End every baseline worker."""
        for loaded in self._loaded.values():
            loaded.close()
        self._loaded.clear()
