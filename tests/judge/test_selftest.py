from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.judge.selftest.task_selftest import selftest
from kerneleval.records import Task, Tolerance
from kerneleval.tasks import find

from .conftest import NAMES, case_of, planned

CASE = case_of("mine", {"M": 40, "N": 70})


def mine(reference: Any, base: str = "gelu", **changes: Any) -> Task:
    return replace(find(base), name="mine", reference=reference, relations=(), **changes)


def failed_tests(task: Task, *cases: Any) -> set[str]:
    return {str(finding["test"]) for finding in selftest(task, "cpu", cases or (CASE,))}


@pytest.mark.slow(every=6)
@pytest.mark.parametrize("name", NAMES)
def test_every_built_in_task_passes(name: str) -> None:
    task = find(name)
    cases = [case for case in planned(task) if case.layout == "contiguous"][::5]
    assert selftest(task, "cpu", cases) == []


def test_a_good_task_passes_at_degenerate_cases() -> None:
    for distribution in ("constant", "zeros", "small_scale"):
        assert failed_tests(mine(torch.tanh), replace(CASE, distribution=distribution)) == set()
    assert failed_tests(mine(torch.tanh), replace(CASE, dims=(("M", 1), ("N", 1)))) == set()


def test_a_gradient_whose_terms_cancel_is_no_bad_reference() -> None:
    """Equal rows have the normalised mean zero, and so has the gradient of the weight under a constant upstream one."""
    case = replace(case_of("batch_norm", {"B": 4, "C": 359, "L": 299}), direction="backward", layout="expanded")
    assert selftest(find("batch_norm"), "cpu", (case,)) == []


def test_an_argument_without_effect() -> None:
    (finding, *_) = selftest(mine(lambda x, y: x * x, base="add"), "cpu", (CASE,))
    assert finding["test"] == "depends"
    assert "argument 1" in finding["message"]
    assert (finding["level"], finding["case"]) == ("fail", CASE.key)


def test_an_argument_whose_effect_is_below_the_tolerance() -> None:
    assert "depends" in failed_tests(mine(lambda x, y: x.exp() + 1e-8 * y, base="add"))


def test_outputs_that_a_constant_satisfies() -> None:
    assert "no_trivial_answer" in failed_tests(mine(torch.zeros_like))
    assert "no_trivial_answer" in failed_tests(mine(lambda x: 1 + 1e-9 * x))
    assert "no_trivial_answer" in failed_tests(mine(lambda x: (x > 90).int()), CASE)


def test_near_identity() -> None:
    assert "no_trivial_answer" in failed_tests(mine(lambda x: x * (1 + 1e-7)))


def test_a_wide_tolerance_lets_narrow_types_through() -> None:
    assert failed_tests(mine(torch.tanh, tolerance=Tolerance(factor=3000.0))) == {"downgrades"}


def test_a_narrow_type_must_be_noticed_at_one_case_at_least() -> None:
    """The logarithm of a sum of 960 numbers near 1 is the same in TF32; that of a few is not."""
    task = find("linear_sigmoid_amplify_logsumexp")
    hides = case_of(task.name, {"M": 42, "O": 960, "K": 776})
    shows = case_of(task.name, {"M": 42, "O": 12, "K": 76})
    assert {finding["test"] for finding in selftest(task, "cpu", (hides,))} == {"downgrades"}
    assert selftest(task, "cpu", (hides, shows)) == []


def test_a_random_reference_fails_its_own_task() -> None:
    assert "well_conditioned" in failed_tests(mine(lambda x: x + torch.rand_like(x)))


def test_gradients_that_do_not_need_their_upstream() -> None:
    class Ignores(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return 2 * ctx.saved_tensors[0]

    failed = selftest(mine(Ignores.apply), "cpu", (replace(CASE, direction="backward"),))
    assert [f["message"] for f in failed if f["test"] == "depends"] == [
        "the output passes although upstream gradient 0 has other values: it hardly depends on it"
    ]


def test_tf32_is_not_asked_for_where_it_is_allowed() -> None:
    task = find("matmul")
    case = case_of("matmul", {"M": 30, "N": 40, "K": 50})
    assert selftest(task, "cpu", (case,)) == []
    assert selftest(task, "cpu", (case,), tf32=True) == []


def test_a_table_drawn_anew_that_names_the_same_pages_is_no_finding():
    """Two pages of four, in another order: attention over them is the same; another draw differs."""
    dims = {"B": 1, "G": 3, "R": 4, "W": 13, "V": 4, "S": 32, "N": 2}
    assert selftest(find("paged_attention_gqa"), "cpu", [case_of("paged_attention_gqa", dims, "bfloat16")]) == []
