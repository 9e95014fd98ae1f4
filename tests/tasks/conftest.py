"""What the tests of tasks share: dims, drawn arguments and the reference's outputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch

from kerneleval.records import DTYPES, Case, Protocol, Scalar, Task, TensorSpec
from kerneleval.tasks import all_tasks, find, shapes

NAMES = tuple(all_tasks())
BUDGET = shapes.Budget(memory_bytes=4 << 20, flops=20_000_000)
SMALL = shapes.Budget(memory_bytes=16 << 20, flops=600_000_000)


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Hundreds of small operators run faster on one thread than in a scramble for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def dims_of(task: Task, *categories: str) -> list[dict[str, int]]:
    """Dims of the standard forward float32 cases in the given shape categories."""
    return [dict(dims) for dims in _dims_of(task.name, categories)]


@functools.cache
def _dims_of(name: str, categories: tuple[str, ...]) -> list[dict[str, int]]:
    task = find(name)
    protocol = Protocol(
        dtypes=("float32",), directions=("forward",), categories=categories, distributions=("standard",)
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
            assert dim.low <= dims[dim.name] <= dim.high
            assert dims[dim.name] % dim.multiple_of == 0


def drawn(task: Task, dims: Mapping[str, int], dtype: str, seed: int = 0) -> list[Any]:
    """Standard arguments on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    args: list[Any] = []
    for spec in task.arguments(dims, dtype):
        if isinstance(spec, Scalar):
            args.append(spec.value)
            continue
        normal = torch.randn(spec.shape, generator=generator, dtype=torch.float64)
        if spec.values == "bool":
            flags = torch.rand(spec.shape, generator=generator) < 0.5
            flags[..., 0] = True
            args.append(flags)
        elif spec.values == "integers":
            args.append(
                torch.randint(spec.low, spec.high, spec.shape, generator=generator).to(getattr(torch, spec.dtype))
            )
        else:
            value = 1 + 0.1 * normal if spec.values == "ones_normal" else normal
            args.append((value * spec.scale).to(getattr(torch, spec.dtype)))
    return args


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
