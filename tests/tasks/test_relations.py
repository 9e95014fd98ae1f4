"""The declared relations hold on the reference in fp64, and a wrong operator breaks them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from kerneleval.judge.oracle.expectation import opened
from kerneleval.records import Dim, Relation, Task
from kerneleval.tasks import all_tasks, find

from .conftest import NAMES, dims_of, drawn

WITH_RELATIONS = [name for name, task in all_tasks().items() if task.relations]


def relation_of(task: Task, name: str) -> Relation:
    return next(r for r in task.relations if r.name == name)


def run(function: Callable[..., Any], args: Sequence[Any]) -> list[torch.Tensor]:
    out = function(*args)
    return list(out) if isinstance(out, tuple) else [out]


def holds(
    relation: Relation, function: Callable[..., Any], args: Sequence[Any], outputs: Sequence[torch.Tensor]
) -> bool:
    """Whether a function that gives these outputs for the arguments follows the relation."""

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(5)

    transformed = relation.transform(args, generator())
    for a, b in zip(args, transformed, strict=True):
        if isinstance(a, torch.Tensor):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
        else:
            assert a == b
    expected = relation.expect(outputs, args, generator())
    got = run(function, transformed)
    return all(torch.allclose(g, e, rtol=1e-9, atol=1e-9, equal_nan=True) for g, e in zip(got, expected, strict=True))


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", WITH_RELATIONS)
def test_relations_hold_on_the_reference(name: str) -> None:
    task = find(name)
    for dims in dims_of(task, "tiny", "small"):
        args = drawn(task, dims, "float64")
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
        outputs = run(task.reference, args)
        for relation in task.relations:
            assert holds(relation, task.reference, args, outputs), (relation.name, dims)
            for a, b in zip(args, before, strict=True):
                same = not isinstance(a, torch.Tensor) or torch.equal(opened(a).nan_to_num(), opened(b).nan_to_num())
                assert same, (relation.name, dims)


def _named(task: Task) -> list[tuple[str, int]]:
    return list(dims_of(task, "small")[-1].items())


def _small(task: Task) -> list[tuple[Dim, int]]:
    return list(zip(task.dims, (value for _, value in _named(task)), strict=True))


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", WITH_RELATIONS)
def test_transformations_change_something(name: str) -> None:
    task = find(name)
    # B and H may be 1
    dims = {d.name: v if v > 1 or d.high < 2 or not d.low else max(2, d.multiple_of) for d, v in _small(task)}
    args = drawn(task, dims if task.constraint is None or task.constraint(dims) else dict(_named(task)), "float64")
    for relation in task.relations:
        changed = (relation.transform(args, torch.Generator().manual_seed(seed)) for seed in range(20))
        assert any(
            not torch.equal(opened(a), opened(b))
            for values in changed
            for a, b in zip(args, values, strict=True)
            if isinstance(a, torch.Tensor)
        ), relation.name


@pytest.mark.parametrize("name", [n for n in NAMES if find(n).category in ("elementwise", "reduction", "gemm")])
def test_relations_hold_in_float32_too(name: str) -> None:
    task = find(name)
    args = drawn(task, dims_of(task, "small")[0], "float32")
    for relation in task.relations:
        generators = [torch.Generator().manual_seed(3) for _ in range(2)]
        got = task.reference(*relation.transform(args, generators[0]))
        (want,) = relation.expect([task.reference(*args)], args, generators[1])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "relation", "wrong"),
    [
        ("gelu", "reflection", lambda x: 1.01 * torch.nn.functional.gelu(x)),
        ("gelu", "row_permutation", lambda x: x + torch.arange(len(x))[:, None]),
        ("silu", "column_permutation", lambda x: x + x[:, :1]),
        ("exp", "reflection", lambda x: 1 + x + x**2 / 2),
        ("add", "commutativity", lambda x, y: x + 0.99 * y),
        ("add", "row_resampling", lambda x, y: x + y + x.mean(0)),
        ("sum", "order_within_rows", lambda x: x[:, :-1].sum(-1)),
        ("sum", "additivity", lambda x: x.abs().sum(-1)),
        ("amax", "shift_equivariance", lambda x: x.amax(-1).clamp(min=3)),
        ("logsumexp", "shift_equivariance", lambda x: x.exp().sum(-1)),
        ("argmax", "index_follows_permutation", lambda x: torch.zeros(len(x), dtype=torch.int64)),
        ("matmul", "contraction_order", lambda a, b: a[:, 1:] @ b[1:]),
        ("matmul", "additivity", lambda a, b: a.relu() @ b),
        ("linear", "additivity", lambda x, w, b: x @ w.T),
        ("matvec", "contraction_order", lambda a, x: a[:, 0] * x[0]),
        ("batched_matmul", "batch_permutation", lambda a, b: a[:1] @ b),
    ],
)
def test_a_wrong_operator_breaks_the_relation(name: str, relation: str, wrong: Callable[..., Any]) -> None:
    task = find(name)
    dims = {dim.name: value for dim, value in zip(task.dims, (5, 24, 17, 9), strict=False)}
    args = drawn(task, dims, "float64")
    for function, right in ((task.reference, True), (wrong, False)):
        assert holds(relation_of(task, relation), function, args, run(function, args)) == right
