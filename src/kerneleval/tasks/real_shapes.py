"""Shapes that models in public use have: one table for each family of tasks, matched by the names of their dims.

A row is ``model.part`` and a value for each dim. A task gets the rows of the first table that has its very dims (in any
order) and means its kind of operator, but for those that its own constraint, or a limit of its own on a dim, forbids.
Where a model leaves a number open (tokens, batch), the part's name says what it was taken for: ``decode`` is one token
each of 32 sequences, ``prefill`` 2048 tokens of a prompt, others the model's own context. ``models/`` has the tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from kerneleval.records import Task
from kerneleval.tasks.models import attention, images, rows
from kerneleval.tasks.models.sources import SOURCES
from kerneleval.tasks.models.table import Table
from kerneleval.tasks.sampling import RANGES

TABLES: tuple[Table, ...] = (*rows.TABLES, *attention.TABLES, *images.TABLES)
"""Of several with the same dims the first one that means a task counts."""

_ROWS = frozenset("MNK")
"""Dims of tables of rows and of products of matrices."""


@dataclass(frozen=True, kw_only=True)
class RealShape:
    """Dims at which a model calls an operator."""

    name: str
    """``model.part``: ``llama3_8b.prefill``."""
    dims: dict[str, int]
    """The task's dims, in its order."""
    source: str
    """Paper or model card, and where to find it."""


def real_shapes(task: Task) -> tuple[RealShape, ...]:
    """The shapes of models that a task has; none for tasks with sizes of their own, or of no family known here."""
    names = [dim.name for dim in task.dims]
    table = next((t for t in TABLES if set(t.dims) == set(names) and t.means(task)), None)
    if table is None or task.case_dims:
        return ()
    found = []
    for name, values in table.rows:
        row = dict(zip(table.dims, values, strict=True))
        dims = {dim: row[dim] for dim in names}
        if _allowed(task, dims, limited=set(table.dims) <= _ROWS):
            found.append(RealShape(name=name, dims=dims, source=SOURCES[name.partition(".")[0]]))
    return tuple(found)


def _allowed(task: Task, dims: dict[str, int], *, limited: bool) -> bool:
    """Whether the operator is defined there.

    Where sampling ends is a limit of the operator's (a product of more than 512 numbers has no size) only for rows and
    products, for scaled dims that end below 8192, and where something is computed; else it saves memory.
    """
    limited = limited and task.tolerance.kind != "exact"
    for dim in task.dims:
        value = dims[dim.name]
        if value < dim.least or value % dim.multiple_of:
            return False
        if limited and dim.scaled and dim.high < RANGES["large"][1] and value > dim.high:
            return False
    return task.allows(dims)
