"""Stage 1, what to solve: built-in operators, found by name; and tasks from files.

A family is a module ``tasks/operators/<kind>/<family>.py`` with a tuple ``TASKS``; adding a task touches that file
alone. :func:`find` imports the family of one task, :func:`all_tasks` imports all. ``define.py`` has the words in which
tasks are written, ``sampling.py`` and ``shapes.py`` plan the sizes at which they are judged.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import symtable
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from kerneleval.records import (
    CATEGORIES,
    DISTRIBUTIONS,
    DTYPES,
    GROUPS,
    LAYOUTS,
    KernelEvalError,
    Task,
    UsageError,
    digest,
    near,
)
from kerneleval.records.registry import execute

__all__ = ["ALIASES", "CORE", "all_tasks", "find", "home", "open_task"]

CORE: tuple[str, ...] = (
    *("add", "exp", "gelu", "silu"),
    *("amax", "argmax", "logsumexp", "sum"),
    *("batched_matmul", "linear", "matmul", "matvec"),
    *("conv1d", "conv2d", "conv_transpose2d", "depthwise_conv2d"),
    *("batch_norm", "group_norm", "layer_norm", "rms_norm"),
    *("attention", "causal_attention", "grouped_query_attention", "masked_attention"),
    *("add_rms_norm", "linear_bias_gelu", "softmax_cross_entropy", "swiglu"),
)
"""Four operators of each category, for measurements of the judge itself, which would take hours over all."""

ALIASES: dict[str, str] = {
    "conv2d_hardswish_relu": "conv2d_relu_hardswish",  # relu(hardswish(x)) = hardswish(relu(x)) for every x
    "hstack": "cat",
    "lu_factor_solve": "solve",
    "qr_solve": "solve",
    "rows_silu_mul": "swiglu",
    "squared_difference": "mse_loss_none",
}
"""Alias -> task. The alias names the same function of the same arguments; how it is computed does not matter."""

_OPERATORS = "kerneleval.tasks.operators"


def all_tasks() -> dict[str, Task]:
    """Every built-in task by name, sorted by category and name. Imports all families, and torch, on the first call.

    Raises KernelEvalError where two tasks share a name, UsageError where a declaration does not hold together, and
    whatever importing a family raises.
    """
    return dict(_builtin())


def find(name: str) -> Task:
    """The built-in task of that name, or of the name of which that is an alias. Imports families one after the other,
    the likeliest by their text first, until one has the task. Raises UsageError, with the nearest names, for an unknown
    one.
    """
    name = ALIASES.get(name, name)
    return _family(home(name))[name]


@functools.cache
def home(name: str) -> str:
    """The module of a built-in task, such as ``kerneleval.tasks.operators.gemm.blas``; raises as :func:`find`."""
    everything_is_imported = _builtin.cache_info().currsize > 0
    for module in _texts(_OPERATORS) if everything_is_imported else _by_likelihood(name):
        if name in _family(module):
            return module
    known = [*_builtin(), *ALIASES]
    raise UsageError(f"no task is called {name!r}; {near(name, known, see='kerneleval tasks')}")


def open_task(name_or_path: str, *, sweep: bool = False, suite_seed: int = 0) -> Task:
    """A task by name, or from a Python file, which is executed: give only files that you trust, as with any program.

    A path ends in ``.py``: a KernelBench problem (``class Model`` with ``get_inputs``), or a file of one's own that
    defines ``TASKS``; ``file.py:name`` picks one of several tasks. ``sweep``: judge a KernelBench problem at other
    sizes than its own, too, drawn by the public ``suite_seed``; a built-in task's are drawn when its cases are planned.
    Raises UsageError: no such task or file, or the file is neither of the two.
    """
    path, _, wanted = name_or_path.rpartition(":") if ".py:" in name_or_path else (name_or_path, "", "")
    if not path.endswith(".py"):
        return find(name_or_path)
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        names = symtable.symtable(text, path, "exec").get_symbols()
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise UsageError(f"cannot read the task file {path}: {error}") from error
    bound = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
    if "TASKS" in bound:
        return _choose(_own_tasks(file, text), wanted, path)
    if {"Model", "get_inputs"} <= bound and not wanted:
        from kerneleval.tasks.formats import kernelbench

        return kernelbench.read(file, sweep=sweep, suite_seed=suite_seed)
    raise UsageError(
        f"{path} defines no task: a KernelBench problem has 'class Model' and 'get_inputs'; "
        "a file of one's own assigns a tuple of Task records to TASKS"
    )


@functools.cache
def _builtin() -> dict[str, Task]:
    return _discover(_OPERATORS)


def _discover(package: str) -> dict[str, Task]:
    """The tasks of every module in a package, sorted by category and name."""
    tasks: dict[str, Task] = {}
    places: dict[str, str] = {}
    for module in _texts(package):
        for name, task in _family(module).items():
            if name in tasks:
                raise KernelEvalError(f"two tasks are called {name!r}: in {places[name]} and in {module}")
            tasks[name], places[name] = task, module
    return dict(sorted(tasks.items(), key=lambda item: (item[1].category, item[0])))


@functools.cache
def _family(module: str) -> dict[str, Task]:
    """The tasks of one module, by name."""
    family = importlib.import_module(module)
    tasks = getattr(family, "TASKS", None)
    if not isinstance(tasks, tuple) or not all(isinstance(task, Task) for task in tasks):
        raise KernelEvalError(f"{family.__file__}: TASKS must be a tuple of Task records")
    return _unique(tasks, str(family.__file__))


@functools.cache
def _texts(package: str) -> dict[str, str]:
    """The source of every module of a package by its dotted name, sorted."""
    found = importlib.util.find_spec(package)
    root = Path(found.submodule_search_locations[0]) if found and found.submodule_search_locations else Path()
    files = {file.relative_to(root).with_suffix(""): file for file in root.rglob("*.py") if file.stem != "__init__"}
    return {".".join((package, *path.parts)): file.read_text(encoding="utf-8") for path, file in sorted(files.items())}


def _by_likelihood(name: str) -> list[str]:
    """The modules of all families; first those in which the name is the first argument of a call, then those in which
    it is a line of names (a chain), then by how much of its beginning stands there as a string: functions add endings.
    """
    texts = _texts(_OPERATORS)
    called = re.compile(rf'\(\s*"{re.escape(name)}"')
    line = re.compile(rf"^{re.escape(name).replace('_', '(?:_no_bias)?[_ ]')}$", re.MULTILINE)
    first = f"\n{name.partition('_')[0]}"
    begins = [f'"{name}"', *(f'"{name[:end]}' for end in range(len(name) - 1, 0, -1))]

    def rank(module: str) -> int:
        text = texts[module]
        if begins[0] in text and called.search(text):
            return 0
        if first in text and line.search(text):
            return 1
        return next((i for i, part in enumerate(begins, 2) if part in text), len(name) + 2)

    return sorted(texts, key=rank)


def _unique(given: Iterable[Task], where: str) -> dict[str, Task]:
    """The tasks of one file by name, sorted by category and name."""
    tasks: dict[str, Task] = {}
    for task in given:
        if wrong := next(_problems(task), ""):
            raise UsageError(f"task {task.name!r} in {where}: {wrong}")
        if task.name in tasks:
            raise KernelEvalError(f"two tasks are called {task.name!r} in {where}")
        tasks[task.name] = task
    return dict(sorted(tasks.items(), key=lambda item: (item[1].category, item[0])))


def _problems(task: Task) -> Iterator[str]:
    """What does not hold together in a task's declaration, and what would be right."""
    if not task.name.isidentifier():
        yield f"name {task.name!r} must be an identifier such as 'layer_norm'"
    if task.category not in CATEGORIES:
        yield f"category {task.category!r} is unknown; known are {', '.join(CATEGORIES)}"
    vocabularies: tuple[tuple[str, Sequence[object], Sequence[object]], ...] = (
        ("dtypes", task.dtypes, tuple(DTYPES)),
        ("distributions", task.distributions, DISTRIBUTIONS),
        ("layouts", task.layouts, LAYOUTS),
        ("group", (task.group,), (*GROUPS, "")),
        ("complexity", (task.complexity,), (1, 2, 3, 4)),
    )
    for field_name, values, known in vocabularies:
        for value in values:
            if value not in known:
                yield f"{field_name}: {value!r} is unknown; known are {', '.join(map(str, known))}"
        if not values:
            yield f"{field_name} is empty"
    names = [dim.name for dim in task.dims]
    if len(set(names)) != len(names):
        yield f"two dims share a name in {', '.join(names)}"
    for dim in task.dims:
        lowest = 1 if dim.scaled else 0
        if dim.low < lowest or dim.least > dim.high:
            yield f"dim {dim.name}: no multiple of {dim.multiple_of} is in [{dim.low}, {dim.high}], low >= {lowest}"
    if not task.case_dims and not any(dim.scaled for dim in task.dims):
        yield "no dim is scaled and there are no case_dims, so there is nothing to sample"


def _own_tasks(file: Path, text: str) -> dict[str, Task]:
    """Execute a user's file under a name of its own and take its TASKS."""
    name = f"kerneleval_task_{digest(str(file.resolve()), text)[:16]}"
    module = execute(file, name, f"executing the task file {file} raised")
    tasks = getattr(module, "TASKS", None)
    if not isinstance(tasks, (tuple, list)) or not tasks or not all(isinstance(task, Task) for task in tasks):
        raise UsageError(f"{file}: TASKS must be a tuple of one or more kerneleval.records.Task")
    return _unique([replace(task, baseline_source=text) for task in tasks], str(file))


def _choose(tasks: dict[str, Task], wanted: str, path: str) -> Task:
    if wanted:
        if wanted not in tasks:
            raise UsageError(f"{path} has no task {wanted!r}; {near(wanted, tasks)}")
        return tasks[wanted]
    if len(tasks) > 1:
        raise UsageError(f"{path} defines {len(tasks)} tasks: name one, as in {path}:{next(iter(tasks))}")
    return next(iter(tasks.values()))
