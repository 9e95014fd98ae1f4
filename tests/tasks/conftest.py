"""What the tests of tasks share: dims, drawn arguments and the reference's outputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from kerneleval.devices.cpu import set_threads
from kerneleval.judge.windows import inputs
from kerneleval.records import DTYPES, Case, Protocol, Task, TensorSpec
from kerneleval.tasks import CORE, find, shapes

NAMES = CORE
BUDGET = shapes.Budget(memory_bytes=4 << 20, flops=20_000_000)
SMALL = shapes.Budget(memory_bytes=16 << 20, flops=600_000_000)


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Hundreds of small operators run faster on one thread than in a scramble for the cores."""
    before = torch.get_num_threads()
    set_threads(1)
    yield
    set_threads(before)


def dims_of(task: Task, *categories: str) -> list[dict[str, int]]:
    """Dims of the standard forward float32 cases in the given shape categories."""
    return [dict(dims) for dims in _dims_of(task.name, categories)]


@functools.cache
def _dims_of(name: str, categories: tuple[str, ...]) -> list[dict[str, int]]:
    task = find(name)
    protocol = Protocol(
        dtypes=task.dtypes[:1], directions=("forward",), categories=categories, distributions=("standard",)
    )
    return [case.dims_map for case in shapes.plan(task, protocol, BUDGET)]


def check_dims(task: Task, case: Case, budget: shapes.Budget) -> None:
    """A case keeps to the budget, and its dims to what the task says of them."""
    dims = case.dims_map
    assert tuple(dims) == tuple(dim.name for dim in task.dims)
    assert shapes.case_bytes(task, case.direction, dims, case.dtype) <= budget.memory_bytes
    assert task.flops(dims) <= budget.flops
    assert task.constraint is None or task.constraint(dims)
    for dim in task.dims:
        if case.shape_category != "edge" or dims[dim.name]:
            assert dim.low <= dims[dim.name] <= max(dim.high, dim.long)
            assert dims[dim.name] % dim.multiple_of == 0


def drawn(task: Task, dims: Mapping[str, int], dtype: str, seed: int = 0) -> list[Any]:
    """Standard arguments on the CPU; of the task's own type where it has no floating ones."""
    dtype = dtype if getattr(torch, task.dtypes[0]).is_floating_point else task.dtypes[0]
    case = Case(task=task.name, direction="backward", dims=tuple(dims.items()), dtype=dtype)
    return inputs.draw(task.arguments(dims, dtype), case, seed, "cpu")


def outputs(task: Task, args: Sequence[Any]) -> list[torch.Tensor]:
    """The reference's outputs as a list."""
    out = task.reference(*args)
    return list(out) if isinstance(out, tuple) else [out]


def tensors(task: Task, dims: Mapping[str, int], dtype: str = "float32") -> list[tuple[int, TensorSpec]]:
    """Positions and specifications of the tensor arguments."""
    return [(i, s) for i, s in enumerate(task.arguments(dims, dtype)) if isinstance(s, TensorSpec)]


def nbytes(values: Sequence[Any]) -> int:
    """Contiguous bytes of all tensors among the values."""
    return sum(v.numel() * DTYPES[str(v.dtype)[6:]] for v in values if isinstance(v, torch.Tensor))
