"""Tasks that take any number of dims: their references do, and their cases have them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from kerneleval.judge.windows import inputs
from kerneleval.records import Arg, Case, Folded, Protocol, Task, TensorSpec, UsageError, from_plain, to_plain
from kerneleval.tasks import all_tasks, find, shapes
from kerneleval.tasks.case_keys import read_case
from kerneleval.tasks.secret_sizes import other_ranks

BUDGET = shapes.Budget(memory_bytes=16 << 20, flops=600_000_000)

FOLDED = sorted(name for name, task in all_tasks().items() if task.table.folded)


def small(task: Task, sizes: tuple[int, ...]) -> dict[str, int] | None:
    """Small dims of which the folded one stands for these sizes; None: the task has none."""
    dims: dict[str, int] = {}
    for dim in task.dims:
        most = dim.high // dim.multiple_of * dim.multiple_of
        dims[dim.name] = min(max(dim.least, -(-6 // dim.multiple_of) * dim.multiple_of), most)
    dims[task.table.folded] = Folded(sizes)
    return dims if task.allows(dims) else None


def outputs(task: Task, args: list[Any]) -> tuple[torch.Tensor, ...]:
    found = task.reference(*args)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", FOLDED)
def test_the_reference_gives_the_same_for_any_number_of_dims(name: str) -> None:
    task = all_tasks()[name]
    tried = 0
    for sizes in ((2, 3), (1, 2, 3), (3, 2, 1, 1)[: 5 - len(first(task)) + 1], ()):
        dims = small(task, sizes)
        if dims is None or len(sizes) + len(first(task)) - 1 > 5:
            continue
        tried += 1
        dtype = task.dtypes[0]
        case = Case(task=name, direction="forward", dims=tuple((n, int(v)) for n, v in dims.items()), dtype=dtype)
        flat = inputs.draw(task.arguments({n: int(v) for n, v in dims.items()}, dtype), case, 7, "cpu")
        specs = task.arguments(dims, dtype)
        given = [a.reshape(s.shape) if isinstance(a, torch.Tensor) else a for s, a in zip(specs, flat, strict=True)]
        shapes = [out.shape_at(task.table.sizes(dims)) for out in task.table.outputs]
        for got, want, shape in zip(outputs(task, given), outputs(task, flat), shapes, strict=True):
            assert got.shape == shape, f"{sizes}: {tuple(got.shape)}, not {shape}"
            torch.testing.assert_close(got, want.reshape(shape), rtol=1e-4, atol=1e-5, equal_nan=True)
    assert tried >= 2


def first(task: Task) -> list[str]:
    return next(arg for arg in task.table.args if isinstance(arg, Arg)).shape.split()


def test_secret_cases_have_other_numbers_of_dims() -> None:
    for name, usual in (("gelu", 2), ("sum", 2), ("group_norm", 3), ("batch_norm2d", 4)):
        task = find(name)
        planned = shapes.plan(task, Protocol(), BUDGET)
        met: dict[tuple[str, str], set[int]] = {}
        for _ in range(24):
            for case in other_ranks(task, planned, BUDGET):
                first_tensor = task.arguments(case.dims_map, case.dtype)[0]
                assert isinstance(first_tensor, TensorSpec)
                sizes = case.folds[0][1]
                assert len(set(sizes)) == len(sizes)
                assert dict(case.dims)[task.table.folded] == math.prod(sizes)
                met.setdefault((case.direction, case.dtype), set()).add(len(first_tensor.shape))
        more = set(range(usual + 1, 6))
        assert met["forward", "float32"] == {usual - 1} | more
        assert all(found == more for key, found in met.items() if key != ("forward", "float32")), met


def test_a_case_of_another_number_of_dims_has_a_key_and_is_stored() -> None:
    task = find("layer_norm")
    planned = shapes.plan(task, Protocol(), BUDGET)
    for text, shape in (("2x5x3", (2, 5, 3, 7)), ("none", (7,))):
        key = f"layer_norm/backward/M={text},N=7/float32/transposed/standard"
        case = read_case(key, task, Protocol(), planned, 1 << 30)
        assert case.key == key
        spec = task.arguments(case.dims_map, "float32")[0]
        assert isinstance(spec, TensorSpec)
        assert (spec.shape, spec.along) == (shape, (len(shape) - 1,))
        assert from_plain(Case, json.loads(json.dumps(to_plain(case)))) == case
    for wrong in ("2x0", "x", "2x", "none1", "1x2x3x4x5x6"):
        with pytest.raises(UsageError, match="M must be an integer"):
            read_case(
                f"layer_norm/forward/M={wrong},N=7/float32/contiguous/standard", task, Protocol(), planned, 1 << 30
            )
    with pytest.raises(UsageError, match="must be an integer"):  # a matrix product takes matrices
        matrices = find("matmul")
        few = shapes.plan(matrices, Protocol(), BUDGET)
        read_case("matmul/forward/M=2x3,N=7,K=4/float32/contiguous/standard", matrices, Protocol(), few, 1 << 30)


def test_arguments_of_dims_of_one_product_are_told_apart():
    """Arguments are kept for the dims that were last asked for, and a folded dim is equal to its product."""
    task = find("relu")
    dims: list[dict[str, int]] = [{"M": 6, "N": 4}, {"M": Folded((2, 3)), "N": 4}, {"M": Folded(()), "N": 4}]
    dims += [{"M": Folded((3, 2)), "N": 4}, {"N": 6, "M": 4}]
    wanted = [(6, 4), (2, 3, 4), (4,), (3, 2, 4), (4, 6)]
    for _ in range(2):
        assert [task.arguments(one, "float32")[0].shape for one in dims] == wanted
    assert task.arguments(dims[0], "float16")[0].dtype == "float16"
