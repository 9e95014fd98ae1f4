"""Sizes of problem files that belong together though the file also runs where they do not."""

from __future__ import annotations

import pytest
import torch

from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import variants

FILE = """
import torch
import torch.nn.functional as F

ROWS, GROUP = 256, 64

class Model(torch.nn.Module):
    def __init__(self, {takes}):
        super().__init__()
        {init}

    def forward(self, x, y):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{given}]
"""


def swept(folder, forward, inputs, *, takes="n=0", init="self.n = n", given=""):
    path = folder / "problem.py"
    path.write_text(FILE.format(takes=takes, init=init, forward=forward, inputs=inputs, given=given))
    file = ProblemFile(path)
    problems = [ModuleProblem(file, dims, "cpu") for _, dims in variants(Surveys(file))]
    assert len(problems) >= 5
    return [(problem.init_args, problem.inputs(1), problem.weights(0)) for problem in problems]


def test_a_filter_for_each_channel_stays_one(tmp_path):
    """One channel with 48 filters is no depthwise convolution: right kernels for these raised."""
    forward = "return F.conv1d(x, self.w, groups=x.shape[1])[..., :5] + y"
    found = swept(
        tmp_path, forward, "torch.randn(2, 48, 30), torch.rand(1)", takes="c", given="48",
        init="self.w = torch.nn.Parameter(torch.randn(c, 1, 4))",
    )  # fmt: skip
    assert len({args[0].shape[1] for _, args, _ in found}) > 3
    assert all(args[0].shape[1] == len(weights["w"]) for _, args, weights in found)


def test_a_state_keeps_its_length_beside_the_kernel(tmp_path):
    """More came out than went in where the state was longer than the kernel reaches back."""
    forward = "return F.conv1d(torch.cat([y, x], -1), self.w)"
    found = swept(
        tmp_path, forward, "torch.randn(2, 12, 50), torch.randn(2, 12, 6)", takes="c", given="12",
        init="self.w = torch.nn.Parameter(torch.randn(c, c, 7))",
    )  # fmt: skip
    assert len({args[0].shape for _, args, _ in found}) > 4 and {args[1].shape[-1] for _, args, _ in found} == {6}


@pytest.mark.parametrize("forward", ["return x @ y", "return torch.tanh(x) @ y.relu()"])
def test_square_factors_do_not_stay_square(tmp_path, forward):
    shapes = {args[1].shape for _, args, _ in swept(tmp_path, forward, "torch.randn(64, 64), torch.randn(64, 64)")}
    assert any(len(set(shape)) == 2 for shape in shapes)


def test_what_is_padded_for_a_fourier_transform_stays_as_long(tmp_path):
    """A filter of 541 steps beside 417 was cut by the transform's length."""
    forward = (
        "n = x.shape[-1]; return torch.fft.irfft(torch.fft.rfft(x, 2 * n) * torch.fft.rfft(y, 2 * n), 2 * n)[..., :n]"
    )
    found = swept(tmp_path, forward, "torch.randn(3, 8, 60), torch.randn(8, 60)")
    assert len({args[0].shape[-1] for _, args, _ in found}) > 3
    assert all(x.shape[-1] == y.shape[-1] for _, (x, y), _ in found)


@pytest.mark.parametrize("factor", ["1.0", "self.n ** -0.5"])
def test_sizes_that_a_constructor_is_told_follow_the_inputs(tmp_path, factor):
    """Pages of 8 rows beside a page size of 16, and heads of 31 beside a scale of 32: candidates may read either."""
    inputs = "torch.randn(3, 10, 24), torch.randn(3, 7, 24)"
    forward = f"return (x @ y.mT).softmax(-1) * {factor}"
    found = swept(tmp_path, forward, inputs, takes="head_dim", init="self.n = head_dim", given="24")
    assert len({given[0] for given, _, _ in found}) > 3
    assert all(given[0] == x.shape[-1] for given, (x, _), _ in found)


def test_numbers_that_are_no_sizes_by_name_follow_no_size(tmp_path):
    inputs = "torch.randn(3, 10, 24), torch.randn(3, 7, 24)"
    found = swept(tmp_path, "return (x @ y.mT) * self.n", inputs, takes="top_k", init="self.n = top_k", given="24")
    assert sorted(given[0] for given, _, _ in found)[-2:] == [24, 25]  # another number once


def test_a_size_that_real_tensors_do_not_take_becomes_another(tmp_path):
    """Of rows in groups of 64 only a whole number is right, which tensors without values do not say: the rows stayed
    as they were, or became a power of two.
    """
    forward = "return (x[..., None] * y[torch.arange(x.shape[1], device=x.device) // self.n]).sum(1)"
    found = swept(tmp_path, forward, "torch.randn(6, ROWS), torch.rand(ROWS // GROUP, 5)", given="GROUP")
    assert any(args[0].shape[1] == 192 for _, args, _ in found)


def test_lengths_that_may_be_zero_follow_the_steps(tmp_path):
    """Lengths from 0 to 12 stayed beside 6 steps, where the file raises: fewer steps never came."""
    forward = "return torch.cat([x.new_zeros(len(x), 1), x.cumsum(1)], 1)[torch.arange(len(x), device=x.device), y]"
    found = swept(tmp_path, forward, "torch.randn(9, 12), torch.randint(0, 13, (9,))")
    assert len({args[0].shape[1] for _, args, _ in found if args[0].shape[1] < 12}) > 3
    assert all(int(y.max()) <= x.shape[1] for _, (x, y), _ in found)
    assert any(int(y.max()) > 12 for _, (_, y), _ in found)


def test_a_size_that_is_told_does_not_tie_another_that_is_equal_by_chance(tmp_path):
    """64 steps followed a head width of 64 that the file splits rows by: no odd number of steps came."""
    forward = "return x.view(x.shape[0], x.shape[1], -1, self.n).sum(-1) + y"
    found = swept(
        tmp_path, forward, "torch.randn(2, 64, 256), torch.rand(1)", takes="head_dim", init="self.n = head_dim",
        given="64",
    )  # fmt: skip
    assert any(args[0].shape[1] % 2 for _, args, _ in found)


def test_limits_that_are_told_stay(tmp_path):
    """Right kernels with a table of so many positions failed, as the limit followed a width."""
    forward = "return x.cumsum(1) + y"
    found = swept(
        tmp_path, forward, "torch.randn(4, 48, 512), torch.rand(1)", takes="max_seq_len",
        init="self.n = max_seq_len", given="512",
    )  # fmt: skip
    assert {init_args[0] for init_args, _, _ in found} == {512}


FULL = "n = x.shape[-1] + y.shape[-1] - 1; return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(y, n), n)"


@pytest.mark.parametrize(
    ("forward", "inputs", "apart"),
    [
        (
            "return x.new_zeros(self.n, x.shape[1]).index_add_(0, y, x)",
            "torch.randn(64, 24), torch.randint(0, 64, (64,))",
            lambda n, x, y: n != len(x),
        ),
        (
            "return F.avg_pool1d(x, 2), y.cumsum(-1)",
            "torch.randn(4, 16, 64), torch.randn(4, 16, 32)",
            lambda n, x, y: x.shape[-1] % 32,
        ),
        (FULL, "torch.randn(8, 60), torch.randn(8, 60)", lambda n, x, y: x.shape[-1] != y.shape[-1]),
    ],
)
def test_sizes_that_are_equal_by_chance_are_varied_apart(tmp_path, forward, inputs, apart):
    """They were tied, as an output had an argument's shape, or as two were padded for a Fourier transform."""
    found = swept(tmp_path, forward, inputs, takes="n", given="64")
    assert any(apart(init_args[0], *args) for init_args, args, _ in found)


def test_a_number_beside_integers_that_it_has_nothing_to_do_with_stays(tmp_path):
    """The k of a top-k became others, as integers of the file were below the same number by chance."""
    forward = "return x.topk(self.n).values, y.cumsum(0)"
    found = swept(
        tmp_path, forward, "torch.randn(30, 50), torch.randint(0, 8, (20,))", takes="k", init="self.n = k", given="8"
    )
    assert sorted(init_args[0] for init_args, _, _ in found)[-2:] == [8, 9]  # another number once


LOOP = "h = [{first} * 0]; [h.append({rest}) for t in range({steps})]; return torch.stack(h)"


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("forward", "inputs", "dim"),
    [
        (
            LOOP.format(first="x[:, 0]", rest="x[:, t] + y[:, t].sigmoid() * h[-1]", steps="x.shape[1]"),
            ["2, 32, 16"] * 2,
            1,
        ),
        (
            LOOP.format(first="y[:, 0]", rest="x[:, t] + y[:, t].sigmoid() * h[-1]", steps="y.shape[1]"),
            ["2, 32, 16"] * 2,
            1,
        ),
        (
            LOOP.format(first="x[0]", rest="x[t] + y[t].sum().sigmoid() * h[-1]", steps="x.shape[0]"),
            ["32, 6, 16", "32, 9"],
            0,
        ),
        (
            LOOP.format(
                first="x[0][:, 0]", rest="x[0][:, t] * x[1][:, t] + y[:, t].sigmoid() * h[-1]", steps="x[0].shape[1]"
            ),
            None,
            1,
        ),
    ],
)
def test_steps_that_a_loop_reads_from_several_tensors_change_together(tmp_path, forward, inputs, dim):
    """A loop over the steps of one takes fewer alone: code without a loop does not."""
    one = "torch.randn(2, 32, 16)"
    given = ", ".join(f"torch.randn({sizes})" for sizes in inputs) if inputs else f"[{one}, {one}], {one}"
    found = [torch.utils._pytree.tree_leaves(args) for _, args, _ in swept(tmp_path, forward, given)]
    assert all(len({one.shape[dim] for one in args}) == 1 for args in found)
    assert len({args[0].shape[dim] for args in found}) > 2
