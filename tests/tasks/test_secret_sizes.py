"""Sizes that nobody could know: members of the plan's categories, and of the kinds that it leaves out."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from kerneleval.records import Case, Plain, Protocol, Scalar, Task, TensorSpec
from kerneleval.tasks import all_tasks, find, secret_sizes, shapes
from kerneleval.tasks.secret_sizes import secret_cases

from .conftest import SMALL, check_dims


@pytest.mark.parametrize("name", ["gelu", "attention", "group_norm", "conv2d", "argmax"])
def test_secret_shapes_are_members_that_are_not_planned(name: str) -> None:
    task = find(name)
    planned = shapes.plan(task, Protocol(), SMALL)
    drawn = [secret_cases(task, planned, SMALL, large=0) for _ in range(2)]
    assert drawn[0] != drawn[1]
    for cases in drawn:
        counts = Counter((c.direction, c.dtype) for c in cases)
        for (direction, dtype), count in counts.items():
            varied = {"outlier", "large_scale", "small_scale", "nonfinite", "common"} & {
                c.distribution for c in planned if (c.direction, c.dtype) == (direction, dtype)
            }
            if dtype == task.dtypes[0]:
                long = len(varied) if len(varied) < 2 else 1 + ("large_scale" in varied)
                again = len(task.dtypes) - 1
                assert count - 2 - long - again in range(7, 18 + 3 * len(task.dims))
            else:  # and one with thin dims, where the constraint allows it; in one of these dtypes a tall one
                assert count - 2 - bool(varied) in range(1, 3 + len(task.dims))
        assert not {c.dims for c in cases} & {c.dims for c in planned}
        for direction in task.directions:
            first = [c for c in cases if (c.direction, c.dtype) == (direction, task.dtypes[0])]
            assert "contiguous" in {c.layout for c in first} != {"contiguous"}
            own = next(c for c in first if c.shape_category != "edge")
            for place, dtype in enumerate(task.dtypes[1:], 1 - len(task.dtypes)):
                there, *others = [c for c in cases if (c.direction, c.dtype) == (direction, dtype)]
                assert there == replace(own, dtype=dtype, shape_category="edge")
                begun = next(c for c in others if c.shape_category != "edge")
                assert first[place] == replace(begun, dtype=task.dtypes[0], shape_category="edge")
        for case in cases:
            check_dims(task, case, SMALL)
            assert case.distribution in ("standard", "ordered") or (case.shape_category, case.layout) == (
                "rectangular" if case.dtype == task.dtypes[0] else case.shape_category,
                "contiguous",
            )
            assert case.shape_category in ("small", "medium", "non_power_of_two", "rectangular", "edge")


def test_secret_sizes_lie_between_the_ranges_and_near_one_another() -> None:
    """A kernel was wrong from 17 to 31 columns; a workspace was kept by sizes rounded up to 32."""
    task = find("gelu")
    planned = shapes.plan(task, Protocol(), SMALL)
    cases = [c for c in secret_cases(task, planned, SMALL, large=0) if (c.direction, c.dtype) == ("forward", "float32")]
    standard = [c for c in cases if c.distribution == "standard"]
    plain = [c for c in standard if c.layout == "contiguous" or min(c.dims_map.values()) == 1]  # thin ones: any layout
    below, first, (turned_before, *near), (thin, turned) = plain[:2], plain[2], plain[3:6], plain[6:8]
    assert sorted(turned_before.dims_map.values()) == sorted(near[0].dims_map.values())
    assert all(17 <= size <= 31 or 129 <= size <= 255 for size in first.dims_map.values())
    assert (2 if thin.layout == "contiguous" else 1) <= min(thin.dims_map.values()) <= 7 < max(thin.dims_map.values())
    assert sorted(turned.dims_map.values()) == sorted(first.dims_map.values())
    assert len(plain) in (13, 14), "and three or four at which kernels change their path, and two for another dtype"
    assert turned.dims != first.dims
    for case in (*below, *near):
        less = [first.dims_map[dim] - size for dim, size in case.dims_map.items()]
        assert sum(map(bool, less)) == 1
        beside = any(size % 64 in (1, 63) for size in case.dims_map.values())
        assert 1 <= max(less) <= (126 if beside and case in below else 7)
    assert [next(dim for dim in ("M", "N") if c.dims_map[dim] < first.dims_map[dim]) for c in below] in (
        ["M", "N"],
        ["N", "M"],
    )


def test_dims_are_thin_together_that_are_so_in_no_planned_case() -> None:
    """A path for two thin dims of four was met in one check of eighteen."""
    task = find("conv2d")
    planned = shapes.plan(task, Protocol(dtypes=("float32",), directions=("forward",)), SMALL)
    names = [dim.name for dim in task.dims if dim.scaled]
    lowest = {name: min(c.dims_map[name] for c in planned) for name in names}
    met = {tuple(n for n in names if c.dims_map[n] == lowest[n]) for c in planned}
    pairs = set(itertools.combinations(names, 2)) - met
    assert pairs
    found = Counter(part for _ in range(60) for part in secret_sizes._thin_parts(task, planned, 3))
    assert not set(found) & met
    assert min(found[pair] for pair in pairs) > 3
    for part in pairs:
        dims = {dim.name: 40 for dim in task.dims} | {"K": 3, "S": 1, "E": 1}
        thinner = secret_sizes._thinned(task, dims, part, range(1, 7), lambda _: True)
        assert thinner is not None
        assert {name for name in names if thinner[name] <= lowest[name] + 6} == set(part)


def test_kernel_widths_and_strides_are_met_at_every_choice() -> None:
    """No forward conv2d had K = 3 in the default plan."""
    task = find("conv2d")
    planned = shapes.plan(task, Protocol(), SMALL)
    for direction in task.directions:
        cases = [c for c in (*planned, *secret_cases(task, planned, SMALL, large=0)) if c.direction == direction]
        met = {(c.dims_map["K"], c.dims_map["S"]) for c in cases if c.dtype == "float32"}
        assert met == set(itertools.product((1, 2, 3, 4), (1, 2)))


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (name, arg.name)
        for name, task in all_tasks().items()
        for arg in task.table.args
        if isinstance(arg, Plain) and arg.name in ("padding", "other", "output_padding") and arg.formula
        if any(dim.name == "K" for dim in task.dims)
    ],
)
def test_paddings_follow_from_nothing_else(name: str, plain: str) -> None:
    """A kernel that took half of the width for the padding, or the stride less one for that of the output, passed."""
    task = find(name)
    cases = [c.dims_map for c in shapes.plan(task, Protocol(directions=("forward",)), SMALL)]
    usual = {
        "padding": ("0", "K // 2", "(K - 1) // 2", "K - 1"),
        "other": ("E", "0", "J // 2", "(J - 1) // 2", "J - 1"),
        "output_padding": ("0", "S - 1"),
    }

    def value(dims: Mapping[str, int]) -> object:
        return next(a.value for a in task.arguments(dims, "float32") if isinstance(a, Scalar) and a.name == plain)

    for formula in usual[plain]:
        assert any(value(dims) != task.table.sizes(dims).value(formula, plain) for dims in cases), formula


def _values(name: str, plain: str) -> list[tuple[Mapping[str, int], int]]:
    """Dims and values of a plain argument in all planned and secret cases of a verdict, those of ``among`` too."""
    task = find(name)
    planned = shapes.plan(task, Protocol(directions=("forward",)), SMALL)
    found = []
    for case in (*planned, *secret_cases(task, planned, SMALL, large=0)):
        own = next(a for a in task.arguments(case.dims_map, case.dtype) if isinstance(a, Scalar) and a.name == plain)
        found += [(case.dims_map, value) for value in (own.value, *own.among)]
    return found


@pytest.mark.parametrize(
    ("name", "plain", "usual"),
    [
        ("spectrogram", "hop", lambda dims, value: value == dims["W"] // 4),
        ("spectrogram", "hop", lambda dims, value: dims["W"] % value == 0),
        ("triu", "diagonal", lambda dims, value: -3 < value < 3),
        ("tril", "diagonal", lambda dims, value: -3 < value < 3),
        ("diagonal", "offset", lambda dims, value: value >= 0),
        ("diagonal", "offset", lambda dims, value: value <= 0),
        ("circular_pad1d", "left", lambda dims, value: value > 0),
        ("crop", "bottom", lambda dims, value: value > 0),
        ("constant_pad3d", "back", lambda dims, value: value > 0),
        ("roll_2d", "rows", lambda dims, value: value % dims["M"] <= 8 or -value % dims["M"] <= 8),
        ("roll_2d", "columns", lambda dims, value: value % dims["N"] <= 8 or -value % dims["N"] <= 8),
        ("linear_group_norm_hardtanh", "groups", lambda dims, value: value <= 2),
        ("image_group_norm_silu", "groups", lambda dims, value: value <= 4),
        ("histc", "high", lambda dims, value: value == 4 * dims["K"]),
        ("low_rank_svd", "k", lambda dims, value: value == (dims["N"] + 1) // 2),
        ("asgd", "t0", lambda dims, value: value == 2),
        ("radam", "longest", lambda dims, value: value == 19),
    ],
)
def test_plain_arguments_are_not_always_as_usual(name: str, plain: str, usual: Callable[..., bool]) -> None:
    """Kernels that had what was the same in every call for a constant passed."""
    assert not all(usual(dims, value) for dims, value in _values(name, plain))


def test_groups_of_norms_behind_others_leave_enough_elements() -> None:
    """A norm of few elements is ill-conditioned, and one of each channel has a mean of 0 over its positions."""
    for name, task in all_tasks().items():
        for arg in task.table.args:
            if task.category == "fused" and isinstance(arg, Plain) and arg.name == "groups" and arg.among:
                for dims, groups in _values(name, "groups"):
                    assert dims["O"] % groups == 0, name
                    assert groups < 3 or dims["O"] // groups >= (4 if len(task.table.args[0].shape.split()) > 2 else 8)


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("interpolate_linear", "LP"),
        ("interpolate_bilinear", "HP WQ"),
        ("interpolate_bilinear_aligned", "HP WQ"),
        ("interpolate_bicubic", "HP WQ"),
        ("interpolate_area", "HP WQ"),
        ("interpolate_trilinear", "DO HP WQ"),
        ("adaptive_avg_pool2d", "HP WQ"),
    ],
)
def test_outputs_are_two_to_four_times_as_large_as_the_input_and_as_small(name: str, pairs: str) -> None:
    """A kernel with a path of its own for a factor of 2, 3 or 4, with another place of the corners there, passed."""
    task = find(name)
    planned = shapes.plan(task, Protocol(), SMALL)
    for _ in range(4):
        cases = [c.dims_map for c in secret_cases(task, planned, SMALL, large=0) if c.direction == "forward"]
        for up, down in ((1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1)):
            assert any(all(up * dims[o] == down * dims[i] for i, o in pairs.split()) for dims in cases), (up, down)


@pytest.mark.parametrize("name", ["circular_pad2d", "reflection_pad3d", "constant_pad3d", "crop"])
def test_no_border_can_be_taken_for_another(name: str) -> None:
    """Left and top were always equal, as right and bottom were: kernels that mistook one for the other passed."""
    task = find(name)
    planned = shapes.plan(task, Protocol(), SMALL)
    given = [{s.name: s.value for s in task.arguments(c.dims_map, "float32") if isinstance(s, Scalar)} for c in planned]
    sides = [side for side in ("left", "right", "top", "bottom", "front", "back") if side in given[0]]
    for one, other in itertools.combinations(sides, 2):
        assert any(values[one] != values[other] for values in given), (one, other)


def test_rolls_go_either_way_and_around() -> None:
    """Rows moved one way and columns the other, by less than their size: a kernel that forgets negative remainders in
    one dim, or more than one turn, passed.
    """
    dims = {"M": 5, "N": 6, "K": 1, "L": 2}
    shifts = [s for s in find("roll_2d").arguments(dims, "float32") if isinstance(s, Scalar)]
    for plain, size in zip(shifts, (5, 6), strict=True):
        assert {value > 0 for value in plain.among} == {True, False}
        assert any(abs(value) > size for value in plain.among)


def test_every_dilated_window_holds_an_element() -> None:
    """Where a window is empty, PyTorch gives its gradient to some element, and an honest kernel to none."""
    dims = {"B": 1, "C": 1, "H": 9, "W": 2, "K": 2, "S": 2, "E": 1, "D": 3}
    assert not find("max_pool2d").allows(dims)
    assert find("max_pool2d").allows({**dims, "W": 3})


def test_secret_cases_repeat_planned_shapes_under_other_plain_arguments() -> None:
    """Plans kept by shapes alone were right: the stride, padding or number of groups was never another."""
    for name, plain in (("conv2d", "stride"), ("conv2d", "padding"), ("group_norm", "groups")):
        task = find(name)
        planned = list(shapes.plan(task, Protocol(dtypes=("float32",), directions=("forward",)), SMALL))

        def form(case: Case, task: Task = task) -> tuple[object, ...]:
            return tuple(s.shape for s in task.arguments(case.dims_map, case.dtype) if isinstance(s, TensorSpec))

        def value(case: Case, task: Task = task, plain: str = plain) -> object:
            found = [s for s in task.arguments(case.dims_map, case.dtype) if s.name == plain]
            return found[0].value if isinstance(found[0], Scalar) else None

        known: dict[tuple[object, ...], set[object]] = {}
        for case in planned:
            known.setdefault(form(case), set()).add(value(case))
        secret = secret_cases(task, planned, SMALL, large=0)
        assert any(form(c) in known and value(c) not in known[form(c)] for c in secret)


def test_no_secret_shapes_where_sizes_are_not_free_or_one_case_is_judged() -> None:
    task = find("gelu")
    planned = shapes.plan(task, Protocol(), SMALL)
    assert secret_cases(task, planned[:1], SMALL) == ()
    assert secret_cases(replace(task, case_dims=(("given", {"M": 2, "N": 3}),)), planned, SMALL) == ()
    large = [c for c in planned if c.shape_category == "large"]
    assert {c.shape_category for c in secret_cases(task, large, SMALL)} <= {"large", "edge"}


def test_thin_dims_come_in_every_layout() -> None:
    """A product that took a transposed batch of single columns for packed was right at every contiguous one."""
    task = find("matmul_3d")
    planned = shapes.plan(task, Protocol(dtypes=("float32",), directions=("forward",)), SMALL)
    met: Counter[bool] = Counter()
    for _ in range(30):
        for case in secret_cases(task, planned, SMALL, large=0):
            lowest = 2 if case.layout == "contiguous" else 1
            met[lowest == 2] += case.shape_category == "edge" and lowest <= case.dims_map["K"] <= 7 * lowest
    assert min(met.values()) > 5


@pytest.mark.parametrize("name", ["depthwise_conv1d", "conv2d", "max_pool1d", "softmax2d"])
def test_a_last_dim_of_one_element_is_transposed(name: str) -> None:
    """Of a step of decoding its stride is that of the channels: a kernel that took it for 1 passed seven of eight."""
    task = find(name)
    planned = shapes.plan(task, Protocol(tier="quick"), SMALL)
    last = task.table.args[0].shape.split()[-1]  # type: ignore[union-attr]
    met: Counter[str] = Counter()
    for _ in range(5):
        cases = [c for c in secret_cases(task, planned, SMALL, large=0) if c.layout == "transposed"]
        met.update({c.direction for c in cases if c.dims_map[last] == 1})
    assert min(met[direction] for direction in task.directions) >= 4


@pytest.mark.parametrize(
    ("name", "one", "many"), [("grouped_query_attention", "L", "BGR"), ("attention", "L", "BH"), ("rope", "L", "BH")]
)
def test_a_step_of_decoding_comes_with_several_batches_and_heads(name: str, one: str, many: str) -> None:
    """A wrong map of heads for single queries passed three of four verdicts: groups were 1 wherever queries were."""
    task = find(name)
    planned = shapes.plan(task, Protocol(tier="quick"), SMALL)
    for _ in range(5):
        every = [c for c in (*planned, *secret_cases(task, planned, SMALL, large=0)) if c.dtype == "float32"]
        cases = [c for c in every if c.dims_map[one] == 1 and min(c.dims_map[name] for name in many) > 1]
        assert {c.direction for c in cases} == set(task.directions)


def test_sizes_lie_one_above_a_power_of_two() -> None:
    """Rows are padded to the next power of two by many kernels."""
    task = find("gelu")
    found = [secret_sizes._beside_block(task, {"M": 700, "N": 1500}, "N") for _ in range(200)]
    met = Counter(dims["N"] for dims in found if dims)
    assert set(met) == {1025, 1473, 1471}
    assert min(met.values()) > 20


def test_other_ranks_have_long_rows_too() -> None:
    """A norm over four dims whose rows were 512 or longer was never met."""
    task, budget = find("rms_norm"), shapes.Budget(memory_bytes=4 << 20, flops=75_000_000)
    planned = shapes.plan(task, Protocol(dtypes=("float32",)), budget)
    for direction in task.directions:
        found = [
            max(c.dims_map["N"] for c in secret_sizes.other_ranks(task, planned, budget) if c.direction == direction)
            for _ in range(20)
        ]
        assert min(found) >= 256, "medium rows"
        assert max(found) >= 512
