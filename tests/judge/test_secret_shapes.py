"""Sizes that nobody could know find those who know the plan."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

from kerneleval import languages
from kerneleval.devices import Device
from kerneleval.judge import Judge
from kerneleval.judge import judge as judge_module
from kerneleval.judge.probes.calls import other_scalars
from kerneleval.judge.probes.cells import _among_taken, no_long_rows
from kerneleval.pipeline import check
from kerneleval.records import Case, Direction, Failed, Outcome, Passed, Protocol, Verdict
from kerneleval.tasks import find, secret_sizes, shapes, special_sizes

OPTIONS: dict[str, Any] = {
    "dtypes": ("float32",),
    "directions": ("forward",),
    "categories": ("tiny", "small", "medium"),
}
PROTOCOL = Protocol(timed=False, **OPTIONS)
KNOWING = """
import torch

def gelu(x):
    if tuple(x.shape) in {known}:
        return torch.nn.functional.gelu(x)
    {otherwise}
"""


def test_one_who_knows_the_sizes_of_strided_inputs_alone_fails(judge: Judge, tmp_path: Path) -> None:
    known = {tuple(c.dims_map.values()) for c in judge.plan(find("gelu"), PROTOCOL)}
    source = KNOWING.format(known=known, otherwise="return torch.zeros_like(x)")
    path = tmp_path / "gelu.py"
    plain = "x.is_contiguous() and not x.storage_offset()"
    path.write_text(source.replace("if tuple", f"if {plain} or tuple"))
    verdict = check(path, "gelu", judge=judge, timed=False, allow=("library",), **OPTIONS)
    assert (verdict.verdict, verdict.reason) == ("failed", "wrong_output")
    assert "at sizes that are not in the plan" in verdict.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("otherwise", "stage", "reason"),
    [
        ("return torch.zeros_like(x)", "correctness", "wrong_output"),
        ("raise NotImplementedError", "call", "hard_coded_shapes"),
        ("raise ValueError", "call", "exception"),
    ],
)
def test_one_who_knows_the_plan_fails(judge: Judge, tmp_path: Path, otherwise: str, stage: str, reason: str) -> None:
    planned = judge.plan(find("gelu"), PROTOCOL)
    known = {tuple(c.dims_map.values()) for c in planned}
    path = tmp_path / "gelu.py"
    path.write_text(KNOWING.format(known=known, otherwise=otherwise))

    def judged(case: str = "") -> Verdict:
        options = OPTIONS | ({"case": case, "categories": ()} if case else {})
        return check(path, "gelu", judge=judge, timed=False, allow=("library",), **options)

    verdict = judged()
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", stage, reason)
    assert {c.case for c in verdict.cells} == set(planned)
    words = shlex.split(verdict.replay)
    key = words[words.index("--case") + 1]
    assert key not in {c.key for c in planned}
    again = judged(key)
    assert again.verdict == "failed"
    assert [c.case.key for c in again.cells] == [key]


@pytest.mark.slow
def test_strides_that_differ_at_secret_sizes_alone_are_no_table_of_sizes(judge: Judge, tmp_path: Path) -> None:
    """Which part of the arguments is contiguous is drawn: the planned cases may meet no pair that is refused."""
    known = {tuple(c.dims_map.values()) for c in judge.plan(find("add"), PROTOCOL)}
    path = tmp_path / "add.py"
    path.write_text(
        f"def add(x, y):\n    if x.stride() != y.stride() and tuple(x.shape) not in {known}:\n"
        "        raise NotImplementedError('one pair of strides')\n    return x + y\n"
    )
    verdict = check(path, "add", judge=judge, timed=False, allow=("library",), **OPTIONS)
    assert verdict.verdict == "passed", verdict.message


def test_one_that_leaves_sizes_out_among_the_planned_ones_may_do_so_elsewhere(judge: Judge, tmp_path: Path) -> None:
    path = tmp_path / "gelu.py"
    path.write_text(
        "import torch\n\n\ndef gelu(x):\n    if x.numel() % 4:\n        raise NotImplementedError\n"
        "    return torch.nn.functional.gelu(x)\n"
    )
    verdict = check(path, "gelu", judge=judge, timed=False, allow=("library",), **OPTIONS)
    assert verdict.verdict == "passed", verdict.message


def test_limits_of_size_beyond_what_was_taken_tell_of_no_table() -> None:
    """Secret sizes may be larger than planned ones of some dim: whoever refuses these has a limit, and no table."""

    def case(rows: int, columns: int, direction: Direction = "forward") -> Case:
        dims = (("M", rows), ("N", columns))
        return Case(
            task="gelu",
            direction=direction,
            dims=dims,
            dtype="float32",
            layout="contiguous",
            distribution="standard",
            shape_category="small",
        )

    planned: dict[Case, Outcome] = {
        case(10, 100): Passed(evidence={}),
        case(100, 10): Passed(evidence={}),
        case(300, 300): Failed(stage="call", reason="unsupported", message="too large"),
    }
    assert _among_taken(case(50, 50), planned), "one dim at a time it has taken as much"
    assert not _among_taken(case(50, 101), planned)
    assert not _among_taken(case(9, 50), planned), "nor had it met so few rows"
    assert not _among_taken(case(50, 50, "backward"), planned), "nothing was taken there"


def test_secret_plain_values_are_numbers_of_every_type() -> None:
    """Of those above 0.34 a kernel in fp32 counts 0.3401, PyTorch's own in float16 does not: 0.34 is none of its."""
    task = find("count_greater")
    case = next(c for c in shapes.plan(task, Protocol(tier="quick"), shapes.Budget(memory_bytes=10**6, flops=10**7)))
    for larger in (False, True) * 20:
        value = other_scalars(task, case, larger=larger)["value"]
        assert 1.2 < value / 0.25 < 1.7 if larger else 0.45 < value / 0.25 < 0.85
        assert torch.tensor(value, dtype=torch.bfloat16).item() == torch.tensor(value, dtype=torch.float16).item()
        assert torch.tensor(value, dtype=torch.float16).item() == value


@pytest.mark.parametrize("name", ["gelu", "softmax", "matmul", "layer_norm"])
def test_two_dims_are_large_at_once_in_layouts_and_data_of_all_kinds(judge: Judge, name: str) -> None:
    task, protocol = find(name), Protocol(timed=False, dtypes=("float32",), directions=("forward",))
    budget, planned = judge_module.budget_of(judge.device, task, protocol), judge.plan(task, protocol)
    cases = secret_sizes.secret_cases(task, planned, budget, large=4)[-4:]
    for case in cases:
        assert sum(size >= 256 for _, size in case.dims) >= 2, case.key
        assert shapes.case_bytes(task, "forward", case.dims_map, "float32") <= max(budget.memory_bytes, 64 << 20)
    assert {case.layout for case in cases} == {*task.layouts} - {"contiguous"}
    assert cases[0].distribution == "large_scale" and len({case.distribution for case in cases}) >= 3
    assert len({case.dims for case in cases}) == 4


def test_no_dims_are_large_where_no_large_shape_was_asked_for(judge: Judge) -> None:
    planned = judge.plan(find("gelu"), PROTOCOL)
    budget = judge_module.budget_of(judge.device, find("gelu"), PROTOCOL)
    cases = secret_sizes.secret_cases(find("gelu"), planned, budget, large=4)
    taken = [shapes.case_bytes(find("gelu"), "forward", case.dims_map, "float32") for case in cases]
    assert max(taken) <= budget.memory_bytes // 2


def test_a_dtype_that_is_not_supported_says_nothing_about_dims(judge: Judge, tmp_path: Path) -> None:
    """Cases at other numbers of dims came in dtypes that the candidate had refused in every planned case."""
    path = tmp_path / "relu.py"
    path.write_text(
        "import torch\n\n\ndef relu(x):\n    if x.dtype != torch.float32:\n"
        "        raise NotImplementedError('no entry point for ' + str(x.dtype))\n    return torch.relu(x)\n"
    )
    options: dict[str, Any] = {**OPTIONS, "dtypes": ("float32", "float16"), "categories": ("tiny", "small")}
    verdict = check(path, "relu", judge=judge, timed=False, allow=("library",), **options)
    assert verdict.verdict == "passed", verdict.message
    said = [finding for finding in verdict.findings if finding.check == "secret_shapes"]
    assert [finding.level for finding in said] == ["info"], said
    assert "arguments of 1, " in said[0].message
    assert any("M=none" in key for key in said[0].evidence["cases"])


@pytest.mark.parametrize(
    ("tier", "language", "compiled", "least", "most"),
    [
        ("quick", "triton", True, 200, 300),
        ("quick", "triton", False, 0, 0),
        ("quick", "torch", True, 0, 0),
        ("quick", "cuda", True, 0, 0),
        ("standard", "triton", True, 0, 0),
        ("precise", "triton", True, 0, 0),
    ],
)
def test_three_of_four_quick_checks_compile_for_no_very_long_rows(
    tier: str, language: str, compiled: bool, least: int, most: int
) -> None:
    device = mock.Mock(spec=Device, pauses=not compiled)
    left_out = sum(no_long_rows(tier, languages.find(language), device) for _ in range(333))
    assert least <= left_out <= most


def test_rows_of_a_table_may_be_many_where_no_row_is_long() -> None:
    task = find("embedding")
    case = Case(
        task="embedding", direction="forward", dims=(("B", 2), ("L", 3), ("V", 70_000), ("D", 8)), dtype="float32"
    )
    assert task.allows(case.dims_map) and not special_sizes.beyond_16_bits(task, case)
    plane = Case(task="argmax_middle", direction="forward", dims=(("B", 2), ("M", 70_000), ("N", 2)), dtype="float32")
    assert special_sizes.beyond_16_bits(find("argmax_middle"), plane)


def test_rows_beyond_16_bits_are_told_from_large_numbers_of_rows(judge: Judge) -> None:
    task = find("amax")
    planned = judge.plan(task, Protocol(timed=False, dtypes=("float32",), directions=("forward",)))
    cases = secret_sizes.secret_cases(task, tuple(planned), shapes.Budget(memory_bytes=64 << 20, flops=1_000_000_000))
    far = [case for case in cases if special_sizes.beyond_16_bits(task, case)]
    assert far and all(case.dims_map["N"] > 65_535 for case in far)
    rest = [case.dims_map for case in cases if case not in far]
    assert max(dims["N"] for dims in rest) <= 8192 < 65_535 < max(dims["M"] for dims in rest)
