from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.devices import find as find_device
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout, expanded_dims, gradient_of, laid_out, strided
from kerneleval.records import DISTRIBUTIONS, LAYOUTS, Scalar, TensorSpec, UsageError
from kerneleval.tasks import find

from .conftest import NAMES, case_of, drawn, planned

X = TensorSpec(name="x", shape=(64, 96), dtype="float32", differentiable=True)
W = TensorSpec(name="w", shape=(96,), dtype="float32", role="weight", values="ones_normal")


def one(
    spec: TensorSpec,
    distribution: str = "standard",
    seed: int = 3,
    layout: str = "contiguous",
    direction: str = "forward",
) -> torch.Tensor:
    case = case_of("any", {}, direction=direction, distribution=distribution, layout=layout)
    (value,) = inputs.draw([spec], case, seed, "cpu")
    return value


@pytest.mark.parametrize("name", NAMES)
def test_every_task_is_drawn_in_the_form_that_it_declares(name: str) -> None:
    task = find(name)
    for case in planned(task, directions=("forward",))[::3]:
        specs = task.arguments(case.dims_map, case.dtype)
        for spec, value in zip(specs, inputs.draw(specs, case, 5, "cpu"), strict=True):
            if isinstance(spec, Scalar):
                assert value == spec.value
                continue
            assert (tuple(value.shape), str(value.dtype)) == (spec.shape, f"torch.{spec.dtype}")
            assert value.is_contiguous()
            if case.distribution != "nonfinite":
                assert bool(torch.isfinite(value).all())
            if spec.values == "integers" and value.numel():
                assert spec.low <= int(value.min()) <= int(value.max()) < max(spec.high, spec.low + 1)


def test_a_seed_repeats_and_another_differs_in_every_argument() -> None:
    specs = [X, W, TensorSpec(name="i", shape=(50,), dtype="int64", role="index", values="integers", high=1000), X]
    case = case_of("any", {})
    first, again, other = (inputs.draw(specs, case, seed, "cpu") for seed in (7, 7, 8))
    for a, b, c in zip(first, again, other, strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    assert not torch.equal(first[0], first[3]), "two arguments of one form have streams of their own"


def test_standard_rows_have_scales_and_means_of_their_own() -> None:
    x = one(TensorSpec(name="x", shape=(400, 2000), dtype="float32"))
    std, mean = x.std(1), x.mean(1)
    assert float(std.min()) < 0.7 < 1.8 < float(std.max()) < 2.2
    assert float(mean.min()) < -0.8 < 0.8 < float(mean.max()) < 1.2
    assert abs(float(x.mean())) < 0.1


def test_weights_follow_data_in_scale_and_sign_alone() -> None:
    standard = one(W, "standard")
    for distribution in DISTRIBUTIONS:
        factor = {"outlier": 4.0, "large_scale": 8.0, "small_scale": 0.125}.get(distribution, 1.0)
        assert torch.equal(one(W, distribution).abs(), standard * factor)
        assert (float(one(W, distribution).min()) < 0) == (factor != 1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_distributions(dtype: str) -> None:
    spec = TensorSpec(name="x", shape=(100, 200), dtype=dtype)
    plain = one(spec, "small_scale").float() * 1e3
    assert 0.9 < float(plain.std()) < 1.1
    outliers = one(spec, "outlier").float().abs()
    assert 8 <= int((outliers > 8).sum()) <= 20, "0.1 % of 20000, less those that are small even times 50, or zero"
    rows = one(spec, "outlier").float()
    thin = (rows[:, :4] == 0).all(-1)
    assert 30 < int(thin.sum()) < 70
    assert not rows[thin, -1].any()
    assert 0.08 < float((rows[thin, 4:-1] == 0).float().mean()) < 0.17
    assert float((rows[~thin] == 0).float().mean()) < 0.01
    assert 5 < int((rows[thin].amax(-1) == 0).sum()) < 25
    assert 5 < int((rows[thin].amin(-1) == 0).sum()) < 25
    large = one(spec, "large_scale").float()
    assert float(large.std()) > (14 if dtype == "float16" else 90_000)
    constant = one(spec, "constant")
    assert len(constant.unique()) == 1
    assert 0.5 <= abs(float(constant[0, 0])) <= 2
    assert one(spec, "constant", seed=4)[0, 0] != constant[0, 0]
    assert not one(spec, "zeros").any()
    wild = one(spec, "nonfinite").float()
    assert wild.isnan().any()
    assert (wild == math.inf).any()
    assert (wild == -math.inf).any()
    assert float(wild.isfinite().float().mean()) > 0.999
    assert -8 < float(one(spec, "negative").float().min()) < -3
    assert float(one(spec, "negative").max()) <= 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types_are_rounded_normal_numbers(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.11 has 256 normal numbers in bfloat16 on some processors, of variance 0.986 and none above 3.4."""
    seen, real = [], torch.randn

    def randn(*args: Any, **options: Any) -> torch.Tensor:
        seen.append(options["dtype"])
        return real(*args, **options)

    monkeypatch.setattr(torch, "randn", randn)
    spec = TensorSpec(name="x", shape=(256, 1024), dtype=dtype)
    values = inputs._values(spec, spec.shape, torch.Generator().manual_seed(1))
    assert values.dtype is getattr(torch, dtype) and set(seen) == {torch.float32}
    assert values.float().var().item() == pytest.approx(1.0, abs=0.01)
    assert values.abs().max() > 4 and len(values.unique()) > 1000


def test_an_outlier_comes_even_in_two_elements() -> None:
    spec = TensorSpec(name="x", shape=(2,), dtype="float32")
    assert sum(float(one(spec, "outlier", seed).abs().max()) > 5 for seed in range(40)) > 30


@pytest.mark.parametrize(
    ("values", "low", "high"), [("positive", 0.0, math.inf), ("uniform", 0.0, 1.0), ("variance", 0.49, 1.51)]
)
@pytest.mark.parametrize("distribution", ["standard", "constant", "zeros", "negative"])
def test_values_stay_in_their_domain(values: str, low: float, high: float, distribution: str) -> None:
    spec = TensorSpec(name="x", shape=(50, 60), dtype="float32", values=values)  # type: ignore[arg-type]
    x = one(spec, distribution)
    assert low <= float(x.min()) <= float(x.max()) <= high
    if values != "uniform":
        assert float(x.min()) > 0


def test_integers_and_flags_as_data() -> None:
    spec = TensorSpec(name="x", shape=(30, 30), dtype="int8", values="integers", low=-8, high=8)
    assert one(spec).unique().tolist() == list(range(-8, 8))
    assert not one(spec, "zeros").any()
    assert len(one(spec, "constant").unique()) == 1
    flags = one(TensorSpec(name="b", shape=(30, 30), dtype="bool", values="bool"))
    assert 200 < int(flags.sum()) < 700


@pytest.mark.parametrize("along", [(), (0,)])
def test_few_flags_of_some_rows_are_set_and_of_some_few_are_not(along: tuple[int, ...]) -> None:
    """With half of them set, runs are short: scans that carry a sum over one block alone passed, and so did any and all
    of the first 64 elements.
    """
    spec = TensorSpec(name="b", shape=(256, 256), dtype="bool", values="bool", along=along)
    set_ = one(spec).sum(along[0] if along else 1)
    assert int((set_ < 32).sum()) > 16 and int((set_ > 224).sum()) > 16 and int(((set_ > 64) & (set_ < 192)).sum()) > 32


@pytest.mark.parametrize("name", ["dynamic_scaled_int8_quant", "per_token_group_quant_fp8"])
def test_rows_of_quantisers_are_smaller_than_the_floors_of_scales(name: str) -> None:
    """Kernels that hold the largest number of a row at 1e-4 or 1e-5 passed."""
    spec = find(name).arguments({"M": 256, "N": 64}, "float32")[0]
    assert isinstance(spec, TensorSpec)
    assert int((one(spec, "small_scale").abs().amax(1) < 1e-9).sum()) > 16


def test_no_row_of_a_mask_is_closed() -> None:
    spec = TensorSpec(name="m", shape=(500, 3), dtype="bool", role="mask", values="bool")
    mask = one(spec)
    assert mask.any(dim=1).all()
    spec = TensorSpec(name="m", shape=(500, 9), dtype="bool", role="mask", values="bool")
    wide = one(spec, direction="backward")
    assert int(wide.sum(dim=1).min()) >= 4, "over one key gradients cancel to noise"
    assert 0.5 < float(wide.float().mean()) < 0.9
    alone = one(spec).sum(dim=1) == 1
    assert 20 < int(alone.sum()) < 120, "a row of one key was never given: kernels took it for padding"
    assert one(spec).any(dim=1).all()


def test_some_rows_of_a_mask_are_open_at_one_end_alone() -> None:
    mask = one(TensorSpec(name="m", shape=(4, 200, 64), dtype="bool", role="mask", values="bool"), direction="backward")
    opened = mask.long().sum(-1)
    places = torch.arange(64)
    left = (mask == (places < opened[..., None])).all(-1)
    right = (mask == (places >= 64 - opened[..., None])).all(-1)
    for rows in (left, right):
        assert 0.1 < float(rows.float().mean()) < 0.5
    assert 4 <= int(opened.min()) < 10
    assert not mask[..., :32].any(-1).all(), "a whole block is closed for some"


def test_scale_reaches_every_distribution() -> None:
    spec = TensorSpec(name="x", shape=(60, 60), dtype="float32", scale=0.01)
    for distribution in ("standard", "outlier", "constant"):
        assert 0.002 < float(one(spec, distribution).abs().median()) < 0.04


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (7,), (4, 6), (4, 7), (1, 5), (5, 1), (2, 3, 4, 5), (1, 1, 3), (3, 0)])
def test_layouts_hold_every_element(layout: str, shape: tuple[int, ...]) -> None:
    spec = TensorSpec(name="x", shape=shape, dtype="float32")
    extent, strides, offset = strided(layout, spec)
    assert len(strides) == len(shape)
    if not spec.numel:
        assert extent == 0
        return
    view = torch.arange(extent).as_strided(shape, strides, offset)
    dims = expanded_dims(TensorSpec(name="x", shape=shape, dtype="float32")) if layout == "expanded" else ()
    apart = spec.numel // math.prod(shape[dim] for dim in dims)
    assert len(view.unique()) == apart, "elements share a place only along the expanded dim"
    assert int(view.max()) < extent


def strides_of(layout: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return strided(layout, TensorSpec(name="x", shape=shape, dtype="float32"))[1]


def test_layouts_are_what_they_are_called() -> None:
    assert strided("transposed", X) == (64 * 96, (1, 64), 0)
    extent, strides, _ = strided("sliced", X)
    assert strides[0] % 2 == 1
    assert strides[1] == 1
    assert extent == 64 * strides[0] > X.numel
    assert strided("offset", X) == (64 * 96 + 1, (96, 1), 1)
    assert strided("expanded", X) == (96, (0, 1), 0)
    assert strided("transposed", W)[1] == (2,)
    four = {strides_of("transposed", (2, 3, 4, size)) for size in (5, 6, 7)}
    assert four == {(60, 1, 15, 3), (72, 24, 1, 4), (84, 7, 21, 1)}, "channels last, swapped, heads and positions"
    assert {strides_of("transposed", (2, 3, size)) for size in (4, 5)} == {(4, 8, 1), (15, 1, 3)}
    assert strides_of("transposed", (2, 3, 4, 10)) == (360, 10, 90, 1), "queries, keys and values in one projection"
    with pytest.raises(UsageError, match="did you mean"):
        strided("slice", X)


def test_slices_are_parts_of_larger_tensors() -> None:
    """They began at the start of their rows, and outer strides followed from inner ones: whoever took the second half
    of a split projection for the first one was right."""
    forms = {sum(shape) % 3: sliced_as(shape) for shape in ((4, 6), (4, 7), (4, 8))}
    assert forms == {1: ((9, 1), 0), 2: ((21, 1), 0), 0: ((16, 1), 8)}, "left part, every third row, right half"
    assert sliced_as((2, 3, 4)) == ((24, 8, 1), 4)
    assert sliced_as((2, 3, 5)) == ((27, 9, 1), 0)
    assert sliced_as((2, 3, 6)) == ((36, 6, 1), 6), "more rows than there are, from the second on"
    for shape in ((4, 6), (4, 7), (4, 8), (2, 3, 4), (2, 3, 5), (2, 3, 6), (1, 1, 1, 2), (1, 1, 3)):
        extent, strides, offset = strided("sliced", TensorSpec(name="x", shape=shape, dtype="float32"))
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        assert last < extent


def sliced_as(shape: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    return strided("sliced", TensorSpec(name="x", shape=shape, dtype="float32"))[1:]


def test_expanded_contents_are_equal_along_the_dim() -> None:
    x = one(X, layout="expanded")
    assert torch.equal(x, x[:1].expand_as(x))
    assert not torch.equal(one(X)[0], one(X)[1])
    column = one(TensorSpec(name="x", shape=(1, 8), dtype="float32"), layout="expanded")
    assert len(column.unique()) == 1
    assert torch.equal(one(W, layout="expanded"), one(W)), "weights keep their own contents"


@pytest.mark.parametrize("name", ["normalize", "floor", "hypot", "prod", "top_p_keep"])
def test_what_replaces_parts_of_inputs_leaves_expanded_ones_equal(name: str) -> None:
    task = find(name)
    for distribution in {*task.distributions} - {"nonfinite"}:
        case = case_of(name, {dim.name: 24 for dim in task.dims}, distribution=distribution, layout="expanded")
        specs = task.arguments(case.dims_map, case.dtype)
        for spec, value in zip(specs, drawn(task, case)[0], strict=True):
            if isinstance(spec, TensorSpec) and spec.role == "data":
                assert torch.equal(laid_out(value, "expanded", spec), value)


def test_upstream_gradients_are_repeated_as_sums_and_means_repeat_them() -> None:
    """They were along the last dim alone: whoever took (0, 0) or (0, 1) for something else was right."""
    two = {gradient_strides((4, size)) for size in (5, 6, 7)}
    assert two == {(0, 1), (0, 0), (1, 0)}, "of a mean over rows, of a sum over all, of a mean over columns"
    three = {gradient_strides((2, 4, size)) for size in (6, 7, 8)}
    assert three == {(0, 6, 1), (4, 1, 0)}, "not over all: gradients of normalisations are nothing then"
    for shape in ((4, 5), (4, 6), (4, 7), (2, 4, 6)):
        (gradient,) = inputs.upstream([(shape, "float32")], 1, "cpu", "expanded")
        for dim, stride in enumerate(gradient_strides(shape)):
            assert stride or torch.equal(gradient, gradient.narrow(dim, 0, 1).expand(shape))


def gradient_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return strided("expanded", gradient_of(shape, "float32"))[1]


def test_upstream_gradients_lie_as_the_layout_says() -> None:
    """They were dense in every case, so a backward that ignores their strides passed."""
    dims = {"M": 6, "N": 10}
    for layout in LAYOUTS:
        bound = BoundCase(
            find("silu"), case_of("silu", dims, direction="backward", layout=layout), find_device("cpu"), tf32=False
        )
        drawn = bound.draw(7)
        form = bound.call_layout(drawn)
        assert (form.grads[0].strides == form.args[0].strides) == (layout != "expanded")
        image = WindowBuffer(WindowLayout([form], "backward"), find_device("cpu"))
        image.fill(0, drawn.tensors)
        assert torch.equal(image.tensor(0, 1), drawn.grads[0])
        assert image.tensor(0, 1).is_contiguous() == (layout in ("contiguous", "offset"))


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "contiguous"])
def test_of_several_tensors_a_secret_part_is_contiguous_in_its_turn(layout: str) -> None:
    """One tensor may not be read by the strides of another: all of a case's lay alike, then all that were not
    contiguous."""
    case = case_of("swiglu", {"M": 6, "N": 10}, direction="backward", layout=layout)
    bound = BoundCase(find("swiglu"), case, find_device("cpu"), tf32=False)
    drawn = bound.draw(7)
    forms = bound.other_layouts(drawn)
    as_said = [[slot.strides for slot in bound.call_layout(drawn, variant).slots] for variant in range(3)]
    plain = [{i for i, slot in enumerate(f.slots) if (slot.strides, slot.offset) == ((10, 1), 0)} for f in forms]
    assert plain[0] and plain[1] and plain[0] | plain[1] == {0, 1, 2} and not plain[0] & plain[1]
    for form, part, variant in zip(forms, plain[:2], (1, 2), strict=False):
        assert all(slot.strides == as_said[variant][i] for i, slot in enumerate(form.slots) if i not in part)
    several = layout in ("transposed", "sliced")
    assert len(forms) == (3 if several else 2)
    for form in forms[2:]:  # none is contiguous, and they lie in two ways
        assert all(slot.strides in (as_said[1][i], as_said[2][i]) for i, slot in enumerate(form.slots))
        assert len({slot.strides for slot in form.slots}) == 2


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "name,dims",
    [
        ("gelu", {"M": 6, "N": 10}),
        ("batched_matmul", {"B": 2, "M": 3, "N": 5, "K": 4}),
        ("attention", {"B": 2, "H": 3, "L": 4, "S": 5, "D": 16}),
        ("attention", {"B": 2, "H": 3, "L": 7, "S": 6, "D": 32}),
    ],
)
def test_every_form_of_a_layout_comes(name: str, dims: dict[str, int], layout: str) -> None:
    """The sizes said which: whoever took matrices of a batch to lie one after another, or heads, was right at all sizes
    of a plan."""
    bound = BoundCase(find(name), case_of(name, dims, layout=layout), find_device("cpu"), tf32=False)
    drawn = bound.draw(7)
    calls = [bound.call_layout(drawn), *bound.other_layouts(drawn)]
    for place, slot in enumerate(bound.call_layout(drawn).slots):
        met = {(call.slots[place].strides, call.slots[place].offset) for call in calls}
        spec = TensorSpec(name="x", shape=slot.shape, dtype="float32")
        assert met >= {strided(layout, spec, variant)[1:] for variant in range(12)}


def test_gradients_of_a_batch_norm_stay_within_float16() -> None:
    """With numbers of 1024 PyTorch's own are infinite where the input is strided."""
    dims = {"B": 12, "C": 5, "L": 251}
    case = case_of("batch_norm", dims, "float16", direction="backward", layout="sliced", distribution="large_scale")
    bound = BoundCase(find("batch_norm"), case, find_device("cpu"), tf32=False)
    drawn = bound.draw(7)
    assert bound.native_is_right(drawn, bound.call_layout(drawn))
    forward = case_of("batch_norm", dims, "float16", distribution="large_scale")
    assert BoundCase(find("batch_norm"), forward, find_device("cpu"), tf32=False).draw(7).args[0].abs().max() > 1024


@pytest.mark.parametrize(
    "name",
    [
        "fused_moe",
        "gem_pool",
        "matrix_multiply_symmetric",
        "matrix_multiply_and_row_dot",
        "batch_norm_inference",
        "conv_transpose3d_bias_add_residual_gate_residual",
        "conv_transpose3d_add_times_hardswish",
        "rows_exp_mean_last",
    ],
)
def test_native_outputs_of_large_numbers_stay_within_float16(name: str) -> None:
    """Of tasks that multiply their numbers with one another, or raise them to powers."""
    for case in planned(find(name), dtypes=("float16",), distributions=("large_scale",)):
        drawn = BoundCase(find(name), case, find_device("cpu"), tf32=False).draw(7)
        for output in drawn.expectation.outputs:
            assert float(output.native.isfinite().float().mean()) > 0.999
            assert case.direction == "backward" or float(output.oracle.square().mean()) > 1, "they are large"


def test_where_pytorch_itself_is_wrong_is_known() -> None:
    """Right on tensors that lie alike, as cuDNN's gradients of attention are."""

    def reads_second_by_first(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + (y if x.stride() == y.stride() else y.contiguous().flip(0))

    task = replace(find("add"), reference=reads_second_by_first)
    bound = BoundCase(task, case_of("add", {"M": 6, "N": 10}, layout="sliced"), find_device("cpu"), tf32=False)
    drawn = bound.draw(7)
    assert bound.native_is_right(drawn, bound.call_layout(drawn))
    forms = bound.other_layouts(drawn)
    assert [bound.native_is_right(drawn, form) for form in forms] == [False, False, False]
    assert all(bound.native_is_right(drawn, bound.call_layout(drawn, variant)) for variant in range(3))


def test_upstream_gradients_are_for_floating_outputs() -> None:
    outputs = [((3, 4), "float32"), ((3,), "int64"), ((5,), "bfloat16")]
    grads = inputs.upstream(outputs, 9, "cpu")
    assert [(tuple(g.shape), g.dtype) for g in grads] == [((3, 4), torch.float32), ((5,), torch.bfloat16)]
    (x,) = inputs.draw([TensorSpec(name="x", shape=(3, 4), dtype="float32")], case_of("any", {}), 9, "cpu")
    assert not torch.equal(x, grads[0])


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="outlier"):
        one(X, "outliers")
    with pytest.raises(UsageError, match="float33"):
        one(TensorSpec(name="x", shape=(2,), dtype="float33"))


@pytest.mark.parametrize("numel", [0, 1, 3, 4, 5, 100, 4099])
@pytest.mark.parametrize("part", [1 / 256, 0.5, 1.0])
def test_exchanged_elements_leave_the_ends_and_the_contents(numel: int, part: float) -> None:
    before = torch.arange(numel, dtype=torch.float32)
    after = inputs.exchanged(before, part, inputs.stream(7, "exchange", "cpu"))
    assert torch.equal(before, torch.arange(numel, dtype=torch.float32))
    assert torch.equal(after.sort().values, before)
    moved = torch.nonzero(after != before).flatten().tolist()
    if numel < 4:
        assert not moved
        return
    assert 0 not in moved
    assert numel - 1 not in moved
    assert 2 <= len(moved) <= max(2, round((numel - 2) * part))


def test_nonfinite_inputs_may_be_restricted_to_nan() -> None:
    spec = TensorSpec(name="x", shape=(64, 64), dtype="float32", nonfinite="nan")
    case = case_of("gelu", {"M": 64, "N": 64}, distribution="nonfinite")
    tensor = inputs.draw((spec,), case, 5, "cpu")[0]
    assert 1 <= int(tensor.isnan().sum()) <= 4
    assert not tensor.isinf().any()


def test_indices_are_skewed_sorted_equal_and_at_the_ends() -> None:
    spec = TensorSpec(name="i", shape=(20, 50), dtype="int64", role="index", values="integers", low=-1, high=99)
    uniform = one(spec)
    assert 5 < int(uniform.unique(return_counts=True)[1].float().mean()) < 15
    equal = {int(one(spec, "standard", seed, "expanded").unique()) for seed in range(20)}
    assert {-1, 98} & equal and len(equal) > 5
    skewed = one(spec, "standard", layout="transposed")
    assert int(skewed.unique(return_counts=True)[1].max()) > 100
    assert not torch.equal(skewed.mode().values, one(spec, "standard", 4, "transposed").mode().values)
    for seed in range(4):
        ordered = one(spec, "standard", seed, "sliced").reshape(-1)
        assert torch.equal(ordered, ordered.sort(descending=bool(ordered[0] > ordered[-1])).values)
    assert one(spec, "standard", layout="offset").unique().tolist() == [-1, 98]
    single = TensorSpec(name="seed", shape=(1,), dtype="int64", role="index", values="integers", high=1000)
    assert torch.equal(one(single), one(single, layout="offset")), "a single index has no structure"


def test_lengths_are_multiples_of_256_and_their_neighbours() -> None:
    """A last partition of 512 keys that was full, or had a single key, was never met."""
    spec = TensorSpec(name="n", shape=(4,), dtype="int64", role="index", values="integers", low=4, high=2000)
    lengths = replace(spec, lengths=True)
    for distribution, layout in (("standard", "contiguous"), ("outlier", "transposed")):
        drawn = torch.cat([one(lengths, distribution, seed, layout) for seed in range(200)])
        assert int(drawn.min()) >= 4 and int(drawn.max()) < 2000
        for remainder in (0, 1, 255):
            assert int((drawn % 256 == remainder).sum()) > 60
        assert int(((drawn % 512 == 0) & (drawn > 512)).sum()) > 20
        assert int((drawn % 256 > 1).sum()) > 300
    short = [one(replace(lengths, high=200), seed=seed) for seed in range(3)]
    assert max(int(drawn.max()) for drawn in short) < 200


def test_colliding_terms_are_few_where_a_half_type_adds_them_up() -> None:
    spec = TensorSpec(name="i", shape=(500,), dtype="int64", role="index", values="integers", high=50)
    for summed, direction, few in ((True, "forward", True), (False, "backward", True), (False, "forward", False)):
        case = case_of("any", {}, dtype="float16", direction=direction, layout="expanded")
        (drawn,) = inputs.draw([replace(spec, summed=summed)], case, 3, "cpu")
        assert (len(drawn.unique()) > 40) == few


def test_every_pair_of_infinities_meets_and_none_stands_among_whole_numbers() -> None:
    number = TensorSpec(name="x", shape=(64, 64), dtype="float32")
    whole = replace(number, values="integers", low=0, high=2)
    case = case_of("any", {}, distribution="nonfinite")
    x, y, labels = inputs.draw([number, number, whole], case, 5, "cpu")
    for a in (math.inf, -math.inf):
        assert ((x == a) & (y == a)).any() and ((x == a) & (y == -a)).any() and ((x == a) & y.isnan()).any()
    assert labels.unique().tolist() == [0, 1]


def test_rows_are_masked_in_parts() -> None:
    spec = TensorSpec(name="x", shape=(400, 70), dtype="float32", nonfinite="masked")
    shut = one(spec, "nonfinite") == -math.inf
    counts = shut.sum(-1)
    leading, trailing = shut.int().cumprod(-1).sum(-1), shut.flip(-1).int().cumprod(-1).sum(-1)
    part = (counts > 0) & (counts < 69)
    assert int(((leading == counts) & part).sum()) > 20
    assert int(((trailing == counts) & part).sum()) > 5
    assert int(((leading == 0) & (trailing == 0) & (counts > 1)).sum()) > 5
    assert int((counts == 69).sum()) > 5, "a single place is open"
    assert not shut.all(-1).any()
    assert (one(replace(spec, nonfinite="masked_nan"), "nonfinite") == -math.inf).all(-1).any()
