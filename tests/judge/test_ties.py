"""Numbers half way between two that they may be rounded to: which way they go is told, and nothing else is asked."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.windows.inputs import draw
from kerneleval.records import Arg
from kerneleval.tasks import all_tasks, find
from kerneleval.tasks.quantised import FP8, FP8_MOST

from .conftest import case_of, drawn

Rounding = Callable[[torch.Tensor], torch.Tensor]
HALVES = ("float32", "float16", "bfloat16")
DRAWS = 12
SPECIMENS = Path(__file__).parents[1] / "attacks" / "numerics"
WRONG: dict[str, Rounding] = {
    "up": lambda v: torch.floor(v + 0.5),
    "away from zero": lambda v: v.sign() * torch.floor(v.abs() + 0.5),
    "towards zero": torch.trunc,
    "down": torch.floor,
}


def by(name: str, rounding: Rounding, args: list[torch.Tensor], *, reciprocal: bool = False) -> torch.Tensor:
    x, *_, scale = (a.float() for a in (args[0], args[1]))
    steps = rounding(x * (1 / scale) if reciprocal else x / scale)
    if name == "scaled_int8_quant_azp":
        steps = steps + rounding(32 * args[2].float())
    return steps.clamp(-128, 127).to(torch.int8)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["scaled_int8_quant", "scaled_int8_quant_azp"])
def test_ties_go_to_even_numbers(name: str, dtype: str) -> None:
    """By the scale or by its reciprocal; every other way fails in some of a verdict's draws."""
    task, case = find(name), case_of(name, {"M": 40, "N": 300}, dtype=dtype)
    passed = dict.fromkeys(WRONG, 0)
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        assert matches([by(name, torch.round, args)], expectation)
        assert matches([by(name, torch.round, args, reciprocal=True)], expectation)
        for how, rounding in WRONG.items():
            passed[how] += matches([by(name, rounding, args)], expectation)
    assert max(passed.values()) < DRAWS, passed


@pytest.mark.parametrize("name", ["scaled_fp8_quant", "convert_fp8"])
def test_eight_bit_ties_go_to_even_numbers(name: str) -> None:
    """Of which the last of three digits is 0."""
    task, case = find(name), case_of(name, {"M": 40, "N": 300})
    passed = 0
    for seed in range(DRAWS):
        (x, scale), _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, [x, scale])
        exact = (x / scale).clamp(-FP8_MOST, FP8_MOST)
        assert matches([exact.to(FP8)], expectation)
        passed += matches([(exact * (1 + 2.0**-20)).to(FP8)], expectation)
    assert passed < DRAWS


@pytest.mark.parametrize("dtype", HALVES)
def test_products_of_ties(dtype: str) -> None:
    task, case = find("matmul_w8a8_static"), case_of("matmul_w8a8_static", {"M": 40, "K": 64, "N": 48}, dtype=dtype)
    passed = 0
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        x, w, x_scale, w_scale = (a.float() for a in args)
        expectation = reference.expect(task, case, args)

        def product(rounding: Rounding, x: torch.Tensor = x / x_scale, w: torch.Tensor = w / w_scale) -> torch.Tensor:
            return rounding(x).clamp(-127, 127) @ torch.round(w).clamp(-127, 127)

        outputs = [(product(way) * x_scale * w_scale).to(args[0].dtype) for way in (torch.round, WRONG["up"])]
        assert matches(outputs[:1], expectation)
        passed += matches(outputs[1:], expectation)
    assert passed < DRAWS


@pytest.mark.parametrize("dtype", HALVES)
def test_nan_stays_nan_in_eight_bits(dtype: str) -> None:
    """Of either sign; what drops it has the largest number, which lies next to it, or 0."""
    task, case = find("convert_fp8"), case_of("convert_fp8", {"M": 40, "N": 300}, dtype, distribution="nonfinite")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        right = task.reference(*args)
        missing = right.float().isnan()
        assert missing.any()
        for code, found in ((0x7F, True), (0xFF, True), (0x7E, False), (0xFE, False), (0, False)):
            output = right.view(torch.uint8).masked_fill(missing, code).view(FP8)
            assert matches([output], expectation) == found, hex(code)


def test_every_task_with_a_given_scale_has_ties() -> None:
    tables = [find(name).table for name in all_tasks()]
    given = [t for t in tables if any(a.ties for a in t.args if isinstance(a, Arg))]
    assert {t.task for t in given} == {
        "convert_fp8",
        "matmul_w8a8_static",
        "reshape_and_cache_fp8",
        "scaled_fp8_quant",
        "scaled_int8_quant",
        "scaled_int8_quant_azp",
    }
    for table in given:
        sizes = {dim.name: max(dim.low, 16) for dim in find(table.task).dims}
        case = case_of(table.task, sizes, dtype="float16")
        specs = table.arguments(sizes, "float16")
        draws = [draw(specs, case, seed, "cpu") for seed in range(20)]
        place = next(i for i, spec in enumerate(specs) if getattr(spec, "ties", ""))
        step = next(i for i, spec in enumerate(specs) if spec.name == specs[place].ties)  # type: ignore[union-attr]
        steps = [torch.as_tensor(d[step]).float() for d in draws]
        halves = [(d[place].float() / one).frac().abs() == 0.5 for d, one in zip(draws, steps, strict=True)]
        shares = [float(half.double().mean()) for half in halves]
        tied = [share for share in shares if share > 0.15]
        assert 4 < len(tied) < 16, table.task


def test_selection_by_score_and_bias_has_ties() -> None:
    """A bias of its own for each expert leaves none: in ``ordered`` rows it is 0, as models begin with it."""
    name = "topk_sigmoid_renormalized"
    wrong = runpy.run_path(str(SPECIMENS / "same_expert_twice.py"))[name]
    task, case = find(name), case_of(name, {"T": 12, "E": 120, "K": 8}, distribution="ordered")
    for seed in range(DRAWS):
        args, _ = drawn(task, case, seed)
        assert not args[1].any()
        expectation = reference.expect(task, case, args)
        assert not matches(wrong(*args), expectation)
        assert matches(task.reference(*args), expectation)
