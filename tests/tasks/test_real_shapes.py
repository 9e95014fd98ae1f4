"""Shapes of models: the table holds together, tasks are defined at the shapes that they get, and these are planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from kerneleval.records import CATEGORIES, REAL, Argument, Case, Protocol, Scalar, Task, UsageError, from_plain
from kerneleval.tasks import all_tasks, find, real_shapes, shapes
from kerneleval.tasks.case_keys import read_case
from kerneleval.tasks.models.sources import SOURCES
from kerneleval.tasks.secret_sizes import secret_cases

ROOMY = shapes.Budget(memory_bytes=1 << 40, flops=1 << 60)
NAMES = [name for name, task in all_tasks().items() if real_shapes.real_shapes(task)]
_IMAGES = {"B": 8, "H": 224, "W": 224}
ASKED = Protocol(shapes="real")


# --------------------------------------------------------------------------------------------------------------------
# The table
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", real_shapes.TABLES, ids=lambda table: "_".join(table.dims))
def test_a_table_reads_as_it_is_meant(table: Any) -> None:
    names = [name for name, _ in table.rows]
    assert len(set(names)) == len(names)
    for name, values in table.rows:
        assert len(values) == len(table.dims), name
        assert all(value >= (name != "E") for name, value in zip(table.dims, values, strict=True))
        model, _, part = name.partition(".")
        assert model in SOURCES
        assert part.replace("_", "").isalnum()


def test_every_source_is_public_and_used() -> None:
    used = {name.partition(".")[0] for table in real_shapes.TABLES for name, _ in table.rows}
    assert used == set(SOURCES)
    assert all("https://" in source for source in SOURCES.values())


def test_every_table_is_of_some_task() -> None:
    found = set()
    for task in all_tasks().values():
        dims = {dim.name for dim in task.dims}
        found |= {next((i for i, t in enumerate(real_shapes.TABLES) if set(t.dims) == dims and t.means(task)), -1)}
    assert set(range(len(real_shapes.TABLES))) <= found


def test_hundreds_of_tasks_of_all_categories_have_shapes() -> None:
    assert len(NAMES) >= 400
    assert {find(name).category for name in NAMES} == set(CATEGORIES)


@pytest.mark.parametrize(
    ("name", "shape", "dims"),
    [
        ("rms_norm", "llama3_8b.prefill", {"M": 2048, "N": 4096}),
        ("gelu", "gpt2.mlp", {"M": 1024, "N": 3072}),
        ("softmax_cross_entropy", "llama3_8b.decode", {"M": 32, "N": 128256}),
        ("linear", "llama3_8b.mlp_down", {"M": 2048, "N": 4096, "K": 14336}),
        ("grouped_query_attention", "llama3_70b.decode", {"B": 4, "G": 8, "R": 8, "L": 1, "S": 2048, "D": 128}),
        ("attention", "whisper_large.cross", {"B": 1, "H": 20, "L": 448, "S": 1500, "D": 64}),
        ("conv2d", "resnet50.conv1", {**_IMAGES, "C": 3, "O": 64, "K": 7, "S": 2, "E": 3}),
        ("group_norm", "sd_2_1.down1", {"B": 2, "G": 32, "C": 10, "L": 4096}),
        ("embedding", "gpt2.embedding", {"V": 50257, "D": 768, "B": 1, "L": 1024}),
        ("causal_conv1d", "mamba_2_8b.prefill", {"B": 1, "C": 5120, "L": 2048, "K": 4}),
    ],
)
def test_shapes_that_anybody_can_look_up(name: str, shape: str, dims: dict[str, int]) -> None:
    found = {s.name: s for s in real_shapes.real_shapes(find(name))}
    assert found[shape].dims == dims
    assert list(found[shape].dims) == [dim.name for dim in find(name).dims]


# --------------------------------------------------------------------------------------------------------------------
# Tasks at these shapes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", NAMES)
def test_a_task_is_defined_at_its_shapes(name: str) -> None:
    task = find(name)
    found = real_shapes.real_shapes(task)
    for shape in found:
        assert task.constraint is None or task.constraint(shape.dims)
        for dim in task.dims:
            assert shape.dims[dim.name] >= dim.least
            assert shape.dims[dim.name] % dim.multiple_of == 0
        assert task.flops(shape.dims) > 0
        assert task.bytes(shape.dims, task.dtypes[0]) > 0
    for shape in {found[0].name: found[0], found[-1].name: found[-1]}.values():
        _runs(task, shape.dims)


def _runs(task: Task, dims: dict[str, int]) -> None:
    """The reference takes arguments of these shapes, as far as shapes alone can tell."""
    specs = task.arguments(dims, task.dtypes[0])
    try:
        outputs = _outputs(task, specs, "meta")
    except (RuntimeError, NotImplementedError):  # fake tensors take ten times as long, and tell why
        try:
            with FakeTensorMode():
                outputs = _outputs(task, specs, "cpu")
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            return  # what looks at values cannot be told from shapes
    table = sum(o.numel() * o.element_size() for o in outputs)
    given = sum(0 if isinstance(s, Scalar) else s.nbytes for s in specs)
    assert given + table == task.bytes(dims, task.dtypes[0])


def _outputs(task: Task, specs: Sequence[Argument], device: str) -> tuple[torch.Tensor, ...]:
    args = [
        s.value if isinstance(s, Scalar) else torch.empty(s.shape, dtype=getattr(torch, s.dtype), device=device)
        for s in specs
    ]
    with torch.no_grad():
        outputs = task.reference(*args)
    return outputs if isinstance(outputs, tuple) else (outputs,)


# --------------------------------------------------------------------------------------------------------------------
# Plans
# --------------------------------------------------------------------------------------------------------------------


def test_a_plan_has_every_shape_that_fits_by_its_name() -> None:
    task = find("rms_norm")
    plan = shapes.plan(task, ASKED, ROOMY)
    names = [REAL + shape.name for shape in real_shapes.real_shapes(task)]
    for direction in task.directions:
        for dtype in task.dtypes:
            own = [c for c in plan if (c.direction, c.dtype) == (direction, dtype)]
            plain = [c for c in own if (c.distribution, c.layout) == ("standard", "contiguous")]
            assert [c.shape_category for c in plain] == names
            others = [c for c in own if c not in plain]
            assert {c.layout for c in others} == set(task.layouts)
            assert {c.shape_category for c in others} == {"real:llama3_8b.decode"}, "the smallest"
    timed = [c for c in plan if shapes.is_timed(c, task, ASKED)]
    assert [c.shape_category for c in timed if c.direction == "forward"] == names
    assert shapes.left_out(task, ASKED, ROOMY) == ()


def test_what_does_not_fit_is_left_out_and_told() -> None:
    task = find("linear")
    budget = shapes.Budget(memory_bytes=64 << 20, flops=20_000_000_000)
    plan = shapes.plan(task, ASKED, budget)
    kept = {(c.shape_category.removeprefix(REAL), c.direction, c.dtype) for c in plan}
    lines = shapes.left_out(task, ASKED, budget)
    for shape in real_shapes.real_shapes(task):
        line = next((line for line in lines if line.startswith(f"{shape.name} (M={shape.dims['M']},N=")), "")
        fits = {
            (direction, dtype)
            for direction in task.directions
            for dtype in task.dtypes
            if shapes.within(task, direction, dtype, budget, shape.dims)
        }
        assert {k[1:] for k in kept if k[0] == shape.name} == fits
        assert bool(line) == (len(fits) < 6)
    told = next(line for line in lines if line.startswith("llama3_8b.qkv"))
    assert "(M=2048,N=6144,K=4096) is left out forward in float32, float16, bfloat16 and backward in float32" in told
    assert "1.03e+11 operations; a case may take 64.0 MiB and 2e+10 operations here" in told
    only = Protocol(shapes="real", dtypes=("float16",), directions=("forward",))
    assert all("backward" not in line and "float32" not in line for line in shapes.left_out(task, only, budget))
    assert shapes.left_out(task, Protocol(), budget) == ()


def test_where_nothing_fits_the_first_reason_is_the_error() -> None:
    tiny = shapes.Budget(memory_bytes=1000, flops=1000)
    with pytest.raises(UsageError, match=r"task rms_norm: no shape of a model fits here; gpt2.hidden .* is left out"):
        shapes.plan(find("rms_norm"), ASKED, tiny)


def test_a_task_without_shapes_names_some_that_have_them() -> None:
    with pytest.raises(
        UsageError, match=r"task cholesky has no shapes of real models; \d\d\d tasks have: .*tasks --real"
    ):
        shapes.plan(find("cholesky"), ASKED, ROOMY)


def test_categories_of_sampled_shapes_are_no_real_ones() -> None:
    with pytest.raises(UsageError, match=r"shape categories \(tiny\) are for sampled shapes"):
        shapes.plan(find("gelu"), Protocol(shapes="real", categories=("tiny",)), ROOMY)


def test_distributions_that_are_named_come_at_every_shape() -> None:
    protocol = Protocol(shapes="real", distributions=("zeros", "outlier"), dtypes=("float32",), directions=("forward",))
    plan = shapes.plan(find("gelu"), protocol, ROOMY)
    assert len(plan) == 2 * len(real_shapes.real_shapes(find("gelu")))
    assert {c.distribution for c in plan} == {"zeros", "outlier"}


def test_there_are_no_secret_sizes_beside_real_ones() -> None:
    task = find("gelu")
    plan = shapes.plan(task, ASKED, ROOMY)
    assert secret_cases(task, plan, ROOMY) == ()


def test_a_case_is_found_again_by_its_key_though_sampling_ends_below() -> None:
    task = find("softmax_cross_entropy")
    plan = shapes.plan(task, ASKED, ROOMY)
    case = next(c for c in plan if c.shape_category == "real:llama3_8b.prefill")
    assert case.dims_map["N"] > 8192
    assert read_case(case.key, task, ASKED, plan, 1 << 40) == case
    assert from_plain(Case, {**case.__dict__, "dims": [list(pair) for pair in case.dims]}) == case
