"""Sizes at which kernels change their path come in every verdict: none of these was met before."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import pytest

from kerneleval.records import Case, Direction, Protocol
from kerneleval.tasks import find, shapes, special_sizes
from kerneleval.tasks.secret_sizes import secret_cases

CPU = shapes.Budget(memory_bytes=4 << 20, flops=75_000_000)
"""As the device has it for tasks of level 1."""
VERDICTS = 20

Inside = Callable[[Mapping[str, int]], bool]


@functools.cache
def secret(name: str, direction: Direction) -> list[list[Case]]:
    """The secret cases of some verdicts in the first dtype and one direction."""
    task = find(name)
    protocol = Protocol(tier="quick", dtypes=task.dtypes[:1], directions=(direction,))
    planned = shapes.plan(task, protocol, CPU)
    return [list(secret_cases(task, planned, CPU)) for _ in range(VERDICTS)]


def decodes(dims: Mapping[str, int]) -> bool:
    return dims["L"] == 1 and 300 <= dims["S"] <= 4000 and dims["S"] % 64 != 0


def long_decodes(dims: Mapping[str, int]) -> bool:
    return dims["L"] <= 16 and 4096 < dims["S"] <= 8192 and dims["S"] % 64 != 0


def skinny(dims: Mapping[str, int]) -> bool:
    return dims["M"] <= 16 and dims["N"] >= 256 and dims["K"] >= 256 and dims["K"] % 64 != 0


def beside(dims: Mapping[str, int], remainder: int) -> bool:
    return dims["M"] % 64 == dims["N"] % 64 == remainder


REGIONS: list[tuple[str, str, Inside]] = [
    *((name, "attention", decodes) for name in ("attention", "grouped_query_attention", "masked_attention")),
    *(
        (name, "rows", lambda dims: dims["M"] > 4096 and dims["N"] > 1)
        for name in ("gelu", "mean", "std", "layer_norm")
    ),
    ("solve", "items", lambda dims: dims["B"] > 256 and dims["N"] > 32),
    ("add", "flat", lambda dims: dims["M"] * dims["N"] % 4096 == 1 and dims["M"] * dims["N"] > 4096),
    *(
        (name, "rows of a table", lambda dims: dims["V"] > 65536 and dims.get("K", 32) >= 32)
        for name in ("index_select", "gather_rows_masked", "embedding", "embedding_padding_idx", "embedding_bag_max")
    ),
    *(
        (name, "classes", lambda dims: dims["N"] > 65536 and dims["M"] <= 8)
        for name in ("cross_entropy", "cross_entropy_ignore_index_none", "softmax_cross_entropy", "nll_loss_none")
    ),
    *((name, "long keys", long_decodes) for name in ("attention", "grouped_query_attention", "masked_attention")),
    ("matmul_transposed_b", "few rows", skinny),
    ("squared_distances", "few rows", skinny),
    ("moe_grouped_gemm_bias", "few rows", lambda dims: skinny({"M": dims["T"], "K": dims["D"], "N": dims["N"]})),
    ("matmul_transposed_b", "single row", lambda dims: dims["M"] == 1 and dims["K"] >= 300 and dims["K"] % 64 != 0),
]


@pytest.mark.slow(every=7)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize(("name", "region", "inside"), REGIONS, ids=[f"{n}-{region}" for n, region, _ in REGIONS])
def test_every_verdict_has_a_case_there(name: str, region: str, inside: Inside, direction: Direction) -> None:
    for cases in secret(name, direction):
        assert any(inside(case.dims_map) for case in cases), region
        task = find(name)
        for case in cases:
            most = 4 if sum(size >= 256 for _, size in case.dims) >= 2 else 1  # two large dims may take four times
            assert shapes.case_bytes(task, direction, case.dims_map, case.dtype) <= most * CPU.memory_bytes


@pytest.mark.parametrize(
    ("name", "dim", "least"),
    [
        ("packed_attention", "L", 2048),
        ("causal_softmax", "L", 1024),
        ("symv", "N", 1024),
        ("spmv", "N", 1024),
        ("trsv", "N", 1024),
    ],
)
def test_the_only_long_dim_is_beyond_a_block_of_1024(name: str, dim: str, least: int) -> None:
    """In the plan of a CPU it was 622 to 1,384: a block of 1,024 threads, one for each key or column, held all."""
    for cases in secret(name, "forward"):
        (longest,) = (case for case in cases if case.dims_map[dim] > least)
        assert all(longest.dims_map[d.name] == d.least for d in find(name).dims if not d.scaled)


def test_two_dims_lie_beside_multiples_of_64_at_once() -> None:
    """Forward on either side in every verdict; backward on one, in secret."""
    met = [
        {remainder for case in cases for remainder in (1, 63) if beside(case.dims_map, remainder)}
        for cases in secret("matmul_transposed_b", "forward")
    ]
    assert met == [{1, 63}] * VERDICTS
    for cases in secret("matmul_transposed_b", "backward"):
        assert any(beside(case.dims_map, 1) or beside(case.dims_map, 63) for case in cases)


def test_each_dim_of_a_matrix_lies_beside_a_multiple_of_64_on_either_side() -> None:
    """Both lie above in every verdict, forward, and both below in one of four. Where the sides differ, all elements are
    one less than a multiple of 4096. A transpose that lost the last corner where both were above passed.
    """
    task = find("add")
    found = [list(special_sizes._beside_blocks(task, "forward", lambda _: True))[1] for _ in range(200)]
    sides = [(dims["M"] % 64, dims["N"] % 64) for dims in found]
    for pair in ((1, 1), (1, 63), (63, 1), (63, 63)):
        assert sides.count(pair) > 20
    for dims, (one, other) in zip(found, sides, strict=True):
        assert one == other or dims["M"] * dims["N"] % 4096 == 4095


def test_sizes_of_one_dim_lie_beside_4096() -> None:
    task = find("gelu")
    dim = next(dim for dim in task.dims if dim.name == "N")
    assert special_sizes._flat(task, [dim], lambda _: True) == {"N": 4097}


def test_rows_exceed_what_a_grid_dim_has_where_the_budget_is_large() -> None:
    task, large = find("gelu"), 1 << 30
    (dims,) = special_sizes._tall(task, large, lambda _: True, lambda _: True)
    assert dims["M"] > 65_535
    (dims,) = special_sizes._tall(find("matmul"), large, lambda _: True, lambda _: True)
    assert 4096 < dims["M"] <= 8192


def test_columns_of_tall_cases_are_few_and_many() -> None:
    task = find("gelu")
    columns = [
        dims["N"]
        for _ in range(200)
        for dims in special_sizes._tall(task, 4 << 20, lambda _: True, lambda dims: dims["M"] * dims["N"] <= 1 << 17)
    ]
    assert sum(count <= 8 for count in columns) > 20
    assert sum(count > 16 for count in columns) > 40


def test_few_rows_of_quantised_products_are_many_by_many() -> None:
    """K is a multiple of 16: it is none of 64 either."""
    for cases in secret("allspark_w8a16_gemm", "forward"):
        assert any(skinny(case.dims_map) for case in cases)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", ["mean_of_squares", "layer_norm", "matmul_transposed_b"])
def test_many_rows_of_few_columns_come_in_a_further_dtype(name: str, direction: Direction) -> None:
    """In all of them: a kernel for short rows of half types, wrong in all others, passed."""
    task = find(name)
    protocol = Protocol(tier="quick", directions=(direction,))
    planned = shapes.plan(task, protocol, CPU)
    met = set()
    for _ in range(VERDICTS):
        lean = [c for c in secret_cases(task, planned, CPU) if c.dims_map["M"] > 4096 and c.dims_map["N"] <= 16]
        further = {case.dtype for case in lean} - {task.dtypes[0]}
        assert further
        met |= further
    assert met == {case.dtype for case in planned} - {task.dtypes[0]}
