"""Kernels that are wrong only where inputs have structure: indices that are not spread evenly, parts of rows that are
masked out by minus infinity, infinities in both arguments.

Each defect is right at ordinary cases, is found in the quick tier, and has an honest twin that passes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Mismatch, compare
from kerneleval.records import Case
from kerneleval.tasks import find

from .conftest import called, drawn, planned

Kernel = Callable[..., Any]


def wrong(
    name: str,
    kernel: Kernel,
    chosen: Callable[[Case], bool],
    dtype: str = "float32",
    tier: str = "quick",
    direction: str = "forward",
) -> set[tuple[str, str]]:
    """(layout, distribution) of the chosen cases of the quick tier, fp32, at which the kernel is wrong. Backward it is
    given the upstream gradients first.
    """
    task = find(name)
    found = set()
    for case in planned(task, tier=tier, directions=(direction,), dtypes=(dtype,)):
        if chosen(case) and (case.shape_category != "edge" or case.distribution in ("nonfinite", "far_mean")):
            args, grads = drawn(task, case)
            expectation = reference.expect(task, case, args, grads)
            if isinstance(compare(called(kernel, [*(grads or ()), *args]), expectation), Mismatch):
                found.add((case.layout, case.distribution))
    return found


def plain(case: Case) -> bool:
    return (case.layout, case.distribution) == ("contiguous", "standard")


def places(ids: Tensor) -> Tensor:
    """How many equal indices stand before each."""
    same = ids[:, None] == ids
    return same.tril(-1).sum(-1)


def moe_slots(x: Tensor, ids: Tensor, weight: Tensor, capacity: int) -> Tensor:
    """Tokens beyond an expert's slots are dropped."""
    return torch.bmm(x[:, None], weight[ids])[:, 0] * (places(ids) < capacity)[:, None]


def moe_roomy(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    return moe_slots(x, ids, weight, len(ids))


def moe_tight(x: Tensor, ids: Tensor, weight: Tensor) -> Tensor:
    return moe_slots(x, ids, weight, 2 * len(ids) // len(weight) + 16)


def add_lists(x: Tensor, index: Tensor, source: Tensor, alpha: float, most: int = 1 << 30) -> Tensor:
    """Rows to be added are listed by their place, at most so many each."""
    kept = places(index) < most
    return x.index_add(0, index[kept], source[kept], alpha=alpha)


def add_short_lists(x: Tensor, index: Tensor, source: Tensor, alpha: float) -> Tensor:
    return add_lists(x, index, source, alpha, 16 + 4 * len(index) // len(x))


def bags_by_runs(index: Tensor, weight: Tensor, longest: int = 1 << 30) -> Tensor:
    """Equal neighbours in a bag are read once and counted, in a counter that holds only so much."""
    rows, length = index.shape
    out = weight.new_zeros(rows, weight.shape[1])
    count = torch.ones(rows, dtype=torch.long)
    for place in range(length):
        ends = torch.ones(rows, dtype=torch.bool)
        if place + 1 < length:
            ends = index[:, place] != index[:, place + 1]
        terms = weight[index[:, place]] * count.clamp(max=longest)[:, None]
        out += torch.where(ends[:, None], terms, 0)
        count = torch.where(ends, 1, count + 1)
    return out


def bags_by_short_runs(index: Tensor, weight: Tensor) -> Tensor:
    return bags_by_runs(index, weight, 3)


@pytest.mark.parametrize(
    ("name", "defective", "honest"),
    [
        ("moe_grouped_gemm", moe_tight, moe_roomy),
        ("index_add", add_short_lists, add_lists),
        ("embedding_bag", bags_by_short_runs, bags_by_runs),
    ],
)
def test_a_kernel_for_evenly_spread_indices_is_found(name: str, defective: Kernel, honest: Kernel) -> None:
    assert not wrong(name, defective, plain), "uniform indices show nothing"
    assert wrong(name, defective, lambda case: not plain(case))
    assert not wrong(name, honest, lambda _: True)


def running(x: Tensor, *, guarded: bool, block: int = 16) -> tuple[Tensor, Tensor]:
    """Maximum and sum of exponentials of each row, block by block; without the guard a block of minus infinity at the
    beginning gives the difference of two infinities.
    """
    top = torch.full_like(x[..., :1], -math.inf)
    total = torch.zeros_like(top)
    for part in x.split(block, -1):
        now = torch.maximum(top, part.amax(-1, keepdim=True))
        base = now.masked_fill(now == -math.inf, 0) if guarded else now
        total = total * torch.exp(top - base) + torch.exp(part - base).sum(-1, keepdim=True)
        top = now
    return (top.masked_fill(top == -math.inf, 0) if guarded else top), total


def softmax(x: Tensor, *, guarded: bool = True, block: int = 16) -> Tensor:
    top, total = running(x, guarded=guarded, block=block)
    return torch.exp(x - top) / total


def log_softmax(x: Tensor, *, guarded: bool = True) -> Tensor:
    top, total = running(x, guarded=guarded)
    return x - top - total.log()


def logsumexp(x: Tensor, *, guarded: bool = True) -> Tensor:
    top, total = running(x, guarded=guarded)
    return (top + total.log())[..., 0]


def softmax_of_columns(x: Tensor, *, guarded: bool = True) -> Tensor:
    return softmax(x.t(), guarded=guarded).t().contiguous()


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, *, guarded: bool = True) -> Tensor:
    return softmax(q @ k.transpose(-1, -2) * scale + bias, guarded=guarded, block=2) @ v


def cross_entropy(logits: Tensor, targets: Tensor, *, guarded: bool = True) -> Tensor:
    return logsumexp(logits, guarded=guarded) - logits.gather(-1, targets[:, None])[:, 0]


def logaddexp(x: Tensor, y: Tensor, *, guarded: bool = True) -> Tensor:
    top = torch.maximum(x, y)
    out = top + torch.log(torch.exp(x - top) + torch.exp(y - top))
    return torch.where(top.isinf(), top, out) if guarded else out


def hypot(x: Tensor, y: Tensor, *, guarded: bool = True) -> Tensor:
    """By the quotient of the two; without the guard infinity over infinity."""
    most, least = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    out = most * torch.sqrt(1 + (least / most.clamp(min=1e-30)).square())
    return torch.where(x.isinf() | y.isinf(), math.inf, out) if guarded else out


def elu(x: Tensor, alpha: float = 1.0, *, guarded: bool = True) -> Tensor:
    """By factors of 0 and 1 instead of a choice."""
    low = alpha * torch.expm1(x.clamp(max=0))
    return torch.where(x > 0, x, low) if guarded else (x > 0) * x + (x <= 0) * low


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("softmax", softmax),
        ("softmax_dim0", softmax_of_columns),
        ("log_softmax", log_softmax),
        ("logsumexp", logsumexp),
        ("biased_attention", attention),
        ("softmax_cross_entropy", cross_entropy),
        ("logaddexp", logaddexp),
        ("hypot", hypot),
        ("elu", elu),
    ],
)
def test_infinities_without_a_guard_are_found(name: str, kernel: Kernel) -> None:
    found = wrong(name, functools.partial(kernel, guarded=False), lambda _: True)
    assert found
    assert {distribution for _, distribution in found} == {"nonfinite"}
    assert not wrong(name, kernel, lambda _: True)


def zero_where_all_is_masked(x: Tensor) -> Tensor:
    return softmax(x).nan_to_num(0.0).masked_fill(x.isnan().any(-1, keepdim=True), math.nan)


def no_logsumexp_of_nothing(x: Tensor) -> Tensor:
    return logsumexp(x).masked_fill((x == -math.inf).all(-1), math.nan)


def test_a_row_of_nothing_but_minus_infinity_is_open_where_the_reference_makes_nan_of_it() -> None:
    assert not wrong("softmax", zero_where_all_is_masked, lambda _: True)
    assert not wrong("softmax", torch.nn.Softmax(-1), lambda _: True)
    assert wrong("softmax", lambda x: softmax(x).nan_to_num(0.0), lambda _: True), "NaN of an input is asked for"
    assert wrong("logsumexp", no_logsumexp_of_nothing, lambda _: True), "it is minus infinity there"


def lcm_of_product(x: Tensor, y: Tensor) -> Tensor:
    """The product is taken first, and has more bits than the type."""
    return (x * y).abs() // torch.gcd(x, y).clamp(min=1)


def eq_in_fp32(x: Tensor, y: Tensor) -> Tensor:
    return x.float() == y.float()


def eq_in_16_bits(x: Tensor, y: Tensor) -> Tensor:
    return x.to(torch.int16) == y.to(torch.int16)


def sort_in_16_bits(x: Tensor) -> Tensor:
    return x.to(torch.int16).sort(-1).values.to(x.dtype)


def sum_in_fp32(x: Tensor) -> Tensor:
    return x.float().sum(-1).long()


def isin_by_bitmap(x: Tensor, among: Tensor) -> Tensor:
    """One bit for each remainder modulo 1024, of which there were never more numbers."""
    seen = torch.zeros(1024, dtype=torch.bool)
    seen[among.long() & 1023] = True
    return seen[x.long() & 1023]


def true_in_16_bits(x: Tensor) -> Tensor:
    return x.to(torch.int16) != 0


def hamming_in_8_bits(x: Tensor, y: Tensor) -> Tensor:
    return (x.to(torch.int8) != y.to(torch.int8)).sum(-1)


def labels_in_8_bits(logits: Tensor, targets: Tensor, ignore_index: int) -> Tensor:
    narrow = targets.to(torch.int8).long()
    loss = torch.logsumexp(logits, -1) - logits.gather(1, narrow.clamp(0, logits.shape[1] - 1)[:, None])[:, 0]
    return torch.where(narrow != ignore_index, loss, 0)


def append_in_16_bits(cache: Tensor, new: Tensor, length: Tensor) -> Tensor:
    place = length.to(torch.int16).long() % cache.shape[1]
    return cache.index_put((torch.arange(len(cache)), place), new)


@pytest.mark.parametrize(
    ("name", "dtype", "kernel"),
    [
        ("lcm", "int32", lcm_of_product),
        ("lcm", "int64", lcm_of_product),
        ("lcm", "int8", lcm_of_product),
        ("eq", "int32", eq_in_fp32),
        ("ne", "int64", lambda x, y: ~eq_in_16_bits(x, y)),
        ("sort_integers", "int32", sort_in_16_bits),
        ("sort_by_key", "float32", lambda keys, x: x.gather(-1, keys.to(torch.int32).argsort(dim=-1, stable=True))),
        ("sum_integers", "int32", sum_in_fp32),
        ("cumsum_integers", "int64", lambda x: x.double().float().cumsum(-1).long()),
        ("sum_integers", "int64", lambda x: x.double().sum(-1).long()),
        ("cumsum_integers", "int64", lambda x: x.double().cumsum(-1).long()),
        ("isin", "int32", isin_by_bitmap),
        ("to_bool", "int64", true_in_16_bits),
        ("logical_not", "int32", lambda x: ~true_in_16_bits(x)),
        ("count_nonzero", "int32", lambda x: true_in_16_bits(x).sum(-1)),
        ("all", "int64", lambda x: true_in_16_bits(x).all(-1)),
        ("any_equal", "int32", lambda x, value: (x.to(torch.int16) == value).any(-1)),
        ("hamming_distance", "int32", hamming_in_8_bits),
        ("segment_mask", "int64", lambda s: eq_in_16_bits(s[:, :, None], s[:, None])),
        ("cross_entropy_ignore_index_none", "float32", labels_in_8_bits),
        ("cache_append_ring", "float32", append_in_16_bits),
    ],
)
def test_a_kernel_with_too_few_bits_for_whole_numbers_is_found(name: str, dtype: str, kernel: Kernel) -> None:
    assert wrong(name, kernel, plain, dtype)
    assert not wrong(name, find(name).reference, lambda _: True, dtype)


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("kl_div_none", lambda x, t: t * (t.log() - x)),
        ("xlogy", lambda x, y: x * y.log()),
        ("entr", lambda x: -x * x.log()),
        ("sqrt", lambda x: x * x.rsqrt()),
        ("rad2deg_sqrt", lambda x: (torch.rad2deg(x), x * x.rsqrt())),
        ("pow", lambda x, y: torch.exp(y * x.log())),
        ("lp_pool1d", None),
        ("log", None),
        ("rsqrt", None),
        ("poisson_nll_loss_full_none", None),
        ("sample_by_race", None),
    ],
)
def test_a_kernel_that_is_wrong_at_zero_is_found(name: str, kernel: Kernel | None) -> None:
    def degenerate(case: Case) -> bool:
        return case.distribution in ("outlier", "zeros")

    if kernel is not None:
        assert not wrong(name, kernel, plain)
        assert wrong(name, kernel, degenerate, tier="standard")
    assert not wrong(name, find(name).reference, degenerate, tier="standard")


def without_one(x: Tensor) -> Tensor:
    """The product of a row without each of its elements."""
    ones = torch.ones_like(x[..., :1])
    left = torch.cat((ones, x[..., :-1].cumprod(-1)), -1)
    return left * torch.cat((x.flip(-1)[..., :-1].cumprod(-1).flip(-1), ones), -1)


def prod_gradient(gradient: Tensor, x: Tensor, *, whole: bool) -> Tensor:
    """The product by the element, and 0 at a zero, or the product of the others."""
    out = without_one(x.double()) * gradient[..., None]
    return out.to(x.dtype) if whole else torch.where(x == 0, 0, out).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_gradient_of_the_only_zero_of_a_product_is_asked_for(dtype: str) -> None:
    for whole in (True, False):
        kernel = functools.partial(prod_gradient, whole=whole)
        found = wrong("prod", kernel, lambda _: True, dtype, direction="backward")
        assert {distribution for _, distribution in found} == (set() if whole else {"outlier"})


def nucleus(logits: Tensor, p: Tensor, *, beyond: bool, wide: bool) -> Tensor:
    shares, order = torch.softmax(logits.double() if wide else logits, -1).sort(dim=-1, descending=True, stable=True)
    before = shares.cumsum(-1) - shares
    kept = before <= p[:, None] if beyond else before < p[:, None]
    return torch.zeros_like(kept).scatter(1, order, kept)


def likely(logits: Tensor, p: Tensor, *, beyond: bool, wide: bool) -> Tensor:
    if wide:
        least = logits.amax(-1, keepdim=True) + p.log()[:, None]
        return logits > least if beyond else logits >= least
    shares = torch.softmax(logits, -1)
    least = p[:, None] * shares.amax(-1, keepdim=True)
    return shares > least if beyond else shares >= least


def over_epsilon(logits: Tensor, epsilon: float, *, beyond: bool, wide: bool) -> Tensor:
    terms = torch.exp((logits.double() if wide else logits) - logits.amax(-1, keepdim=True))
    shares = terms * (1 / terms.sum(-1, keepdim=True))
    return shares > epsilon if beyond else shares >= epsilon


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("name", "kernel"), [("top_p_keep", nucleus), ("min_p_keep", likely), ("epsilon_keep", over_epsilon)]
)
def test_a_share_that_equals_its_bound_is_on_the_right_side(name: str, kernel: Kernel, wide: bool) -> None:
    assert not wrong(name, functools.partial(kernel, beyond=False, wide=wide), lambda _: True)
    assert wrong(name, functools.partial(kernel, beyond=True, wide=wide), plain)


def test_equal_shares_are_not_at_the_bound_but_for_powers_of_two() -> None:
    """They are 1 / N up to rounding: by logarithms they were on the other side for one length in seven."""
    for width in range(3, 40):
        logits, epsilon = (
            torch.zeros(1, width),
            find("epsilon_keep").arguments({"M": 1, "N": width}, "float32")[1].value,
        )
        kept = torch.log_softmax(logits, -1) >= math.log(epsilon)
        assert torch.equal(kept, find("epsilon_keep").reference(logits, epsilon))


def test_no_nan_is_asked_for_where_its_place_says_what_comes_out() -> None:
    def largest(index: Tensor, weight: Tensor) -> Tensor:
        return weight[index].amax(1)

    assert not wrong("embedding_bag_max", largest, lambda _: True)
    assert not wrong("embedding_bag_max", find("embedding_bag_max").reference, lambda _: True)
    assert wrong("embedding_bag_max", lambda index, weight: largest(index, weight).clamp(max=1e30), lambda _: True)


def shifted(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)


def solved(a: Tensor, b: Tensor, *, pivoting: bool = True) -> Tensor:
    """Gauss-Jordan elimination, row by row."""
    found = torch.cat((shifted(a), b), -1)
    count, batch = a.shape[-1], torch.arange(len(a))
    for step in range(count):
        if pivoting:
            pivot = step + found[:, step:, step].abs().argmax(-1)
            chosen = found[batch, pivot].clone()
            found[batch, pivot] = found[:, step].clone()
            found[:, step] = chosen
        row = found[:, step] / found[:, step, step, None]
        found -= found[:, :, step, None] * row[:, None]
        found[:, step] = row
    return found[..., count:]


def inverse_by_series(a: Tensor) -> Tensor:
    eye = torch.eye(a.shape[-1], dtype=a.dtype)
    out = eye.expand_as(a)
    for _ in range(40):
        out = eye - a @ out
    return out


def inverse_by_elimination(a: Tensor) -> Tensor:
    return solved(a, torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a))


def exponential(a: Tensor, *, terms: int, most: float) -> Tensor:
    """A Taylor series of the matrix divided by a power of two until its norm is below ``most``, and squared again."""
    halvings = max(0, math.ceil(math.log2(max(float(a.detach().abs().sum(-2).max()), 1e-9) / most)))
    scaled, out = a / 2**halvings, torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a)
    term = out
    for k in range(1, terms):
        term = term @ scaled / k
        out = out + term
    for _ in range(halvings):
        out = out @ out
    return out


def exponential_by_quotient(a: Tensor) -> Tensor:
    """Scaling and squaring of Pade's quotient of degree 7 (Higham 2005), each matrix by its own power of two."""
    halvings = (a.detach().abs().sum(-2).amax(-1, keepdim=True)[..., None] / 0.95).clamp_min(1).log2().ceil()
    eye, x = torch.eye(a.shape[-1], dtype=a.dtype), a / 2**halvings
    two = x @ x
    four = two @ two
    odd = x @ (four @ two + 1512 * four + 277200 * two + 8648640 * eye)
    even = 56 * four @ two + 25200 * four + 1995840 * two + 17297280 * eye
    out = torch.linalg.solve(even - odd, even + odd)
    for step in range(int(halvings.max())):
        out = torch.where(halvings > step, out @ out, out)
    return out


def pinv_by_normal_equations(a: Tensor) -> Tensor:
    m = shifted(a)
    return torch.linalg.solve(m.mT @ m, m.mT)


def pinv_by_qr(a: Tensor) -> Tensor:
    q, r = torch.linalg.qr(shifted(a))
    return torch.linalg.solve_triangular(r, q.mT, upper=True)


@pytest.mark.parametrize(
    ("name", "defective", "honest"),
    [
        (
            "det",
            lambda a: torch.linalg.slogdet(shifted(a))[1].exp(),
            lambda a: torch.linalg.slogdet(shifted(a))[0] * torch.linalg.slogdet(shifted(a))[1].exp(),
        ),
        ("inv", inverse_by_series, inverse_by_elimination),
        ("solve", functools.partial(solved, pivoting=False), solved),
        (
            "lstsq",
            lambda a, b: b[:, : a.shape[-1]] - a[:, : a.shape[-1]] @ b[:, : a.shape[-1]],
            lambda a, b: pinv_by_normal_equations(a) @ b,
        ),
        ("pinv", lambda a: (shifted(torch.zeros_like(a)) - a).mT, pinv_by_qr),
    ],
)
def test_a_kernel_for_matrices_near_the_identity_is_found(name: str, defective: Kernel, honest: Kernel) -> None:
    assert wrong(name, defective, plain)
    assert not wrong(name, honest, lambda _: True)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_the_least_common_multiple_of_any_two_numbers_is_one_of_the_type(dtype: str) -> None:
    """Also where x is drawn anew and y is not, and where elements have changed places."""
    task = find("lcm")
    case = next(c for c in planned(task, dtypes=(dtype,)) if plain(c) and c.shape_category == "medium")
    (x, _), _ = drawn(task, case, 1)
    (_, y), _ = drawn(task, case, 2)
    most = torch.iinfo(x.dtype).max
    for one, other in zip(x.flatten().tolist(), y.flatten().flip(0).tolist(), strict=True):
        assert math.lcm(one, other) <= most
    assert (x.double() * y.double()).abs().max() > most


@pytest.mark.parametrize("terms", [15, 30, 60])
def test_an_exponential_without_scaling_is_found(terms: int) -> None:
    """The terms of the series are larger than their sum, however many there are."""
    assert wrong("matrix_exp", functools.partial(exponential, terms=terms, most=1e9), plain)


@pytest.mark.parametrize(
    "kernel", [functools.partial(exponential, terms=20, most=1.0), exponential_by_quotient], ids=["series", "quotient"]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scaled_exponentials_pass(kernel: Kernel, dtype: str) -> None:
    def backward(grad: Tensor, a: Tensor) -> Tensor:
        a = a.detach().requires_grad_()
        return torch.autograd.grad(kernel(a), a, grad)[0]

    assert not wrong("matrix_exp", kernel, lambda _: True, dtype)
    assert not wrong("matrix_exp", backward, lambda _: True, dtype, direction="backward")


@pytest.mark.parametrize(
    ("kernel", "right"),
    [
        (lambda x, y: x << (y & 7), ()),
        (lambda x, y: x << (y & 31), ("int32", "int8")),
        (lambda x, y: (x * (torch.ones_like(y, dtype=torch.int32) << y.int())).to(x.dtype), ("int32", "int8")),
        (lambda x, y: x * torch.exp2(y.float()).to(x.dtype), ("int32", "int64", "int8")),
        (lambda x, y: x * (torch.ones_like(x) << y), ("int32", "int64", "int8")),
    ],
)
def test_bits_are_shifted_by_all_places_of_the_type(kernel: Kernel, right: tuple[str, ...]) -> None:
    """Shifts of eight places and more came nowhere; in int8 there are none."""
    for dtype in ("int32", "int64"):
        assert bool(wrong("bitwise_left_shift", kernel, lambda _: True, dtype)) == (dtype not in right), dtype
    assert not wrong("bitwise_left_shift", kernel, lambda _: True, "int8")


@pytest.mark.parametrize(
    ("kernel", "right"), [(lambda x, y: x >> (y & 31), ("int32",)), (lambda x, y: x >> y, ("int32", "int64"))]
)
def test_bits_come_down_from_all_places_of_the_type(kernel: Kernel, right: tuple[str, ...]) -> None:
    for dtype in ("int32", "int64"):
        assert bool(wrong("bitwise_right_shift", kernel, lambda _: True, dtype)) == (dtype not in right), dtype
