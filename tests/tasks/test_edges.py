"""Problem files that compare or round their arguments are judged on numbers at which that changes, and beside them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kerneleval.records import Candidate, Protocol
from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.module_problem import ModuleProblem

FILE = """
import torch, torch.nn as nn, torch.nn.functional as F
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("limits", torch.tensor([-1.5, -0.3, 0.0, 0.7, 2.0]))
        self.least = nn.Parameter(torch.full((40,), 0.3))
    def forward(self, {takes}):
        return {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""


def written(folder: Path, forward: str, inputs: str = "torch.randn(30, 40) * 4", takes: str = "x") -> Path:
    path = folder / "problem.py"
    path.write_text(FILE.format(name="Model", takes=takes, forward=forward, inputs=inputs))
    return path


def problem_of(folder: Path, forward: str, inputs: str = "torch.randn(30, 40) * 4", takes: str = "x") -> ModuleProblem:
    made = read(written(folder, forward, inputs, takes)).build({}, "cpu")
    assert isinstance(made, ModuleProblem)
    return made


def numbers(problem: ModuleProblem, index: int = 0) -> list[float]:
    return problem.edges.numbers[index][0].tolist() if index in problem.edges.numbers else []


@pytest.mark.parametrize(
    ("forward", "some"),
    [
        ("torch.where(x > 0.5, x, -x)", {0.5}),
        ("torch.where(1.5 - x <= 0.5, x, -x)", {1.0}),
        ("F.threshold(x.view(-1), 0.25, -3.0)", {0.25}),
        ("F.hardshrink(x, 0.75)", {0.75, -0.75}),
        ("x * (x.abs() >= 2)", {2.0, -2.0}),
        ("x.round()", {0.5, -0.5, 2.5}),
        ("(x / 0.25).round() * 2", {0.125, 0.625}),
        ("torch.floor(x * 10)", {0.5, -1.0, 2.5}),
        ("x % 0.5", {0.5, -3.0}),
        ("(x * 4).to(torch.int32) * 1.5", {0.25, -0.5}),
        ("torch.histc(x, 16, -2, 2)", {-2.0, 2.0, 0.25}),
        ("torch.bucketize(x, torch.tensor([-0.5, 1.0])) * x", {-0.5, 1.0}),
    ],
)
def test_numbers_at_steps_are_drawn(tmp_path, forward, some):
    problem = problem_of(tmp_path, forward)
    assert some <= set(numbers(problem))
    (drawn,) = problem.inputs(3, "edges")
    (own,) = problem.inputs(3)
    assert set(numbers(problem)) & set(drawn.flatten().tolist()) and 0.05 < float((drawn != own).float().mean()) < 0.3


@pytest.mark.parametrize(
    "forward",
    [
        "torch.where(x > 0.3, x, -x)",  # no number of the type: 0.3 in fp64 is another one than in fp32
        "torch.where(x @ x.T > 0.5, 1.0, 2.0)",
        "torch.where(x.sigmoid() > 0.5, x, -x)",
        "torch.where(x * 0.3 + 0.1 > 0.5, x, -x)",
        "(x / x.abs().amax()).round()",
        "x % 0.1",  # 0.5 is five times 0.1 in fp64, and a little less in fp32
        "x % 1.5",  # a product with the inverse of 1.5 may fall short of 5 at 7.5
        "(x / 3).floor()",
        "torch.histc(x, 10, 0.1, 0.9)",
        "x.relu()",
    ],
)
def test_what_rounding_decides_is_never_put_at_a_step(tmp_path, forward):
    task = read(written(tmp_path, forward))
    assert "edges" not in task.distributions


def test_neighbours_come_where_nothing_is_computed_before_the_step(tmp_path):
    one, other = problem_of(tmp_path, "torch.where(x > 0.5, x, -x)"), problem_of(tmp_path, "torch.floor(x * 10)")
    (drawn,) = one.inputs(1, "edges")
    half = torch.tensor(0.5)
    beside = [float(torch.nextafter(half, torch.tensor(end))) for end in (-math.inf, math.inf)]
    assert all(bool((drawn == number).any()) for number in (0.5, *beside))
    assert not other.edges.numbers[0][1]


def test_arguments_meet_what_they_are_compared_with(tmp_path):
    one = problem_of(tmp_path, "torch.where(x < y, x, -y)", "torch.randn(30, 40), torch.randn(40)", "x, y")
    x, y = one.inputs(2, "edges")
    assert 20 < int((x == y).sum()) < 400
    other = problem_of(tmp_path, "x * (x.abs() > self.least)")
    (x,), weights = other.inputs(2, "edges"), other.weights(7, "edges")
    assert int((x == weights["least"]).sum()) > 20 and not torch.equal(weights["least"], other.weights(7)["least"])
    third = problem_of(tmp_path, "torch.bucketize(x, self.limits) * x")
    (x,), weights = third.inputs(2, "edges"), third.weights(7, "edges")
    assert all(bool((x == limit).any()) for limit in weights["limits"])


def test_numbers_of_one_sign_stay_within_those_that_are_drawn(tmp_path):
    problem = problem_of(tmp_path, "torch.arange(4.0)[(x * 4).long()]", "torch.rand(20, 20)")
    assert {0.25, 0.5, 0.75} <= set(numbers(problem)) and 0 < min(numbers(problem)) < max(numbers(problem)) < 1


def test_what_is_computed_of_an_argument_is_no_number_of_the_file(tmp_path):
    assert "edges" not in read(written(tmp_path, "torch.where(x > x.mean(), x, -x)")).distributions


def test_chains_of_changes_in_place_are_followed_to_the_end(tmp_path):
    forward = "[y := x.clone(), [y.mul_(2).add_(1).mul_(0.5).sub_(0.5) for _ in range(30)], y > 0.5][-1] * x"
    assert 0.5 in numbers(problem_of(tmp_path, forward))


def test_zeros_have_no_neighbours(tmp_path):
    (drawn,) = problem_of(tmp_path, "torch.where(x > 0, x, 2 * x) + torch.sign(x)").inputs(1, "edges")
    assert bool((drawn == 0).any()) and not bool(((drawn != 0) & (drawn.abs() < 1e-30)).any())


@pytest.mark.parametrize("ordered", [1, 2, 4])
def test_boundaries_stay_in_order_at_every_size(tmp_path, ordered):
    inputs = "torch.rand(33).sort().values, torch.randn(20)"
    task = read(written(tmp_path, "torch.searchsorted(x, y)", inputs, "x, y"), sweep=True)
    assert 0 in task.build({"get_inputs[0]": ordered}, "cpu").traits.ordered


RIGHT = ["torch.where((x - 0.5) > 0, x + x, 0 - x)", "torch.where(x <= 0.5, -x, 2 * x)"]


COUNTED = "torch.bincount((torch.{}).clamp(-9, 8).long().flatten() + 9, minlength=18)"


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("reference", "body", "verdict"),
    [
        *(("torch.where(x > 0.5, x * 2, -x)", body, "passed") for body in RIGHT),
        ("torch.where(x > 0.5, x * 2, -x)", "torch.where(x >= 0.5, x * 2, -x)", "failed"),
        ("x.round() + x / 2", "(x * 0.5).add(torch.round(x))", "passed"),
        ("x.round() + x / 2", "torch.sign(x) * torch.floor(x.abs() + 0.5) + x / 2", "failed"),
        ("torch.floor(x * 10) / 8", "torch.floor(x / 0.1) / 8", "passed"),
        ("torch.floor(x * 10) / 8", "(torch.ceil(x * 10) - 1) / 8", "failed"),
        ("x * (x.abs() > self.least)", "torch.where((x > self.least) | (-x > self.least), x, 0.0)", "passed"),
        ("x * (x.abs() > self.least)", "x * (x.abs() >= self.least)", "failed"),
        (
            COUNTED.format("floor(x)"),
            "torch.stack([(x.floor().clamp(-9, 8) == i).sum() for i in range(-9, 9)])",
            "passed",
        ),
        (COUNTED.format("floor(x)"), COUNTED.format("ceil(x) - 1"), "failed"),
        ("torch.histc(x, 16, -2, 2)", "torch.histc(torch.where(x == 2, 9.0, x), 16, -2, 2)", "failed"),
    ],
)
def test_who_falls_to_the_other_side_of_a_step_is_wrong(judge, tmp_path, reference, body, verdict):
    task = read(written(tmp_path, reference))
    source = FILE.format(name="ModelNew", takes="x", forward=body, inputs="")
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), tier="quick")
    cases = [case for case in judge.plan(task, protocol) if case.distribution in ("standard", "edges")]
    found = judge.check(candidate, task, protocol, cases=cases)
    assert len(cases) == 2 and found.verdict == verdict, found.message


def test_plain_numbers_that_arguments_are_compared_with_stay(tmp_path):
    problem = problem_of(tmp_path, "torch.where(x > low, x, -x)", "torch.randn(30, 40), 0.25", "x, low")
    x, low = problem.inputs(1, "edges")
    assert low == 0.25 and bool((x == 0.25).any()) and problem.inputs(1, "large_scale")[1] != 0.25
