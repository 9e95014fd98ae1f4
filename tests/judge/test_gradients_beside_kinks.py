"""Gradients where a sum lies beside the kink of a function: either side is right there, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from kerneleval.judge.oracle import kinks, reference
from kerneleval.judge.oracle.comparison import Match, Mismatch, compare
from kerneleval.judge.oracle.expectation import Expectation
from kerneleval.tasks import find

from .conftest import case_of, drawn, planned
from .variants import tf32

DIMS = {"M": 64, "O": 96, "K": 48}
Call = tuple[Sequence[torch.Tensor], torch.Tensor, Expectation]


def call_of(dtype: str, beside: int, seed: int) -> Call:
    """Arguments, upstream gradient and expectation of ``linear_relu``, of which so many sums are nearly 0."""
    task, case = find("linear_relu"), case_of("linear_relu", DIMS, dtype=dtype, direction="backward")
    args, grads = drawn(task, case, seed)
    assert grads is not None
    x, weight, bias = args
    for number in range(beside):
        bias[7 * number] = -(x[5 * number].double() @ weight[7 * number].double()).to(bias.dtype)
    return args, grads[0], reference.expect(task, case, args, grads)


def gradients(args: Sequence[torch.Tensor], gradient: torch.Tensor, flipped: torch.Tensor) -> list[torch.Tensor]:
    """In fp64, some elements of the output on the other side of the kink; rounded."""
    x, weight, bias = (arg.double() for arg in args)
    own = gradient.double() * ((x @ weight.T + bias > 0) ^ flipped)
    return [out.to(args[0].dtype) for out in (own @ weight, own.T @ x, own.sum(0))]


def nowhere() -> torch.Tensor:
    return torch.zeros(DIMS["M"], DIMS["O"], dtype=torch.bool)


@pytest.mark.parametrize("beside", [1, 3])
def test_either_side_of_a_kink_is_right(beside: int) -> None:
    """One element on the other side than PyTorch's was beyond every bound, in fp32."""
    for seed in range(4):
        args, gradient, expectation = call_of("float32", beside, seed)
        for chosen in range(1 << beside):
            flipped = nowhere()
            for number in range(beside):
                flipped[5 * number, 7 * number] = bool(chosen >> number & 1)
            result = compare(gradients(args, gradient, flipped), expectation)
            assert isinstance(result, Match), f"seed {seed}: {result.message}"


def test_sums_that_are_not_beside_it_have_one_side() -> None:
    args, gradient, expectation = call_of("float32", 2, 1)
    x, weight, bias = args
    sums = (x @ weight.T + bias).abs()
    for share in (1e-4, 1e-3, 1e-2):
        flipped = nowhere()
        flipped.view(-1)[(sums - share).abs().argmin()] = True
        assert isinstance(compare(gradients(args, gradient, flipped), expectation), Mismatch), share


def test_other_elements_keep_their_bounds() -> None:
    args, gradient, expectation = call_of("float32", 2, 1)
    right = gradients(args, gradient, nowhere())
    assert isinstance(compare(gradients([tf32(a) for a in args], tf32(gradient), nowhere()), expectation), Mismatch)
    for index in range(3):
        off = [out.clone() for out in right]
        off[index].view(-1)[-1] += 1e-2 * off[index].abs().amax()
        assert isinstance(compare(off, expectation), Mismatch)


@pytest.mark.parametrize(
    ("name", "kinked"),
    [
        ("linear_relu", True),
        ("triplet_margin_loss", True),
        ("l1_normalize", True),
        ("layer_norm", False),
        ("softmax", False),
        ("conv2d_gelu", False),
        ("matmul", False),
        ("rms_norm", False),
    ],
)
def test_kinks_are_known_by_the_operators_that_a_reference_calls(name: str, kinked: bool) -> None:
    """Where there are none, no noisy oracle is computed."""
    task = find(name)
    case = next(c for c in planned(task, dtypes=("float32",), directions=("backward",)))
    args, _ = drawn(task, case)
    assert kinks.has_kinks(object(), lambda: task.reference(*args)) is kinked
