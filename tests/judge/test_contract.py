from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from kerneleval.judge.checks.code import narrow_words
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.calibration import exactly
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare, figures, keeps_to
from kerneleval.judge.oracle.expectation import Expectation, steps
from kerneleval.records import Candidate
from kerneleval.tasks import find
from kerneleval.tasks.quantised import scale_of

from .conftest import case_of, drawn

SIZES = {"M": 96, "K": 200, "N": 80}
CONTRACT = (0.95, 0.05, 0.1)


def asked(dtype: str, name: str = "matmul_w8a8", seed: int = 1, **dims: int) -> tuple[list[Any], Expectation]:
    task, case = find(name), case_of(name, dims or SIZES, dtype)
    args, _ = drawn(task, case, seed=seed)
    return args, reference.expect(task, case, args)


def by_steps(
    rounded: Callable[[torch.Tensor], torch.Tensor], most: float = 127, computing: torch.dtype = torch.float32
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        a, b = x.to(computing), w.to(computing)
        rows, columns = scale_of(a, -1, most), scale_of(b, -2, most)
        q, p = rounded(a / rows).float(), rounded(b / columns).float()
        return (q @ p * rows.float() * columns.float()).to(x.dtype)

    return run


def by_reciprocals(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a, b = x.float(), w.float()
    rows, columns = 127 / a.abs().amax(-1, keepdim=True), 127 / b.abs().amax(-2, keepdim=True)
    return (torch.round(a * rows) @ torch.round(b * columns) / rows / columns).to(x.dtype)


def noisy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x.float() @ w.float()
    return (y + 0.011 * y.square().mean().sqrt() * torch.randn_like(y)).to(x.dtype)


def of_one_scale(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    a, b = x.float(), w.float()
    one, other = scale_of(a, (0, 1)), scale_of(b, (0, 1))
    return (torch.round(a / one) @ torch.round(b / other) * one * other).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("candidate", [by_steps(torch.round), by_reciprocals])
def test_what_is_quantised_as_the_task_says_passes(candidate: Any, dtype: str) -> None:
    for seed in range(8):
        args, expectation = asked(dtype, seed=seed)
        result = compare([candidate(*args)], expectation)
        assert isinstance(result, Match), result.message
        assert 0.99 < result.evidence["cosine"] < 1
        assert 0.002 < result.evidence["relative_l1"] < CONTRACT[1]
        assert 0.002 < result.evidence["relative_rmse"] < CONTRACT[2]


def test_quantising_in_float16_passes() -> None:
    for seed in range(8):
        args, expectation = asked("float16", seed=seed)
        result = compare([by_steps(torch.round, computing=torch.float16)(*args)], expectation)
        assert isinstance(result, Match), result.message


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("candidate", "diagnosis"),
    [
        (torch.matmul, "not_quantised"),
        (noisy, ""),
        (of_one_scale, ""),
        (by_steps(torch.trunc), ""),
        (by_steps(torch.round, 63), ""),
    ],
)
def test_another_quantisation_or_none_is_wrong(candidate: Any, diagnosis: str, dtype: str) -> None:
    for seed in range(4):
        args, expectation = asked(dtype, seed=seed)
        result = compare([candidate(*args)], expectation)
        assert isinstance(result, Mismatch)
        assert result.reason == "wrong_output"
        assert result.evidence["diagnosis"] == diagnosis or not diagnosis


def test_every_oracle_keeps_to_its_contract_on_standard_data() -> None:
    args, expectation = asked("float32")
    expected = expectation.outputs[0]
    assert expected.contract == CONTRACT
    assert expected.plain is not None
    assert torch.allclose(expected.plain, args[0].double() @ args[1].double())


def test_the_figures_of_the_contract() -> None:
    want = torch.tensor([3.0, 4.0])
    assert figures(want, want) == {"cosine": 1.0, "relative_l1": 0.0, "relative_rmse": 0.0}
    off = figures(torch.tensor([4.0, 3.0]), want)
    assert off["cosine"] == pytest.approx(24 / 25)
    assert off["relative_l1"] == pytest.approx(2 / 7)
    assert off["relative_rmse"] == pytest.approx(math.sqrt(2) / 5)
    assert figures(torch.zeros(2), torch.zeros(2)) == {"cosine": 1.0, "relative_l1": 0.0, "relative_rmse": 0.0}
    assert figures(want, torch.zeros(2))["relative_l1"] == math.inf
    assert figures(torch.zeros(2), want)["cosine"] == 0


def test_a_broken_contract_is_told_with_its_bound() -> None:
    want = torch.tensor([3.0, 4.0])
    assert not keeps_to(CONTRACT, want * 1.01, want)
    assert keeps_to(CONTRACT, -want, want) == "cosine -1, at least 0.95"
    assert keeps_to(CONTRACT, want * 1.07, want) == "relative L1 error 0.07, at most 0.05"
    assert "cosine nan" in keeps_to(CONTRACT, want * math.nan, want)


def test_numbers_of_eight_bits_by_their_places() -> None:
    numbers = torch.tensor([-448.0, -1.0, -0.0, 0.0, 2.0**-9, 1.0, 1.125, 448.0]).to(torch.float8_e4m3fn)
    assert steps(numbers).tolist() == [-126, -56, 0, 0, 1, 56, 57, 126]
    assert steps(torch.tensor([3])).tolist() == [3]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_outputs_of_eight_bits_are_equal_but_for_ties(dtype: str) -> None:
    (x, scale), expectation = asked(dtype, "scaled_fp8_quant", M=64, N=300)
    y = (x.float() * (1 / scale.float())).clamp(-448, 448)
    assert isinstance(compare([y.to(torch.float8_e4m3fn)], expectation), Match)
    for wrong in (y * 1.07, y * 0.98, (y.view(torch.int32) & ~0xFFFFF).view(torch.float32), torch.zeros_like(y)):
        result = compare([wrong.to(torch.float8_e4m3fn)], expectation)
        assert isinstance(result, Mismatch)
        assert result.evidence["rule"] == "equality"
    assert isinstance(compare([y.to(torch.float8_e5m2)], expectation), Mismatch)
    assert isinstance(compare([y], expectation), Mismatch)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_integers_of_eight_bits_are_near_where_they_are_not_equal(dtype: str) -> None:
    """One in fifty of bfloat16 lies half way between two integers: as many might differ, a whole row among them."""
    (x,), expectation = asked(dtype, "dynamic_scaled_int8_quant", M=372, N=348)
    scale = x.float().abs().amax(-1, keepdim=True) / 127
    y = (x.float() * (1 / scale)).round().to(torch.int8)
    assert isinstance(compare([y, scale], expectation), Match)
    wrong = y.clone()
    wrong[-1] = 0
    result = compare([wrong, scale], expectation)
    assert isinstance(result, Mismatch)
    assert result.evidence["rule"] == "equality"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "import torch\ndef run(x):\n    return x.to(torch.int8)\n", ("int8",)),
        ("a.py", "def run(x):\n    return x.round().int()\n", ("int",)),
        ("a.py", "import torch\ndef run(a, b):\n    return torch._int_mm(a, b)\n", ("_int_mm",)),
        ("a.py", "import torch\ndef run(x):\n    return x.to(torch.float8_e4m3fn)\n", ("float8_e4m3fn",)),
        ("a.py", 'SOURCE = "#include <x>\\nint8_t narrowed(float x);"\n', ("int8_t",)),
        ("a.py", "import torch\ndef run(x):\n    return torch.round(x)\n", ()),
        ("a.py", '"""By int8."""\n# int8\ndef run(x):\n    return int(x)\n', ()),
        ("a.cpp", "float f(float x) { return __builtin_rintf(x); } // int8_t", ()),
        ("a.cpp", "signed char f(float x) { return lrintf(x); }", ("char", "lrintf")),
        ("a.cu", "int f(int a, int b) { return __dp4a(a, b, 0); }", ("__dp4a",)),
    ],
)
def test_words_of_narrow_arithmetic(name: str, text: str, found: tuple[str, ...]) -> None:
    language = {"py": "python", "cpp": "cpp", "cu": "cuda"}[name.rpartition(".")[2]]
    assert narrow_words(Candidate(files=((name, text),), language=language, entry="run")) == found


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8])
def test_copies_of_one_number_of_eight_bits_are_one(dtype: torch.dtype) -> None:
    """Each number of a row that comes again 342 times counts once: of few, chance may let another kernel's differ."""
    row = torch.arange(1, 65, dtype=torch.float64)
    oracle_ = row.expand(342, 64).contiguous()

    def off(columns: int) -> torch.Tensor:
        out = oracle_.to(dtype).clone()
        bits = out.view(torch.int8)
        bits[:, :columns] += 1
        return out

    found = Expectation(outputs=(exactly("count", oracle_.to(off(0).dtype).double(), off(1), ()),), args=())
    assert isinstance(compare([off(3)], found), Match)
    assert isinstance(compare([off(9)], found), Mismatch)
    wrong = off(0)
    wrong[-1] = 0
    assert isinstance(compare([wrong], found), Mismatch)
    none = Expectation(outputs=(exactly("count", oracle_.to(off(0).dtype).double(), off(0), ()),), args=())
    assert isinstance(compare([off(1)], none), Match)
    further = off(1)
    further.view(torch.int8)[:, 0] += 4
    for more in (off(2), further, wrong):
        assert isinstance(compare([more], none), Mismatch)
    same = torch.ones(342, 64, dtype=torch.float64)
    alone = Expectation(outputs=(exactly("count", same, same.to(dtype), ()),), args=())
    assert isinstance(compare([same.to(dtype).view(torch.int8).add(1).view(dtype)], alone), Mismatch)


def in_blocks(numbers: torch.Tensor, scales: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A product as ggml has it: whole numbers of each block, its scale and (of four bits) its sum as halves."""
    blocks = x.float().unflatten(-1, (-1, 32))
    step = blocks.abs().amax(-1, keepdim=True) / 127
    whole = torch.round(blocks / step.where(step > 0, 1.0))
    step, sums = step[..., 0].half().float(), blocks.sum(-1).half().float()
    four = numbers.shape[-1] == 16
    weights = torch.cat((numbers & 15, numbers >> 4), -1).float() if four else numbers.view(torch.int8).float()
    found = torch.einsum("nbk,mbk->mnb", weights, whole) * step[:, None] - 8 * four * sums[:, None]
    return (found * scales.float()).sum(-1).to(x.dtype)


def by_experts(x: torch.Tensor, numbers: torch.Tensor, scales: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    rows = [[in_blocks(numbers[e], scales[e], x[m : m + 1])[0] for e in own] for m, own in enumerate(ids.tolist())]
    return torch.stack([torch.stack(row) for row in rows])


@pytest.mark.parametrize("form", ["a8", "a8_q8_0"])
@pytest.mark.parametrize("layout", ["contiguous", "expanded"])
def test_scales_and_sums_of_blocks_may_be_halves(form: str, layout: str) -> None:
    """Of equal numbers each is quantised exactly, and the scale's rounding is all that a kernel is off by."""
    of_experts = "ggml_moe_a8" if form == "a8" else "ggml_moe_a8_vec"
    for name in (f"ggml_mul_mat_{form}", f"ggml_mul_mat_vec_{form}", of_experts):
        moe = "moe" in name
        case = case_of(name, {"M": 1, "N": 40, "B": 3, **({"E": 3, "C": 2} if moe else {})}, layout=layout)
        for seed in range(4):
            args, _ = drawn(find(name), case, seed)
            expectation = reference.expect(find(name), case, args)
            out = by_experts(*args) if moe else in_blocks(*args)
            found = compare([out], expectation)
            assert isinstance(found, Match), found.message
            assert isinstance(compare([1.1 * out], expectation), Mismatch)
