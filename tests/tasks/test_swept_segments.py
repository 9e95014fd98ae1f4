"""Other sizes of problem files that give offsets: segments cover what they covered, and are as many as they were."""

from __future__ import annotations

import pytest

from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import shrink, variants

FILE = """
import torch

N, T, D, S = {sizes}

class Model(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n{weight}

    def forward(self, x, offsets):
        sums = torch.cat([x.new_zeros(1, x.shape[1]), x.cumsum(0)])
        return sums[{ends}] - sums[offsets[:{last}]]

def get_inputs():
    return [torch.randn(T, D), {offsets}]

def get_init_inputs():
    return [{count}]
"""


def made(folder, offsets, sizes="4, 64, 12, 16", *, closed=True, weight="", count="0"):
    path = folder / "problem.py"
    ends = "offsets[1:]" if closed else "torch.cat([offsets[1:], offsets.new_full((1,), x.shape[0])])"
    last = "-1" if closed else ""
    path.write_text(FILE.format(offsets=offsets, sizes=sizes, ends=ends, last=last, weight=weight, count=count))
    file = ProblemFile(path)
    surveys = Surveys(file)
    found = [dims for _, dims in variants(surveys)]
    return found, [ModuleProblem(file, dims, "cpu").inputs(1) for dims in (*found, shrink(surveys, 2000, 10**6))]


CLOSED = [
    "torch.arange(0, T + 1, T // N)",
    "torch.arange(0, T + 1, S)",
    "torch.arange(N + 1, dtype=torch.int32) * (T // N)",
    "torch.tensor([i * (T // N) for i in range(N + 1)])",
    "torch.cat([torch.zeros(1, dtype=torch.long), torch.full((N,), T // N).cumsum(0)])",
]


@pytest.mark.slow(every=2)
@pytest.mark.parametrize(
    ("offsets", "sizes"), [*((one, "4, 64, 12, 16") for one in CLOSED), (CLOSED[1], "3, 60, 10, 20")]
)
def test_segments_end_where_the_rows_do(tmp_path, offsets, sizes):
    """Who finds each row's segment was wrong where the last rows were in none."""
    found, drawn = made(tmp_path, offsets, sizes)
    assert len(found) >= 5 and len({len(x) for x, _ in drawn}) > 2
    assert all(int(ends[-1]) == len(x) for x, ends in drawn)


def test_segments_of_large_files_end_where_the_rows_do(tmp_path):
    """No numbers are drawn of these, but the offsets are."""
    found, drawn = made(tmp_path, CLOSED[0], "8, 65536, 96, 8")
    assert len(found) >= 5 and all(int(ends[-1]) == len(x) for x, ends in drawn)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("weight", ["", "; self.w = torch.nn.Parameter(torch.ones(n))"])
def test_there_are_as_many_segments_as_the_model_has(tmp_path, closed, weight):
    """16 segments beside weights of 13: who takes a weight for each failed."""
    offsets = CLOSED[0] if closed else "torch.arange(0, T, T // N)"
    found, drawn = made(tmp_path, offsets, closed=closed, weight=weight, count="N")
    assert len(found) >= 5 and len({dims["N"] for dims in found}) > 1
    assert all(len(ends) - closed == dims["N"] for dims, (_, ends) in zip(found, drawn, strict=False))


def test_bags_of_no_told_number_keep_odd_sizes(tmp_path):
    """The last bag goes up to the last row, however long it is."""
    found, drawn = made(tmp_path, "torch.arange(0, T, T // N)", closed=False)
    assert any(dims["T"] % dims["N"] for dims in found) and any(len(x) % 2 for x, _ in drawn)


OF_EACH = FILE.replace("return sums", "s = sums").replace(
    "[:{last}]]", "[:{last}]]\n        return s * self.w[: len(s), None]"
)


@pytest.mark.parametrize("sizes", ["8, 64, 12, 8", "6, 96, 20, 16"])
@pytest.mark.parametrize("offsets", ["torch.arange(0, T + 1, S)", "torch.arange(0, T + S, S)"])
def test_there_are_as_many_equal_segments_as_weights(tmp_path, offsets, sizes):
    """Of steps of S rows there were as many as T gave, beside N weights: who takes each weight's segment failed."""
    path = tmp_path / "problem.py"
    weight = "; self.w = torch.nn.Parameter(torch.rand(n))"
    path.write_text(
        OF_EACH.format(offsets=offsets, sizes=sizes, ends="offsets[1:]", last="-1", weight=weight, count="N")
    )
    file = ProblemFile(path)
    found = [dims for _, dims in variants(Surveys(file))]
    drawn = [ModuleProblem(file, dims, "cpu").inputs(1) for dims in found]
    assert len(found) >= 5 and len({dims["N"] for dims in found}) > 2 and len({len(x) for x, _ in drawn}) > 2
    assert all(
        len(ends) - 1 == dims["N"] and int(ends[-1]) == len(x) for dims, (x, ends) in zip(found, drawn, strict=True)
    )


def test_a_width_as_large_as_the_number_of_segments_is_free(tmp_path):
    """Its weights are no segment's own."""
    weight = "; self.w = torch.nn.Parameter(torch.rand(D))"
    text = FILE.replace("return sums", "s = sums").replace("[:{last}]]", "[:{last}]]\n        return s * self.w")
    path = tmp_path / "problem.py"
    text = text.format(offsets=CLOSED[1], sizes="8, 96, 8, 12", ends="offsets[1:]", last="-1", weight=weight, count="0")
    path.write_text(text)
    found = [dims for _, dims in variants(Surveys(ProblemFile(path)))]
    assert len(found) >= 5 and any(dims["T"] // dims["S"] != dims["D"] for dims in found)


@pytest.mark.parametrize("width", [12, 64])
def test_keys_and_values_end_together(tmp_path, width):
    """Of 203 keys 64 were in a segment, beside 64 values: who finds each row's segment failed."""
    text = FILE.replace("(self, x, offsets)", "(self, x, v, offsets)").replace(
        "x.cumsum(0)", "(x[: len(v)] * v).cumsum(0)"
    )
    text = text.replace("torch.randn(T, D)", f"torch.randn(64, {width}), torch.rand(64, 1)")
    path = tmp_path / "problem.py"
    path.write_text(
        text.format(
            offsets="torch.arange(0, 65, 16)", sizes="1, 1, 1, 1", ends="offsets[1:]", last="-1", weight="", count="0"
        )
    )
    file = ProblemFile(path)
    drawn = [ModuleProblem(file, dims, "cpu").inputs(1) for _, dims in variants(Surveys(file))]
    assert len({x.shape[1] for x, *_ in drawn}) > 2, [(x.shape, v.shape) for x, v, _ in drawn]
    assert all(int(ends[-1]) == len(x) == len(v) for x, v, ends in drawn)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("count", ["12", "N"])
@pytest.mark.parametrize("ids", ["torch.randint(0, {n}, (90,)).sort().values", "torch.randint({n}, (90,))"])
def test_numbers_of_segments_that_the_model_is_made_with_vary(tmp_path, count, ids):
    """They shape neither argument nor weight: a table of 12 or 16 rows passed."""
    path = tmp_path / "problem.py"
    forward = "def forward(self, x, ids):\n        return x.new_zeros(self.n, 7).index_add_(0, ids, x)\n\n"
    head, _, tail = FILE.partition("def forward")
    text = head + forward + tail[tail.index("def get_inputs") :].replace("(T, D)", "(90, 7)")
    path.write_text(text.format(sizes="12, 64, 5, 16", weight="", offsets=ids.format(n=count), count=count))
    file = ProblemFile(path)
    numbers = []
    for _, dims in variants(Surveys(file)):
        problem = ModuleProblem(file, dims, "cpu")
        numbers += problem.init_args
        assert int(problem.inputs(1)[1].max()) < problem.init_args[0]
    assert len(set(numbers)) > 3 and max(numbers) > 16


def test_numbers_of_what_is_given_alone_stay(tmp_path):
    """Twice as many of what is selected are another operator, and so is a larger map of a pool."""
    path = tmp_path / "problem.py"
    forward = "def forward(self, x, ids):\n        return x.topk(self.n, 0).values + ids.sum()\n\n"
    head, _, tail = FILE.partition("def forward")
    text = head + forward + tail[tail.index("def get_inputs") :].replace("(T, D)", "(90, 7)")
    path.write_text(text.format(sizes="1, 64, 5, 16", weight="", offsets="torch.randint(0, 9, (20,))", count="12"))
    assert {
        ModuleProblem(ProblemFile(path), dims, "cpu").init_args[0] for _, dims in variants(Surveys(ProblemFile(path)))
    } == {12}
