"""Problem files are judged on other outcomes of what they draw: rows in order, integers and masks at their ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.outcomes import MOST, Outcomes, Way

FILE = """
import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, {takes}):
        return {forward}
def get_inputs():
    {inputs}
def get_init_inputs():
    return []
"""


def written(folder: Path, takes: str, forward: str, inputs: str) -> Path:
    path = folder / "problem.py"
    path.write_text(FILE.format(takes=takes, forward=forward, inputs=inputs))
    return path


def drawn(way: Way | None, code: str, seed: int = 1) -> torch.Tensor:
    """What the expression gives where all that it draws comes out in this way."""
    torch.manual_seed(seed)
    with Outcomes(lambda number: way, seed):
        value = eval(code)
    assert isinstance(value, torch.Tensor)
    return value


@pytest.mark.parametrize("code", ["torch.randn(2, 6, 40)", "torch.rand(40)", "torch.empty(9, 40).uniform_()"])
def test_rows_in_order_hold_the_numbers_that_were_drawn(code):
    one, other = drawn(None, code), drawn("sorted", code)
    assert torch.equal(one.sort(-1).values, other.sort(-1).values) and not torch.equal(one, other)
    steps = (other.diff(dim=-1) < 0).sum(-1).flatten().tolist()
    assert set(steps) <= {0, 1, 39}  # rising, from some place on, falling
    assert other.dim() == 1 or {0, 39} < set(steps)


def test_integers_and_permutations_are_in_no_order():
    for code in ("torch.randint(0, 9, (50,))", "torch.randperm(50)"):
        assert torch.equal(drawn(None, code), drawn("sorted", code))


def test_few_rows_are_at_both_ends_of_what_could_be_drawn():
    lengths = drawn("whole", "torch.randint(1, 257, (4,))")
    assert set(lengths.tolist()) == {1, 256}
    segments = drawn("whole", "torch.randint(0, 16, (500,)).sort().values")
    assert segments.unique().tolist() == [0, 15] and bool((segments.diff() >= 0).all())
    partly = drawn("partly", "torch.randint(0, 16, (500,))")
    assert {0, 15} < set(partly.tolist())


@pytest.mark.parametrize("code", ["torch.rand(64, 20) > 0.4", "torch.randint(0, 2, (64, 20)).bool()"])
def test_rows_of_masks_are_closed_open_split_and_as_drawn(code):
    found = drawn("whole", code).sum(-1)
    assert int((found == 0).sum()) >= 16 and int((found == 20).sum()) >= 16
    assert int(((found > 0) & (found < 20)).sum()) > 16
    partly = drawn("partly", code).sum(-1)
    assert bool(((partly > 0) & (partly < 20)).all()) and {1, 19} <= set(partly.tolist())


def test_a_file_that_draws_until_it_likes_what_it_gets_ends():
    torch.manual_seed(0)
    with Outcomes(lambda number: "whole", 0) as outcomes:
        while len(torch.randint(0, 50, (40,)).unique()) < 10:
            pass
    assert outcomes.drawn == MOST + 1


# -- In problem files -------------------------------------------------------------------------------------------------


def test_what_is_selected_is_drawn_in_order(tmp_path):
    task = read(written(tmp_path, "x", "x.topk(4)", "return [torch.randn(9, 64)]"))
    assert "sorted" in task.distributions and "skewed" not in task.distributions
    problem = task.build({}, "cpu")
    (own,), (other,) = problem.inputs(3), problem.inputs(3, "sorted")
    assert torch.equal(own.sort(-1).values, other.sort(-1).values) and not torch.equal(own, other)
    assert torch.equal(other, problem.inputs(3, "sorted")[0])


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [("x.relu()", "return [torch.randn(9, 64)]"), ("x.topk(4)", "return [torch.randn(9, 64).sort(-1).values]")],
)
def test_order_is_left_out_where_nothing_is_selected_or_the_file_has_its_own(tmp_path, forward, inputs):
    assert "sorted" not in read(written(tmp_path, "x", forward, inputs)).distributions


SUMS = "torch.zeros(16, x.shape[1]).to(x).index_add(0, n, x)"


def test_integers_and_masks_alone_are_at_their_ends(tmp_path):
    inputs = "return [torch.rand(500, 4), torch.randint(0, 16, (500,)).sort().values, torch.rand(500, 4) > 0.3]"
    task = read(written(tmp_path, "x, n, m", SUMS.replace("n, x)", "n, x * m)"), inputs))
    assert "skewed" in task.distributions and not task.findings
    problem = task.build({}, "cpu")
    own, other = problem.inputs(2), problem.inputs(2, "skewed")
    assert problem.outcomes["skewed"] == {1: "whole", 2: "closed"} and torch.equal(own[0], other[0])
    assert other[1].unique().tolist() == [0, 15] and {0, 4} < set(other[2].sum(-1).tolist())


@pytest.mark.parametrize(
    "chosen", ["v, i = torch.rand(40, 8).topk(2)", "v, i = torch.randn(40, 8).softmax(-1).max(-1)"]
)
def test_rows_that_follow_from_scores_choose_the_same(tmp_path, chosen):
    """No expert was without a token where scores chose them: one that starts the next segment too late passed."""
    forward = "torch.zeros(8, 5).to(x).index_add(0, i.view(40, -1)[:, 0], x * v.view(40, -1)[:, :1])"
    inputs = f"{chosen}\n    return [torch.randn(40, 5), i, v]"
    task = read(written(tmp_path, "x, i, v", forward, inputs))
    problem = task.build({}, "cpu")
    assert "skewed" in task.distributions and not task.findings and problem.outcomes["skewed"] == {0: "crowded"}
    own, other = problem.inputs(2), problem.inputs(2, "skewed")
    assert len(other[1].unique()) <= 2 and torch.equal(own[0], other[0]) and len(other[2].unique()) > 20
    assert len({int(problem.inputs(seed, "skewed")[1].view(40, -1)[0, 0]) for seed in range(20)}) > 3


@pytest.mark.parametrize(("stable", "padded"), [("stable=True", True), ("stable=False", False)])
def test_files_that_sort_stably_meet_equal_numbers(tmp_path, stable, padded):
    """Orders of equal numbers were never asked for."""
    task = read(written(tmp_path, "x", f"x.argsort(dim=-1, {stable})", "return [torch.randn(9, 64)]"))
    assert ("padded" in task.distributions) is padded


@pytest.mark.parametrize(
    ("forward", "given", "closed"),
    [
        ("x.masked_fill(torch.arange(20) >= m[:, None], float('-inf')).softmax(-1)", "torch.randint(1, 21, (64,))", 20),
        ("x.masked_fill(m, float('-inf')).softmax(-1)", "torch.rand(64, 20) > 0.3", 16),
        ("(x[m] @ x.T).softmax(-1)", "torch.randint(0, 64, (32, 2))", 0),
        ("x * m[:, None]", "torch.randint(1, 21, (64,))", 0),
    ],
)
def test_single_scores_are_large(tmp_path, forward, given, closed):
    """A number in place of minus infinity, and a maximum that begins at 0, are wrong where all scores lie below them.
    What says which keys there are repeats none of them.
    """
    task = read(written(tmp_path, "x, m", forward, f"return [torch.randn(64, 20), {given}]"))
    problem = task.build({}, "cpu")
    own, large = problem.inputs(2)[1], problem.inputs(2, "large_scale")[1]
    single = large == 1 if large.dim() == 1 else (~large).sum(-1) == 1
    assert int(single.sum()) >= closed and torch.equal(own, large) is not bool(closed)


GATED = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, g, s, m):
        weights, h, out = s.masked_fill(m, float("-inf")).softmax(-1), 0, []
        for t in range(x.shape[1]):
            h = g[:, t, :, None].exp() * h + weights[:, t, :, None] * x[:, t, None]
            out.append(h.sum(1))
        return torch.stack(out, 1)
def get_inputs():
    return [torch.randn(2, 24, 6), 0.1 * torch.randn(2, 24, 9), torch.randn(2, 24, 9), torch.rand(2, 24, 9) > 0.8]
def get_init_inputs():
    return []
"""


def test_single_scores_are_large_beside_gates(tmp_path):
    """Large scores were tried before it was known which argument holds gates: large gates overflow."""
    path = tmp_path / "problem.py"
    path.write_text(GATED)
    problem = read(path).build({}, "cpu")
    assert problem.gates == {1} and problem.outcomes["large_scale"] == {3: "partly"}


LAYERED = """
import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.h, self.g, self.b = nn.LayerNorm(6), nn.Linear(6, 6), nn.Parameter(torch.zeros(6))
    def forward(self, x, m):
        y = self.h(x)
        dt, h, out = F.softplus(self.g(y) + self.b), 0, []
        for t in range(x.shape[1]):
            h = (-dt[:, t]).exp() * h + dt[:, t] * y[:, t]
            out.append(h)
        e = x.masked_fill(m, float("-inf")).exp()
        return torch.stack(out, 1) + e / e.sum(-1, keepdim=True)
def get_inputs():
    return [torch.randn(2, 24, 6), torch.rand(2, 24, 6) > 0.8]
def get_init_inputs():
    return []
"""


def test_single_scores_are_tried_as_large_inputs_come(tmp_path):
    """They were tried beside inputs times 128, which a layer with decays does not get, and fell out unnamed."""
    path = tmp_path / "problem.py"
    path.write_text(LAYERED)
    task = read(path)
    assert task.build({}, "cpu").outcomes["large_scale"] == {1: "partly"}
    path.write_text(LAYERED.replace("F.softplus(self.g(y) + self.b)", "torch.sigmoid(self.g(y))"))
    assert any("not judged on large_scale" in finding.message for finding in read(path).findings)


@pytest.mark.parametrize("hidden", [True, False])
def test_single_scores_that_a_file_does_not_take_are_named(tmp_path, hidden):
    """Whatever it does take stays: one mask of two."""
    forward = "(x.masked_fill(m, float('-inf')).softmax(-1) + x.masked_fill(n, float('-inf')).softmax(-1))"
    forward += " / ((x.abs().amax() < 9) | ((~n).sum(-1, keepdim=True) > 3))" if hidden else ""
    given = "return [torch.randn(64, 20), torch.rand(64, 20) > 0.9, torch.rand(64, 20) > 0.9]"
    task = read(written(tmp_path, "x, m, n", forward, given))
    said = [finding.message for finding in task.findings if "beside large scores" in finding.message]
    assert len(said) == hidden and all("not judged with n beside large scores at" in message for message in said)
    assert set(task.build({}, "cpu").outcomes["large_scale"]) == ({1} if hidden else {1, 2})


POOLED = """
import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, scores, segments):
        most = torch.full((16,), {start}, device=x.device, dtype=x.dtype)
        most = most.scatter_reduce(0, segments, scores, "amax")
        e = (scores - {shift}).exp()
        total = torch.zeros(16, device=x.device, dtype=x.dtype).index_add(0, segments, e)
        weights = e / total[segments]
        return torch.zeros(16, x.shape[1], device=x.device, dtype=x.dtype).index_add(0, segments, weights[:, None] * x)
def get_inputs():
    return [torch.randn(200, 8), torch.randn(200), torch.randint(0, 16, (200,)).sort().values]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("start", "shift"), [("0.0", "most[segments]"), ("-10.0", "most[segments]"), ("-1e4", "scores.max()")]
)
def test_segments_have_one_large_score(tmp_path, start, shift):
    """A maximum that begins at 0, and one for all segments, are wrong where a segment's only score is far below."""
    path = tmp_path / "problem.py"
    path.write_text(POOLED.format(start="float('-inf')", shift="most[segments]"))
    problem = read(path).build({}, "cpu")
    args = problem.inputs(2, "large_scale")
    assert int((args[2].bincount() == 1).sum()) >= 12
    path.write_text(POOLED.format(start=start, shift=shift))
    (right,), (wrong,) = (one.reference(args, {}) for one in (problem, read(path).build({}, "cpu")))
    assert right.isfinite().all() and not torch.allclose(right, wrong)


def test_rows_masked_whole_are_left_out_where_the_reference_gives_nan(tmp_path):
    inputs = "return [torch.randn(64, 20), torch.rand(64, 20) > 0.3]"
    path = written(tmp_path, "x, m", "x.masked_fill(~m, float('-inf')).softmax(-1)", inputs)
    assert read(path).build({}, "cpu").outcomes["skewed"] == {1: "partly"}


@pytest.mark.parametrize(
    "forward",
    [
        "x * 1 / (n.unique().numel() > 25)",
        "x.masked_fill((n < 8)[:, None], -1e9).topk(2)",
    ],
)
def test_what_the_file_does_not_take_is_named(tmp_path, forward):
    task = read(written(tmp_path, "x, n", forward, "return [torch.randn(64, 8), torch.randint(0, 64, (64,))]"))
    assert "skewed" not in task.distributions
    assert any("not judged with n at the ends of its range" in finding.message for finding in task.findings)


def test_places_that_are_written_once_stay(tmp_path):
    inputs = "return [torch.randn(20), torch.randint(0, 10**9, (20,)) % 1000003 % 4096]"
    task = read(written(tmp_path, "x, n", "torch.zeros(4096).to(x).index_put((n,), x)", inputs))
    assert "skewed" not in task.distributions


def test_sizes_that_follow_from_draws_stay(tmp_path):
    inputs = "n = torch.randint(1, 999, (6,))\n    return [torch.randn(64, 8)[: 40 + int(n.min() < 2)], n]"
    task = read(written(tmp_path, "x, n", "x * n.sum()", inputs))
    assert "skewed" not in task.distributions


def test_a_problem_file_takes_outcomes_that_its_get_inputs_refuses(tmp_path):
    inputs = "x = torch.randn(8, 64)\n    assert bool((x.diff() < 0).any(-1).all())\n    return [x]"
    task = read(written(tmp_path, "x", "x.topk(3).values", inputs))
    assert "sorted" not in task.distributions and "sorted" in task.findings[0].message
    assert isinstance(task.build({}, "cpu"), ModuleProblem)


@pytest.mark.parametrize(
    ("forward", "far"),
    [
        ("torch.var(x, -1)", 1000.0),
        ("(x - x.mean(-1, keepdim=True)).square().sum(-1)", 1000.0),
        ("((x - 20) ** 2).mean(-1) - (x - 20).mean(-1) ** 2", 100.0),
        ("x.relu() - 1", None),
        ("x.sum(-1)", None),
        ("torch.var(x.bfloat16(), -1)", None),
    ],
)
def test_means_go_as_far_from_zero_as_the_file_takes(tmp_path, forward, far):
    task = read(written(tmp_path, "x", forward, "return [torch.randn(64, 8)]"))
    assert ("far_mean" in task.distributions) == (far is not None)
    if far is not None:
        problem = task.build({}, "cpu")
        (x,) = problem.inputs(3, "far_mean")
        assert problem.far == far and float(x.mean() / x.std()) == pytest.approx(far, rel=1e-3)


def test_samples_with_replacement_crowd_and_others_stay_different():
    crowded = drawn("whole", "torch.multinomial(torch.ones(8), 200, replacement=True)")
    assert crowded.unique().tolist() == [0, 7]
    assert len(drawn("whole", "torch.multinomial(torch.ones(80), 50)").unique()) == 50


@pytest.mark.parametrize(("sort", "offered"), [("x.argsort(stable=True)", True), ("x.argsort()", False)])
def test_equal_keys_are_given_where_their_order_is_defined(tmp_path, sort, offered):
    task = read(written(tmp_path, "x", sort, "return [torch.randint(0, 9, (300,))]"))
    assert ("skewed" in task.distributions) == offered


@pytest.mark.parametrize(("scores", "offered"), [("x.sigmoid()", False), ("x", True)])
def test_a_selection_among_equal_numbers_is_not_asked_for(tmp_path, scores, offered):
    task = read(written(tmp_path, "x", f"torch.topk({scores}, 4)[1]", "return [4 * torch.rand(60, 16)]"))
    assert ("large_scale" in task.distributions) == offered


def test_a_mask_of_one_row_may_be_closed_whole(tmp_path):
    """A quotient by the number of what is open passed without its guard."""
    inputs = "return [torch.randn(40), (torch.rand(40) > 0.3).float()]"
    guarded = read(written(tmp_path, "x, m", "(x * m).sum() / m.sum().clamp(min=1)", inputs)).build({}, "cpu")
    closed = [not bool(guarded.inputs(seed, "skewed")[1].any()) for seed in range(40)]
    assert 10 < sum(closed) < 30
    bare = read(written(tmp_path, "x, m", "(x * m).sum() / m.sum()", inputs)).build({}, "cpu")
    assert all(bool(bare.inputs(seed, "skewed")[1].any()) for seed in range(40))


@pytest.mark.parametrize(("forward", "takes"), [("x.argmax(-1)", True), ("x[n].argmax(0)", False)])
def test_integers_beside_positions_are_at_their_ends_unless_these_have_ties(tmp_path, forward, takes):
    """Counts of more than 31 of one expert never came beside an argmax of other numbers."""
    inputs = "return [torch.randn(40, 9), torch.randint(0, 7, (40,))]"
    task = read(written(tmp_path, "x, n", f"{forward}, F.one_hot(n, 7).sum(0)", inputs))
    assert ("skewed" in task.distributions) == takes
