"""Secret cases at relations of sizes, and of contents, that the plan has nowhere."""

from __future__ import annotations

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.records import Protocol
from kerneleval.tasks import find, shapes
from kerneleval.tasks.secret_sizes import secret_cases

from .conftest import case_of, drawn, gradients, planned

BUDGET = shapes.Budget(memory_bytes=4 << 20, flops=300_000_000)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("adaptive_avg_pool1d", [("L", "P")]),
        ("adaptive_max_pool2d", [("H", "P"), ("W", "Q")]),
        ("adaptive_avg_pool3d", [("T", "O"), ("H", "P"), ("W", "Q")]),
        ("interpolate_bicubic", [("H", "P"), ("W", "Q")]),
    ],
)
def test_one_input_is_shorter_than_the_output(name: str, pairs: list[tuple[str, str]]) -> None:
    task = find(name)
    cases = secret_cases(task, shapes.plan(task, Protocol(tier="quick"), BUDGET), BUDGET)
    for direction in ("forward", "backward"):
        dims = [case.dims_map for case in cases if case.direction == direction]
        assert any(all(d[own] < d[out] and d[out] % d[own] for own, out in pairs) for d in dims)


def test_sizes_lie_beside_a_multiple_of_a_block() -> None:
    task = find("rms_norm_gated")
    plan = shapes.plan(task, Protocol(tier="quick"), BUDGET)
    sizes = {case.dims_map["N"] % 64 for _ in range(4) for case in secret_cases(task, plan, BUDGET)}
    assert {1, 63} <= sizes


def test_ids_are_all_the_same_at_the_largest_planned_size() -> None:
    task = find("expert_positions")
    plan = shapes.plan(task, Protocol(tier="quick"), BUDGET)
    largest = max(plan, key=lambda case: task.bytes(case.dims_map, case.dtype) if case.dtype == "int64" else 0)
    assert any(case.distribution == "constant" and case.dims == largest.dims for case in plan)
    odd = next(case for case in plan if case.layout == "transposed")
    (ids, _), _ = drawn(task, odd)
    counts = torch.bincount(ids.reshape(-1).long(), minlength=odd.dims_map["E"]).double()
    assert counts.max() > 3 * max(1.0, counts.mean())


def naive_cdist(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[:, :, None] - y[:, None]).square().sum(-1).sqrt()


def guarded_cdist(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    square = (x[:, :, None] - y[:, None]).square().sum(-1)
    return torch.where(square > 0, square, 1).sqrt() * (square > 0)


def test_a_gradient_at_distance_zero_is_asked_for() -> None:
    task = find("cdist")
    for case in planned(task, tier="quick", directions=("backward",), dtypes=("float32",)):
        if (
            case.distribution != "standard"
            or case.layout == "expanded"
            or case.dims_map["N"] < 4
            or not case.dims_map["B"]
        ):
            continue
        args, grads = drawn(task, case)
        assert grads is not None
        expectation = reference.expect(task, case, args, grads)
        assert isinstance(compare(gradients(naive_cdist, task, case, args, grads), expectation), Mismatch)
        assert not isinstance(compare(gradients(guarded_cdist, task, case, args, grads), expectation), Mismatch)
    forward = case_of("cdist", {"B": 1, "M": 9, "N": 8, "K": 5})
    args, _ = drawn(task, forward)
    assert not (naive_cdist(*args) == 0).any(), "formulas by products are not 0 there"
