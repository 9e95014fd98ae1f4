"""Every built-in task, at a few small sizes: its declaration is right, and its own self-test finds nothing wrong.

One test a task (``make library`` runs them alone). The dtype rotates from task to task, so that all dtypes are met.
``kerneleval selftest`` runs the self-test over every planned case, and the judge with its workers, in half an hour.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from kerneleval.judge.selftest.task_selftest import selftest
from kerneleval.judge.windows import inputs
from kerneleval.records import CATEGORIES, GROUPS, Case, Protocol, Scalar, Task, TensorSpec
from kerneleval.tasks import all_tasks, find, shapes

from .conftest import nbytes, outputs

NAMES = tuple(all_tasks())
SMALL = shapes.Budget(memory_bytes=200_000, flops=10_000_000)
SOURCES = {"aten", "vllm", "cublas", "model"}
HALF_HIDDEN = ("causal_attention", "gram", "matmul_lower_triangular", "matmul_upper_triangular")
"""Of these torch counts the half that need not be computed."""
DECOMPOSED = (
    *("inverse_square_root", "low_rank_svd", "matrix_log", "matrix_power_eig", "polar"),
    *("singular_value_shrinkage", "svd_reconstruct"),
)
"""Of these torch counts the products alone, and nothing of the factorisation before them."""
FEW = 8
"""Elementwise operations for each element of arguments and outputs that torch's counter does not see."""


PARTS = 8
"""Of its other cases, a task is tested at one part in each direction; the next task of the same dtype at the next."""


@functools.lru_cache(1)
def planned(name: str) -> tuple[Case, ...]:
    """A few cases of the task: its place in the list says in which dtype, and of which ordinary size there is standard
    data. Beside it there is a part of what else is planned: edges, and each other distribution or layout once.
    """
    task = find(name)
    turn, place = divmod(NAMES.index(name), len(task.dtypes))
    protocol = Protocol(tier="quick", dtypes=task.dtypes[place : place + 1], categories=("tiny", "small", "edge"))
    plan = shapes.plan(task, protocol, SMALL)
    first = {(c.direction, c.distribution, c.layout, c.shape_category == "edge" and c.dims): c for c in reversed(plan)}
    others = [case for case in plan if case in first.values() and not ordinary(case)]
    parts = ([case for case in others if case.direction == direction] for direction in task.directions)
    usual = [case for case in plan if ordinary(case)]
    sizes = list(dict.fromkeys(case.shape_category for case in usual))
    kept = [case for case in usual if case.shape_category == sizes[turn % len(sizes)]]
    return (*kept, *(case for part in parts for case in part[turn % PARTS :: PARTS]))


def ordinary(case: Case) -> bool:
    """Of standard data, contiguous, and no edge."""
    return (case.distribution, case.layout) == ("standard", "contiguous") and case.shape_category != "edge"


def standard(name: str) -> list[Case]:
    return [case for case in planned(name) if case.direction == "forward" and ordinary(case)]


def args_of(task: Task, case: Case) -> list[Any]:
    return inputs.draw(task.arguments(case.dims_map, case.dtype), case, 3, "cpu")


def the_declaration_uses_the_vocabulary(name: str) -> None:
    task = find(name)
    assert task.category in CATEGORIES
    assert task.group in GROUPS
    assert task.source in SOURCES
    assert task.level in (1, 2, 3)
    assert task.complexity in (1, 2, 3, 4)
    assert "=" in task.summary
    assert "\n" not in task.summary
    assert len(task.summary) < 240
    assert len({r.name for r in task.relations}) == len(task.relations)
    gradients = [s for s in task.arguments(planned(name)[0].dims_map, task.dtypes[0]) if _differentiable(s)]
    assert bool(gradients) != bool(task.no_backward), "backward, or a word why not"


def plain_arguments_fit_a_native_launcher(name: str) -> None:
    task = find(name)
    for arg in task.arguments(planned(name)[0].dims_map, task.dtypes[0]):
        if isinstance(arg, Scalar):
            assert type(arg.value) in (bool, int, float), arg


def bytes_are_those_of_the_real_tensors_and_outputs_are_fresh(name: str) -> None:
    task = find(name)
    for case in standard(name):
        args = args_of(task, case)
        result = outputs(task, args)
        assert task.bytes(case.dims_map, case.dtype) == nbytes(args) + nbytes(result)
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        assert not given & {o.untyped_storage().data_ptr() for o in result}


def flops_agree_with_torchs_counter_where_it_knows_the_operator(name: str) -> None:
    task = find(name)
    for case in standard(name)[:2]:
        args = args_of(task, case)
        with (
            FlopCounterMode(display=False) as counter,
            torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        ):
            result = outputs(task, args)
        assert task.flops(case.dims_map) > 0
        counted = counter.get_total_flops()
        if counted and name not in HALF_HIDDEN:
            elements = sum(v.numel() for v in (*args, *result) if isinstance(v, torch.Tensor))
            sizes = [size for v in args if isinstance(v, torch.Tensor) for size in v.shape if size > 1]
            scores = counted // (2 * min(sizes, default=1))
            assert counted - elements <= task.flops(case.dims_map)
            if name not in DECOMPOSED:
                assert task.flops(case.dims_map) <= counted + FEW * (elements + scores)


def the_selftest_finds_nothing_wrong(name: str) -> None:
    task = find(name)
    found = selftest(task, "cpu", planned(name))
    assert not found, found[:3]


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("name", NAMES)
def test_the_task_is_what_it_declares(name: str) -> None:
    the_declaration_uses_the_vocabulary(name)
    plain_arguments_fit_a_native_launcher(name)
    bytes_are_those_of_the_real_tensors_and_outputs_are_fresh(name)
    flops_agree_with_torchs_counter_where_it_knows_the_operator(name)
    the_selftest_finds_nothing_wrong(name)


def test_there_are_as_many_as_the_field_asks_for() -> None:
    assert len(NAMES) >= 450
    assert {find(name).category for name in NAMES} == set(CATEGORIES)


def _differentiable(spec: Any) -> bool:
    return isinstance(spec, TensorSpec) and spec.differentiable
