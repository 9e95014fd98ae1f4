from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.judge.checks.relations import SEED_BITS, near_seeds
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.judge.oracle.distribution import dependent, implausible, one_cycle
from kerneleval.tasks import all_tasks, find

from .conftest import case_of, drawn

DRAWN = tuple(name for name, task in all_tasks().items() if task.tolerance.law is not None)
SIZES = {"M": 100, "N": 200}


def law_of(name: str) -> Any:
    return find(name).tolerance.law


def uniform(seed: int, count: int = 1 << 14) -> torch.Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("name", DRAWN)
def test_what_the_reference_draws_passes(name: str) -> None:
    task = find(name)
    for seed, dtype in enumerate(task.dtypes * 4):
        case = case_of(name, SIZES, dtype)
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        other, _ = drawn(task, case, seed + 100)
        result = compare([task.reference(*_reseeded(task, case, args, other))], expectation)
        assert isinstance(result, Match), result.message


def _reseeded(task: Any, case: Any, args: list[Any], other: list[Any]) -> list[Any]:
    names = [spec.name for spec in task.arguments(case.dims_map, case.dtype)]
    return [b if name == "seed" else a for name, a, b in zip(names, args, other, strict=True)]


WRONG: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "constant": lambda u: torch.full_like(u, 0.5),
    "sorted": lambda u: u.sort().values,
    "halves": lambda u: torch.cat((u[: len(u) // 2],) * 2),
    "blocks": lambda u: u[:1000].repeat(len(u) // 1000 + 1)[: len(u)],
    "pairs": lambda u: u.repeat_interleave(2)[: len(u)],
    "tail of zeros": lambda u: torch.cat((u[:-128], torch.zeros(128))),
    "tail of halves": lambda u: torch.cat((u[:-128], torch.full((128,), 0.5))),
    "scaled": lambda u: u * 0.9,
    "squared": lambda u: u.square(),
    "mean of two": lambda u: (u + u.roll(1)) / 2,
    "four bits": lambda u: (u * 16).floor() / 16,
    "a hole": lambda u: torch.where((u > 0.3) & (u < 0.33), u - 0.1, u),
    "ramp": lambda u: torch.arange(len(u)) / len(u),
    "pairs but for the sign": lambda u: torch.stack((u, torch.where(u.roll(5) < 0.5, u, 1 - u)), 1).flatten()[: len(u)],
    "random walk": lambda u: (u - 0.5).cumsum(0).remainder(1.0) * 0.5 + u * 0.5,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_draw_is_told(name: str) -> None:
    law = law_of("rand")
    right = uniform(1)
    assert implausible(law, right, []) is None
    found = implausible(law, WRONG[name](right), [])
    assert found is not None
    assert found[1]["rule"] == "distribution"
    assert found[1]["p_value"] < 1e-9


@pytest.mark.parametrize("many", [2, 8])
def test_normal_numbers_of_one_radius_are_told(many: int) -> None:
    """Each has a cosine of its own, so that they are uncorrelated: their squares are not."""
    law, generator = law_of("randn"), torch.Generator().manual_seed(9)
    radius = torch.rand(2**16 // many, 1, generator=generator).neg().log1p().mul(-2).sqrt()
    for shared in (False, True):
        angle = torch.rand(len(radius), many if shared else 1, generator=generator)
        found = implausible(law, (radius * torch.cos(2 * torch.pi * angle)).flatten(), [])
        assert (found is not None and "distances" in found[1]["test"]) if shared else found is None


def test_what_is_never_drawn_shows_in_what_comes_twice() -> None:
    """A multinomial whose running sums are kept in bfloat16 draws one of 3,000 categories in four or five."""
    generator = torch.Generator().manual_seed(7)
    weights = torch.rand(400, 3000, generator=generator) + 0.1
    law, u = law_of("multinomial"), torch.rand(400, 16, generator=generator)
    for half in (False, True):
        sums = weights.cumsum(1).bfloat16().float() if half else weights.cumsum(1)
        chosen = torch.searchsorted(sums, u * sums[:, -1:], right=True).clamp_max(2999)
        found = implausible(law, chosen, [weights, None, 16])
        assert (found is not None and found[1]["test"] == "nearness") if half else found is None


@pytest.mark.parametrize("dtype", find("poisson").dtypes)
def test_rates_are_large_in_some_rows_and_their_counts_exact(dtype: str) -> None:
    task, case = find("poisson"), case_of("poisson", {"M": 200, "N": 100}, dtype)
    most = {"float32": 2000, "float16": 1024, "bfloat16": 128}[dtype]
    for seed in range(10):
        args, _ = drawn(task, case, seed)
        rates, law = args[0], task.tolerance.law
        assert 0 < int((rates.amax(1) > 100).sum()) < 80 and rates.min() > 0 and rates.max() == most
        counts = task.reference(rates, torch.tensor([seed]))
        assert torch.equal(counts.double(), task.reference(rates.double(), torch.tensor([seed])))
        assert implausible(law, counts, args) is None
        assert implausible(law, task.reference(rates.clamp_max(87.3), torch.tensor([seed])), args) is not None


@pytest.mark.slow
@pytest.mark.parametrize("least", [10, 30])
def test_rounded_normal_numbers_are_no_counts(least: float) -> None:
    """They passed: they have the right mean and variance."""
    task, case = find("poisson"), case_of("poisson", {"M": 1000, "N": 1000})
    args, _ = drawn(task, case, 0)
    rates, counts = args[0], task.reference(args[0], torch.tensor([10]))
    normal = torch.randn(rates.shape, generator=torch.Generator().manual_seed(0)) * rates.sqrt() + rates
    for rounded in (normal.round(), (normal + 0.5).floor()):
        mixed = torch.where(rates >= least, rounded.clamp_min(0), counts)
        found = implausible(task.tolerance.law, mixed, args)
        assert found is not None and "likelihood ratio" in found[0]
        mixed[0, 0] = (rates[0, 0] + 40 * rates[0, 0].sqrt()).round()  # which no normal distribution gives
        found = implausible(task.tolerance.law, mixed, args)
        assert found is not None and "likelihood ratio" in found[0]
    parts = [task.reference(share * rates, torch.tensor([20])) for share in (0.25, 0.75)]
    assert implausible(task.tolerance.law, parts[0] + parts[1], args) is None


def test_likelihood_ratios_are_those_of_counts_that_have_a_probability() -> None:
    """Their mean is 1 where counts are right, which bounds how often they are large."""
    for rate in (10.0, 40.0, 350.0):
        counts = torch.arange(int(rate + 30 * rate**0.5), dtype=torch.float64)
        chances = torch.exp(counts * math.log(rate) - rate - torch.lgamma(counts + 1))
        for count, chance in zip(counts[::7], chances[::7], strict=True):
            given = [count[None], [torch.full((1,), rate, dtype=torch.float64)], torch.zeros_like]
            ratio = torch.exp(law_of("poisson")(*given)[2][0])
            step = rate**-0.5
            ends = torch.tensor([(count - 0.5 - rate) * step, (count + 0.5 - rate) * step], dtype=torch.float64)
            low, high = torch.special.ndtr(ends)
            if chance > 1e-12:
                normal = high - (low if count else 0)
                assert torch.allclose(ratio * chance, 0.999 * normal + 0.001 * chance, rtol=1e-4), (rate, count)
    zero = torch.zeros(1, dtype=torch.float64)
    assert implausible(law_of("poisson"), torch.full((64,), 1e6), [torch.full((64,), 10.0)]) is not None
    assert law_of("poisson")(zero, [zero + 1], torch.zeros_like)[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("rate", [0.5, 30.0, 128.0, 700.0, 2000.0])
def test_the_law_of_counts_is_exact_at_large_rates(rate: float) -> None:
    counts = torch.arange(int(rate + 8 * rate**0.5 + 8), dtype=torch.float64)
    chances = torch.exp(counts * math.log(rate) - rate - torch.lgamma(counts + 1))
    upto = chances.cumsum(0)
    for share, wanted in ((torch.zeros_like, upto), (torch.ones_like, upto - chances)):
        _, found, _ = law_of("poisson")(counts, [torch.full_like(counts, rate)], share)
        assert torch.allclose(found, wanted, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["standard", "ordered"])
def test_long_rows_of_which_many_categories_are_never_drawn_are_told(name: str) -> None:
    """Running sums in float16 leave out half of 7,000 to 8,000 categories."""
    task = find("multinomial")
    for number, rows in enumerate((1, 2, 5, 12)):
        case = replace(case_of("multinomial", {"M": rows, "N": 6800 + 400 * number}), distribution=name)
        args, _ = drawn(task, case, number)
        sums = (args[0].double() / args[0].double().sum(1, keepdim=True)).cumsum(1)
        generator = torch.Generator().manual_seed(number)
        u = torch.rand(rows, args[2], generator=generator, dtype=torch.float64)
        for half in (False, True):
            edges = sums.half().double() if half else sums
            chosen = torch.searchsorted(edges, u, right=True).clamp_max(sums.shape[1] - 1)
            found = implausible(task.tolerance.law, chosen, args)
            assert (found is not None and found[1]["test"] == "nearness") if half else found is None


def test_numbers_of_few_values_are_too_near_one_another() -> None:
    law, u = law_of("rand"), uniform(8)
    assert implausible(law, u, []) is None
    found = implausible(law, (u * 2048).floor() / 2048, [])
    assert found is not None and found[1]["test"] == "nearness"


@pytest.mark.parametrize("apart", [2.0**-7, 2.0**-12, 2.0**-20])
def test_numbers_between_two_that_are_near_one_another_may_be_few(apart: float) -> None:
    """Of float32 there are 8 steps of 2^-23 from 1.5 to 1.5 + 2^-20."""
    low = torch.tensor([1.5])
    for seed in range(20):
        unit = uniform(seed, 8192)[None]
        assert (
            implausible(law_of("uniform"), low + apart * unit, [low.double(), low.double() + apart, None, 8192]) is None
        )


def test_large_blocks_that_come_again_are_told() -> None:
    law, block = law_of("rand"), uniform(6, 1 << 20)
    assert implausible(law, block, []) is None
    assert implausible(law, torch.cat((block, block)), []) is not None


def test_numbers_that_cannot_be_drawn_are_told_one_by_one() -> None:
    x = uniform(2, 100).view(10, 10)
    x[3, 4] = 1.0
    found = implausible(law_of("rand"), x, [])
    assert found is not None
    assert "element [3, 4] is 1, which cannot be drawn; 1 of 100 elements cannot" in found[0]
    x[3, 4] = float("nan")
    assert implausible(law_of("rand"), x, []) is not None


def test_few_numbers_tell_nothing_but_whether_they_are_possible() -> None:
    assert implausible(law_of("rand"), torch.zeros(15), []) is None
    assert implausible(law_of("rand"), torch.full((15,), 2.0), []) is not None


@pytest.mark.slow
def test_right_draws_fail_never_in_a_thousand() -> None:
    law = law_of("randn")
    generator = torch.Generator().manual_seed(5)
    for count in (16, 65, 1025, 5000):
        for _ in range(250):
            assert implausible(law, torch.randn(count, generator=generator), []) is None


def test_streams_that_overlap_depend_on_each_other() -> None:
    law, long = law_of("rand"), uniform(3, 20_000)
    first, other = long[:10_000], uniform(4, 10_000)
    assert not dependent(law, (first, []), (other, []))
    for second in (first, long[1:10_001], long[5000:15_000], (first + other).remainder(1.0) * 0.5 + first * 0.5):
        assert dependent(law, (first, []), (second, []))
    assert dependent(law, (1 - first, []), (first, []))
    assert dependent(law, (torch.where(other < 0.5, first, 1 - first), []), (first, []))


def test_permutations_of_a_single_cycle_are_told() -> None:
    generator = torch.Generator().manual_seed(10)

    def single(order: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(order).index_copy_(0, order, order.roll(-1))

    for n in (16, 200, 5000, 50_000):
        right = [torch.randperm(n, generator=generator) for _ in range(4)]
        assert not one_cycle(right)
        assert bool(one_cycle([single(order) for order in right])) == (n > 178), "four such of 178: 1e-9"
        assert implausible(law_of("randperm"), single(right[0]), []) is None, "one alone tells nothing"
    order = torch.randperm(5000, generator=generator).view(2, -1)
    pairs = torch.empty(5000, dtype=torch.int64)
    pairs[order[0]], pairs[order[1]] = order[1], order[0]
    assert one_cycle([pairs, pairs]), "too many of them"
    assert not one_cycle([uniform(1), uniform(2)]), "no permutations"


def test_seeds_differ_in_the_lowest_bit_the_highest_one_and_a_secret_one() -> None:
    for _ in range(100):
        lowest, highest, secret = (seed ^ 123_456_789 for seed in near_seeds(123_456_789))
        assert (lowest, highest) == (1, 2**30)
        assert secret.bit_count() == 1 and secret < 2**SEED_BITS


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_number_can_be_kept_by_a_dropout(dtype: torch.dtype) -> None:
    """Denormal ones too: one in 842,736 of float16 was told as none that can be drawn."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(dtype)
    every = every[every.isfinite() & (every.abs() < 1e4)]
    wrong, _ = law_of("dropout")(every / 0.8, [every.double(), None, 0.2], lambda like: torch.full(like.shape, 0.5))
    assert not wrong.any()
    wrong, _ = law_of("dropout")(every * 1.3, [every.double(), None, 0.2], lambda like: torch.full(like.shape, 0.5))
    assert wrong[every.abs() > 1e-4].all()


def test_a_wrong_draw_is_a_wrong_output() -> None:
    task, case = find("dropout"), case_of("dropout", SIZES)
    args, _ = drawn(task, case)
    expectation = reference.expect(task, case, args)
    assert expectation.timed.worst == float("inf")
    result = compare([args[0].clone()], expectation)
    assert isinstance(result, Mismatch)
    assert result.reason == "wrong_output"
