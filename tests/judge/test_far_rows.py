"""Rows that lie further from 0 than any number that kernels put for hidden, padded or missing ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.records import Arg, Case
from kerneleval.tasks import all_tasks, find

from .conftest import called, case_of, drawn, planned

FAR = [n for n, task in all_tasks().items() if any(isinstance(a, Arg) and a.extreme == "rows" for a in task.table.args)]
DRAWS = 6
SIZES = {"M": 40, "N": 90, "B": 3, "C": 12, "H": 4, "W": 5, "L": 24, "S": 30, "K": 7, "V": 40}


def large(name: str, dtype: str, layout: str = "contiguous") -> Case:
    dims = {dim.name: SIZES[dim.name] for dim in find(name).dims}
    return case_of(name, dims, dtype=dtype, distribution="large_scale", layout=layout)


def passes(name: str, kernel: Callable[..., Any], dtype: str) -> list[bool]:
    found = []
    for seed in range(DRAWS):
        args, _ = drawn(find(name), large(name, dtype), seed)
        expectation = reference.expect(find(name), large(name, dtype), args)
        outs = called(kernel, [a.float() if isinstance(a, Tensor) and a.dtype.itemsize == 2 else a for a in args])
        kinds = [native.dtype for native in expectation.native]
        found.append(matches([out.to(kind) for out, kind in zip(outs, kinds, strict=True)], expectation))
    return found


def padded(x: Tensor, value: float) -> Tensor:
    return torch.cat([x, x.new_full((*x.shape[:-1], 8), value)], -1)


def largest(x: Tensor, least: float) -> Tensor:
    """The search begins at a number, and at place 0."""
    return torch.cat([x.new_full((*x.shape[:-1], 1), least), x], -1).argmax(-1).sub(1).clamp_min(0)


def log_of_sum(x: Tensor, least: float) -> Tensor:
    most = x.amax(-1, keepdim=True).clamp_min(least)
    return most[..., 0] + (x - most).exp().sum(-1).log()


KERNELS: dict[str, Callable[..., Any]] = {
    "argmax": largest,
    "argmin": lambda x, least: largest(-x, least),
    "kthvalue": lambda x, k, least: padded(x, -least).kthvalue(k, -1).values,
    "topk": lambda x, k, least: padded(x, least).topk(k, -1).values,
    "sort_descending": lambda x, least: padded(x, least).sort(-1, descending=True).values[..., : x.shape[-1]],
    "softmax": lambda x, least: torch.softmax(padded(x, least), -1)[..., : x.shape[-1]],
    "log_softmax": lambda x, least: torch.log_softmax(padded(x, least), -1)[..., : x.shape[-1]],
    "softmin": lambda x, least: torch.softmax(padded(-x, least), -1)[..., : x.shape[-1]],
    "masked_softmax": lambda x, mask, least: torch.softmax(x.masked_fill(~mask, least), -1),
    "logsumexp": log_of_sum,
    "amax_all": lambda x, least: x.amax().clamp_min(least),
    "min_max_normalize": lambda x, eps, least: (
        (x - x.amin(-1, True)) / (x.amax(-1, True).clamp_min(least) - x.amin(-1, True) + eps)
    ),
    "scatter_amax": lambda x, index, source, least: torch.scatter_reduce(
        torch.full_like(x, least), 1, index, source, "amax"
    ).maximum(x.clamp_min(least)),
    "top_n_sigma_keep": lambda x, n, least: (
        x >= x.amax(-1, True).clamp_min(least) - n * x.std(-1, correction=0, keepdim=True)
    ),
    "global_avg_max_pool": lambda x, least: torch.stack((x.mean((2, 3)), x.amax((2, 3)).clamp_min(least)), -1),
    "cross_entropy": lambda x, t, least: (log_of_sum(x, least) - x.gather(-1, t[..., None])[..., 0]).mean(),
}


@pytest.mark.parametrize(("dtype", "least"), [("float32", -1e30), ("float32", -1e6), ("float16", -1e4)])
@pytest.mark.parametrize("name", KERNELS)
def test_a_finite_number_in_place_of_minus_infinity_is_found(name: str, dtype: str, least: float) -> None:
    """Infinity itself, and the end of float32's range, are right in every draw."""
    if (name, dtype) == ("cross_entropy", "float16"):
        pytest.skip("sums of large losses overflow")
    kernel = KERNELS[name]
    if least == -1e30 and any(isinstance(a, Arg) and a.common for a in find(name).table.args):
        pytest.skip("exponentials are taken of nearer rows")
    assert not all(passes(name, lambda *args: kernel(*args, least=least), dtype))
    for right in (-math.inf, torch.finfo(torch.float32).min):
        assert all(passes(name, lambda *args: kernel(*args, least=right), dtype))  # noqa: B023


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", FAR)
def test_right_kernels_pass(name: str) -> None:
    """PyTorch, in half types computed in fp32 and rounded once."""
    task = find(name)
    for dtype in task.dtypes:
        if not dtype.startswith(("float", "bfloat")):
            continue
        assert all(passes(name, task.reference, dtype))


@pytest.mark.parametrize("name", ["softmax", "softmax_middle", "causal_softmax"])
def test_exponents_by_a_fused_multiply_add_pass(name: str) -> None:
    """As compilers make them of ``exp2(x * c - largest)``: the product is not rounded, the largest one is."""
    dim, scale = 1 if name == "softmax_middle" else -1, math.log2(math.e)

    def fused(x: Tensor) -> Tensor:
        hidden = torch.ones(x.shape[-2:], dtype=torch.bool).triu(1) if name == "causal_softmax" else torch.zeros(())
        most = (x * scale).masked_fill(hidden.bool(), -math.inf).amax(dim, keepdim=True)
        weights = torch.exp2((x.double() * scale - most.double()).float()).masked_fill(hidden.bool(), 0.0)
        return weights / weights.sum(dim, keepdim=True)

    for dtype in ("float32", "bfloat16", "float16"):
        assert all(passes(name, fused, dtype)), dtype


def test_exponents_whose_product_is_rounded_pass() -> None:
    """Rows above 0 whose least elements lie near each other: the nearest are equal or far apart."""
    task, scale = find("softmin"), math.log2(math.e)
    case = case_of("softmin", {"M": 400, "N": 1000}, dtype="float32", distribution="large_scale")
    for seed in range(12):
        args, _ = drawn(task, case, seed)
        scores = -args[0] * scale
        weights = torch.exp2(scores - scores.amax(-1, keepdim=True))
        if args[0].abs().amin() >= 1e4:
            outs = weights / weights.sum(-1, keepdim=True)
            assert matches([outs], reference.expect(task, case, args)), seed


def signs(args: Sequence[Any]) -> tuple[bool, bool]:
    """Whether all rows of the first argument are far on one side, and each on one of both."""
    far = args[0].abs().amin() >= 1e4
    row = args[0].gt(0)
    return bool(far & (row.all() | ~row.any())), bool(far & (row == row[..., :1]).all() & row.any() & ~row.all())


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_some_calls_have_far_rows_and_some_have_none(dtype: str) -> None:
    drawn_rows = [signs(drawn(find("softmax"), large("softmax", dtype), seed)[0]) for seed in range(24)]
    assert {(True, False), (False, True), (False, False)} == set(drawn_rows)


# -- Scores of attention -----------------------------------------------------------------------------------------------

KEYED = [n for n, task in all_tasks().items() if any(isinstance(a, Arg) and a.apart for a in task.table.args)]
HIDING = {
    "causal_attention": lambda q, k, rest: torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(),
    "masked_attention": lambda q, k, rest: rest[0][:, None],
    "sliding_window_attention": lambda q, k, rest: torch.ones(q.shape[-2], k.shape[-2]).tril().triu(1 - rest[0]).bool(),
}


def attended(
    name: str, q: Tensor, k: Tensor, v: Tensor, *rest: Any, hidden: float = -math.inf, how: str = ""
) -> Tensor:
    """Attention with a number in place of hidden scores, or with its weights by another formula."""
    scale = next(one for one in reversed(rest) if isinstance(one, float))
    scores = (q * (scale * math.log2(math.e))) @ k.mT if how == "powers of two" else q @ k.mT * scale
    if name in HIDING:
        scores = scores.masked_fill(~HIDING[name](q, k, rest), hidden)
    most = scores.amax(-1, keepdim=True)
    if how == "powers of two":
        weights = torch.exp2(scores - most)
        return weights @ v / weights.sum(-1, keepdim=True)
    if how == "logarithms of sums":
        return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)) @ v
    return torch.softmax(scores, -1) @ v


def right_ones(name: str, **how: Any) -> list[bool]:
    """Whether it is right in each of several draws of ``common`` data."""
    task, found = find(name), []
    dims = {dim.name: {"B": 2, "H": 3, "L": 24, "S": 30, "D": 32}[dim.name] for dim in task.dims}
    case = case_of(name, dims, distribution="common")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        found.append(matches([attended(name, *args, **how)], reference.expect(task, case, args)))
    return found


@pytest.mark.parametrize("name", HIDING)
def test_numbers_for_hidden_scores_are_found_unless_they_are_the_least(name: str) -> None:
    for hidden in (-1e3, -1e4):
        assert not all(right_ones(name, hidden=hidden)), hidden
    for right in (-math.inf, -1e30):
        assert all(right_ones(name, hidden=right)), right


@pytest.mark.parametrize("how", ["powers of two", "logarithms of sums"])
@pytest.mark.parametrize("name", ["attention", *HIDING])
def test_far_scores_are_alike_by_every_formula(name: str, how: str) -> None:
    """One key has all the weight: a logarithm of 32,000 is rounded by 0.001, and so the weights would be."""
    assert all(right_ones(name, how=how))


@pytest.mark.parametrize("name", KEYED)
def test_keys_of_far_queries_differ_and_are_numbers_of_few_bits(name: str) -> None:
    task, orders = find(name), list[list[float]]()
    cases = planned(task, distributions=("common",), directions=("forward",))
    case = next(one for one in cases if one.layout == "contiguous")
    spec = next(a for a in task.arguments(case.dims_map, "float32") if getattr(a, "apart", ()))
    for seed in range(12):
        args, _ = drawn(task, case, seed)
        query, keys = args[0], args[1].movedim(spec.apart, (*range(len(spec.apart)),)).flatten(0, len(spec.apart) - 1)
        keys = keys.flatten(1)
        if not (keys == keys[:, :1]).all():
            assert query.abs().amax() < 100
            continue
        assert query.abs().amin() > 1000
        orders.append(keys[:, 0].tolist())
        assert sorted(orders[-1]) == [4 + place / 128 for place in range(len(keys))]
    assert 1 <= len(orders) <= 11
    assert orders.count(orders[0]) < len(orders)


@pytest.mark.parametrize(("count", "draws"), [(1536, 2), (1537, 0)])
def test_far_keys_are_numbers_of_tf32(count: int, draws: int) -> None:
    """Of more keys some would be one there."""
    case = case_of("attention", {"B": 1, "H": 2, "L": 4, "S": count, "D": 16}, distribution="common")
    found = [args[1][0, 0, :, 0] for args in (drawn(find("attention"), case, seed)[0] for seed in range(12))]
    far = [keys for keys in found if keys.amax() > 8]
    assert len(far) >= draws
    assert not far or draws
    for keys in far:
        assert (keys.view(torch.int32) % (1 << 13) == 0).all()
        assert len(keys.unique()) == count


LOG2E = math.log2(math.e)


class MaximumFrom(TorchFunctionMode):
    """Softmaxes and logarithms of sums of exponentials whose running maximum begins at a number."""

    def __init__(self, least: float, how: str = "") -> None:
        super().__init__()
        self.least, self.how = least, how

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = function.__name__, dict(kwargs or {})
        if name not in ("softmax", "log_softmax", "logsumexp"):
            return function(*args, **options)
        x, dim = args[0], options["dim"] if "dim" in options else args[1]
        most = x.amax(dim, keepdim=True).clamp_min(self.least)
        shares = torch.exp2(x * LOG2E - most * LOG2E) if self.how == "powers of two" else torch.exp(x - most)
        total = shares.sum(dim, keepdim=True)
        if name == "softmax":
            return torch.exp(x - (most + total.log())) if self.how == "logarithms of sums" else shares / total
        found = most + total.log()
        return x - found if name == "log_softmax" else found if options.get("keepdim") else found.squeeze(dim)


@pytest.mark.parametrize(
    "name",
    [
        *("epsilon_keep", "min_p_keep", "top_p_keep", "token_logprobs", "router_z_loss", "moe_load_balancing_loss"),
        *("dual_softmax", "repeat_interleave_log_softmax", "rows_log_softmax_mul", "rows_softmax_log_softmax"),
        *("rows_mul_add_log_softmax", "mul_add_log_softmax_dropout_bmm", "bmm_scale_softmax_last", "mv_log_softmax"),
        *("mv_log_softmax_dropout", "softmax_dropout_linear_add_layer_norm", "scaled_biased_softmax", "sink_softmax"),
        *("sink_attention", "differential_attention", "merge_split_states"),
        *("linear_batch_norm_scale_softmax", "conv_transpose2d_global_avg_pool_bias_add_logsumexp_scale"),
    ],
)
def test_a_maximum_that_begins_at_zero_is_found_wherever_shares_are_taken(name: str) -> None:
    task = find(name)
    distribution = "common" if "common" in task.distributions else "far_mean"
    cases = planned(task, dtypes=("float32",), directions=("forward",), distributions=(distribution,))
    case = max(cases, key=lambda one: math.prod(one.dims_map.values()))
    for seed in range(4):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        for least, right in ((-math.inf, True), (0.0, False)):
            with MaximumFrom(least):
                outs = called(task.reference, args)
            assert matches(outs, expectation) == right


FURTHER = [
    *("min_p_keep", "topk_softmax", "topk_softmax_renormalized", "grouped_topk", "cross_entropy_z_loss"),
    *("cross_entropy_z_loss_none", "sink_softmax", "scaled_biased_softmax", "rows_mul_add_log_softmax"),
    *("mv_log_softmax", "bmm_softmax_last", "mul_add_log_softmax_dropout_bmm", "softmax_dropout_linear_add_layer_norm"),
    *("linear_log_softmax", "linear_batch_norm_scale_softmax", "conv_transpose2d_bias_add_softmax_sigmoid"),
    *("differential_attention", "conv_transpose2d_global_avg_pool_bias_add_logsumexp_scale"),
]


@pytest.mark.parametrize("name", FURTHER)
def test_a_maximum_that_begins_at_ten_thousand_below_zero_is_found(name: str) -> None:
    """Where no row lies at the end of the range, some lie 20,000 below 0; every honest formula is right there."""
    task = find(name)
    distribution = "common" if "common" in task.distributions else "far_mean"
    cases = planned(task, dtypes=("float32",), directions=("forward",), distributions=(distribution,))
    case, found = cases[0], set()
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args).widest
        for how in ("", "powers of two", "logarithms of sums"):
            with MaximumFrom(-math.inf, how):
                assert matches(called(task.reference, args), expectation), (seed, how)
        with MaximumFrom(-1e4):
            found.add(matches(called(task.reference, args), expectation))
    assert found == {True, False}


def by_steps(least: float, k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor) -> Tensor:
    """``rwkv4_wkv`` with a running maximum."""
    most = torch.full_like(k[:, 0], least)
    total, weight, outs = torch.zeros_like(most), torch.zeros_like(most), []
    for step in range(k.shape[1]):
        top = torch.maximum(most, k[:, step] + bonus)
        old, new = (most - top).exp(), (k[:, step] + bonus - top).exp()
        outs.append((old * total + new * v[:, step]) / (old * weight + new))
        top = torch.maximum(most - decay.exp(), k[:, step])
        old, new = (most - decay.exp() - top).exp(), (k[:, step] - top).exp()
        total, weight, most = old * total + new * v[:, step], old * weight + new, top
    return torch.stack(outs, 1)


@pytest.mark.parametrize(("least", "right"), [(-1e4, False), (-1e38, True)])
def test_a_running_maximum_of_keys_far_below_zero(least: float, right: bool) -> None:
    task = find("rwkv4_wkv")
    case = planned(task, dtypes=("float32",), directions=("forward",), distributions=("common",))[0]
    found = []
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        found.append(matches([by_steps(least, *args)], reference.expect(task, case, args).widest))
    assert all(found) == right


@pytest.mark.parametrize("name", ["conv2d_scale_min", "linear_group_norm_min_bias_add"])
def test_a_minimum_that_begins_at_ten_thousand_is_found(name: str) -> None:
    task, found = find(name), set()
    case = planned(task, dtypes=("float32",), directions=("forward",), distributions=("far_mean",))[0]
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        assert matches(called(task.reference, args), expectation)
        with Clamped(1e4):
            found.add(matches(called(task.reference, args), expectation))
    assert found == {True, False}


class Clamped(TorchFunctionMode):
    """Minima that begin at a number."""

    def __init__(self, most: float) -> None:
        super().__init__()
        self.most = most

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        return out.clamp_max(self.most) if function.__name__ == "amin" else out


class Hiding(TorchFunctionMode):
    """Attention with a number in place of hidden scores, by the logarithm of a row's sum if asked."""

    def __init__(self, hidden: float, *, by_logs: bool = False) -> None:
        super().__init__()
        self.hidden, self.by_logs = hidden, by_logs

    def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if function.__name__ != "scaled_dot_product_attention":
            return function(*args, **options)
        q, k, v = args[:3]
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
        scores = (q @ k.mT * options["scale"]).masked_fill(~options["attn_mask"], self.hidden)
        if self.by_logs:
            return (scores - scores.logsumexp(-1, keepdim=True)).exp() @ v
        return torch.softmax(scores, -1) @ v


PAGED = ["paged_attention_v1", "paged_attention_gqa", "paged_attention_sliding_window", "cascade_attention"]


@pytest.mark.parametrize("name", [*PAGED, "paged_prefill_attention", "mla_decode"])
def test_numbers_for_slots_that_are_not_in_use_are_found(name: str) -> None:
    task, found = find(name), set()
    cases = planned(task, dtypes=("float32",), directions=("forward",), distributions=("common",))
    for seed, case in itertools.product(range(DRAWS), cases[:2]):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args).widest
        for by_logs in (False, True):
            with Hiding(-math.inf, by_logs=by_logs):
                assert matches(called(task.reference, args), expectation), (seed, by_logs)
        with Hiding(-1e4):
            found.add(matches(called(task.reference, args), expectation))
    assert False in found


def merged(least: float, first: Tensor, a: Tensor, other: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    most = torch.maximum(a, b).clamp_min(least)
    one, two = (a - most).exp(), (b - most).exp()
    share = (one / (one + two)).T[..., None]
    return first * share + other * (1 - share), most + (one + two).log()


def with_sinks(least: float, query: Tensor, keys: Tensor, values: Tensor, *more: Any) -> Tensor:
    """Over pages, one sequence after the other."""
    table, lengths, sinks, scale = more
    found, group = torch.empty_like(query), query.shape[1] // keys.shape[2]
    for b, length in enumerate(lengths):
        k, v = (x[table[b]].flatten(0, 1)[:length].repeat_interleave(group, 1) for x in (keys, values))
        scores = torch.cat((torch.einsum("hd,shd->hs", query[b], k) * scale, sinks[:, None]), 1)
        shares = (scores - scores.amax(1, keepdim=True).clamp_min(least)).exp()
        found[b] = torch.einsum("hs,shd->hd", (shares / shares.sum(1, keepdim=True))[:, :-1], v)
    return found


@pytest.mark.parametrize(("name", "kernel"), [("merge_attn_states", merged), ("paged_attention_sinks", with_sinks)])
def test_sums_and_sinks_far_below_zero_need_a_maximum_that_begins_below(name: str, kernel: Callable[..., Any]) -> None:
    task = find(name)
    case = planned(task, dtypes=("float32",), directions=("forward",), distributions=("common",))[0]
    for seed in range(4):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        for least, right in ((-math.inf, True), (0.0, False)):
            assert matches(called(partial(kernel, least), args), expectation) == right


def capped(q: Tensor, k: Tensor, v: Tensor, cap: float, scale: float, *, tanh: Callable[[Tensor], Tensor]) -> Tensor:
    return torch.softmax(cap * tanh(q @ k.mT * scale / cap), -1) @ v


@pytest.mark.parametrize(
    ("tanh", "right"),
    [
        (lambda x: (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x)), False),
        (lambda x: (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1), False),
        (lambda x: 2 / (1 + torch.exp(-2 * x)) - 1, True),
        (torch.tanh, True),
    ],
)
def test_a_tanh_of_exponentials_overflows_where_all_scores_are_capped(tanh: Any, right: bool) -> None:
    task, found = find("softcap_attention"), []
    case = case_of(task.name, {"B": 2, "H": 3, "L": 24, "S": 30, "D": 32}, distribution="common")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        found.append(matches([capped(*args, tanh=tanh)], reference.expect(task, case, args)))
    assert all(found) == right
