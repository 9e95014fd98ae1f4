"""What the tests of the judge's numerics share: small cases of every task, drawn calls, one thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

from kerneleval.devices.cpu import set_threads
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.expectation import Expectation
from kerneleval.judge.windows import inputs
from kerneleval.records import Case, Protocol, Task, TensorSpec
from kerneleval.tasks import CORE, find, shapes

NAMES = CORE
SMALL = shapes.Budget(memory_bytes=100_000, flops=2_000_000)
"""Keeps a case below a few milliseconds, at thousands of elements."""


@pytest.fixture(autouse=True, scope="package")
def _one_thread() -> Iterator[None]:
    """Helper threads gain nothing at these sizes and spin against other tests on busy machines."""
    before = torch.get_num_threads()
    set_threads(1)
    yield
    set_threads(before)


def case_of(
    name: str,
    dims: dict[str, int],
    dtype: str = "float32",
    direction: str = "forward",
    distribution: str = "standard",
    layout: str = "contiguous",
) -> Case:
    return Case(
        task=name,
        direction=direction,  # type: ignore[arg-type]
        dims=tuple(dims.items()),
        dtype=dtype,
        distribution=distribution,
        layout=layout,
    )


def planned(task: Task, budget: shapes.Budget = SMALL, **restrictions: Any) -> tuple[Case, ...]:
    return shapes.plan(task, Protocol(**restrictions), budget)


def drawn(task: Task, case: Case, seed: int = 1) -> tuple[list[Any], list[torch.Tensor] | None]:
    args = inputs.draw(task.arguments(case.dims_map, case.dtype), case, seed, "cpu")
    if case.direction == "forward":
        return args, None
    specs = reference.output_specs(task, case, args)
    return args, inputs.upstream(specs, seed, "cpu", case.layout, case.distribution)


def expected(name: str, dims: dict[str, int], seed: int = 1, **kind: str) -> tuple[list[Any], Expectation]:
    """Arguments of one operator call, and its expectation by the native outputs of all forms."""
    task, case = find(name), case_of(name, dims, **kind)
    args, grads = drawn(task, case, seed)
    return args, reference.expect(task, case, args, grads).widest


def called(function: Any, args: Sequence[Any]) -> list[torch.Tensor]:
    result = function(*args)
    return [result] if isinstance(result, torch.Tensor) else list(result)


def gradients(
    function: Any, task: Task, case: Case, args: Sequence[Any], grads: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Gradients of the differentiable arguments by autograd through a candidate."""
    args, leaves = list(args), []
    for position, spec in enumerate(task.arguments(case.dims_map, case.dtype)):
        if isinstance(spec, TensorSpec) and spec.differentiable:
            args[position] = args[position].detach().clone().requires_grad_()
            leaves.append(args[position])
    return list(torch.autograd.grad(called(function, args), leaves, list(grads)))


def floats(values: Sequence[Any], convert: Any) -> list[Any]:
    """The values with every floating tensor converted."""
    return [convert(v) if isinstance(v, torch.Tensor) and v.is_floating_point() else v for v in values]
