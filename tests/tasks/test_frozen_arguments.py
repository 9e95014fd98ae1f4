"""What a problem file gives alike under every seed is varied by the judge, so that no candidate may ignore it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch

from kerneleval.judge.probes.calls import _refresh_by
from kerneleval.tasks.formats.distributions import safe_distributions
from kerneleval.tasks.formats.kernelbench import read
from kerneleval.tasks.formats.kin import kin
from kerneleval.tasks.formats.module_problem import ModuleProblem
from kerneleval.tasks.formats.problem_file import ProblemFile
from kerneleval.tasks.formats.redrawn import keep_in_order, redrawn, says_sizes
from kerneleval.tasks.formats.surveys import Surveys
from kerneleval.tasks.formats.sweep import variants
from kerneleval.tasks.formats.traits import InputTraits, doubled, doubling, is_symmetric


def write(folder: Path, forward: str, inputs: str, init: str = "pass", takes: str = "x, *more") -> Path:
    """A problem file; ``forward``, which ``takes`` these, and ``inputs`` are bodies."""
    parts = [
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F",
        "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()",
        textwrap.indent(init, " " * 8),
        f"    def forward(self, {takes}):",
        textwrap.indent(forward, " " * 8),
        "def get_inputs():",
        textwrap.indent(inputs, " " * 4),
        "def get_init_inputs():\n    return []\n",
    ]
    path = folder / "problem.py"
    path.write_text("\n".join(parts))
    return path


def made(folder: Path, forward: str, inputs: str, init: str = "pass") -> ModuleProblem:
    return ModuleProblem(ProblemFile(write(folder, forward, inputs, init)), {}, "cpu")


def test_a_constant_input_with_nan_is_made_to_vary(tmp_path):
    """NaN is equal to nothing, itself included: the argument passed for one that varies."""
    inputs = "torch.manual_seed(0)\nx = torch.randn(20, 9)\nx[x > 1] = float('nan')\nreturn [x]"
    problem = made(tmp_path, "return x - torch.nanmean(x, 0)", inputs)
    (one,), (other,) = problem.inputs(1), problem.inputs(2)
    assert problem.traits.frozen == {0}
    assert torch.equal(one.isnan(), other.isnan()) and one.isnan().any()
    assert not torch.equal(one.nan_to_num(), other.nan_to_num())


def test_a_constant_complex_input_is_made_to_vary(tmp_path):
    problem = made(tmp_path, "return x.real", "return [torch.ones(30, dtype=torch.complex64)]")
    (one,), (other,) = problem.inputs(1), problem.inputs(2)
    assert one.is_complex() and not torch.equal(one, other)


def test_complex_weights_vary(tmp_path):
    init = (
        "self.spread = nn.Parameter(torch.randn(40, 3, dtype=torch.cfloat))\n"
        "self.ones = nn.Parameter(torch.ones(50, dtype=torch.cfloat))\n"
        "self.twin = self.spread\n"
        "self.register_buffer('table', torch.ones(5, dtype=torch.cfloat))"
    )
    problem = made(tmp_path, "return x", "return [torch.rand(3)]", init)
    before, one, other = problem.weights(0), problem.weights(1), problem.weights(2)
    for name, weight in one.items():
        assert weight.is_complex() and weight.is_contiguous()
        assert not torch.equal(weight, before[name]) and not torch.equal(weight, other[name])
    assert torch.equal(one["spread"], one["twin"])
    assert 0.7 < float(one["spread"].abs().std() / before["spread"].abs().std()) < 1.4
    trained = problem.weights(1, "trained")
    assert float(trained["spread"].abs().std()) > 1.5 * float(one["spread"].abs().std())


# --------------------------------------------------------------------------------------------------------------------
# Marks among integers that vary
# --------------------------------------------------------------------------------------------------------------------

LOSS = "return F.cross_entropy(x.flatten(0, 1), more[0].flatten())"
TOKENS = "t = torch.randint(1, 12, (6, 14))\nt[:, 9:] = 0\n"
LABELS = "y = torch.randint(0, 12, (6, 14))\ny[:, :5] = -100\n"
IDS = "ids = torch.randint(1, 9, (6, 14))\nids[:, :5] = 0\n"
EMBEDDED = "mask = (x > 0)[..., None]\nreturn (x[..., None] * mask).sum(1) / mask.sum(1).clamp(min=1)"


@pytest.mark.parametrize(
    ("forward", "inputs", "least"),
    [
        (LOSS, f"{LABELS}return [torch.randn(6, 14, 12), y]", 1),
        (EMBEDDED, f"{TOKENS}return [t]", 0),
        (EMBEDDED, "t = torch.randint(1, 12, (6, 14))\nt[::2, ::3] = 0\nreturn [t]", 0),
    ],
)
def test_marks_at_fixed_places_are_at_more_of_them(tmp_path, forward, inputs, least):
    """Labels to be ignored, and padding: a candidate knew their places. Rows are all marks where the file takes it."""
    task = read(write(tmp_path, forward, inputs))
    problem = ModuleProblem(ProblemFile(tmp_path / "problem.py"), {}, "cpu")
    assert "redrawn" in task.distributions
    index, mark = next(iter(problem.traits.marks.items()))
    problem.kept, problem.marked = frozenset(), frozenset([index])
    problem.filled = frozenset([index] if least else [])
    for seed in range(1, 20):
        before, after = (problem.inputs(seed, name)[index] for name in ("standard", "redrawn"))
        assert torch.equal(before[after != mark], after[after != mark])
        assert bool(((before == mark) <= (after == mark)).all()) and not torch.equal(before, after)
        assert int((after != mark).sum(-1).min()) >= least and len((after == mark).sum(-1).unique()) > 1
        more = (after == mark).sum(-1) > (before == mark).sum(-1)
        assert bool(more.all()), "however much is marked already"


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        (
            "return x[more[0][:, :3]].sum(1)",
            "t = torch.randint(0, 9, (9, 5))\nt[:, 3:] = -1\nreturn [torch.randn(9, 4), t]",
        ),
        (LOSS, f"{LABELS}return [torch.randn(6, 14, 12), y, y >= 0]"),
        (LOSS, f"{LABELS}return [torch.randn(6, 14, 12), y, torch.full((6,), 9)]"),
        (LOSS, f"{LABELS}return [torch.randn(6, 14, 12), y, 5]"),
        (LOSS, "return [torch.randn(6, 14, 12), torch.randint(0, 12, (6, 14))]"),
        (f"x = x * (more[1] != 0)[..., None]\n{LOSS}", f"{LABELS}{IDS}return [torch.randn(6, 14, 12), y, ids]"),
    ],
)
def test_marks_stay_where_none_reads_them_or_something_else_tells_them(tmp_path, forward, inputs):
    write(tmp_path, forward, inputs)
    problem = safe_problem(tmp_path / "problem.py")
    before, after = (problem.inputs(1, name)[1] for name in ("standard", "redrawn"))
    assert torch.equal(before, after)


def test_marks_that_a_miniature_has_not_stay(tmp_path):
    """The file was refused: nothing had been tried of a row of padding, which its model does not take."""
    forward = (
        "t, w = more\nlast = ((t != 0).sum(1) - 1)[:, None, None].expand(-1, 1, 256)\n"
        "return x.gather(1, last).squeeze(1) * w[:, :1] + w.sum(1, keepdim=True)"
    )
    inputs = (
        "t = torch.randint(1, 9, (128, 128))\nt[:, 100:] = 0\n"
        "return [torch.randn(128, 128, 256), t, (torch.arange(128) % 3 > 0).float().expand(128, 128).contiguous()]"
    )
    task = read(write(tmp_path, forward, inputs))
    problem = task.build({}, "cpu")
    assert "redrawn" in task.distributions
    before, after = (problem.inputs(1, name) for name in ("standard", "redrawn"))
    assert torch.equal(before[1], after[1]) and not torch.equal(before[2], after[2])


@pytest.mark.parametrize("kind", ["torch.float8_e5m2", "torch.uint8", "torch.int8", "torch.bool"])
def test_marks_are_sought_in_every_type(tmp_path, kind):
    inputs = f"x = torch.randint(1, 90, (6, 14))\nx[:, 5:] = 0\nreturn [x.to({kind})]"
    marks = made(tmp_path, "return x.float()", inputs).traits.marks
    assert marks == ({0: 0} if "int" in kind else {})


def safe_problem(path: Path) -> ModuleProblem:
    """The problem with what it takes."""
    surveys = Surveys(ProblemFile(path))
    safe = safe_distributions(surveys)
    problem = ModuleProblem(surveys.file, {}, "cpu", **safe.options)
    for name, value in safe.attributes.items():
        setattr(problem, name, value)
    return problem


# --------------------------------------------------------------------------------------------------------------------
# Integers, flags and masks
# --------------------------------------------------------------------------------------------------------------------

INF = float("inf")


def other(values: object, dtype: torch.dtype | None = None, seed: int = 1) -> torch.Tensor | None:
    tensor = torch.as_tensor(values) if dtype is None else torch.as_tensor(values, dtype=dtype)
    found = redrawn(tensor, torch.Generator().manual_seed(seed))
    assert found is None or (found.shape == tensor.shape and found.dtype == tensor.dtype and found.is_contiguous())
    return found


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(30, 8, dtype=torch.bool),
        torch.ones(8, 8).tril().bool(),
        torch.full((8, 8), -INF).triu(1),
        torch.full((2, 1, 8, 8), -1e9).triu(1),
        torch.ones(6, 9, dtype=torch.long),
        torch.ones(1, 24, dtype=torch.long),
        (torch.arange(9) < torch.tensor([[9], [4], [1]])).long(),
        torch.ones(6, 9, 1, dtype=torch.bool),
    ],
)
def test_a_redrawn_mask_has_other_places_and_no_row_loses_a_value(mask):
    width = next(size for size in reversed(mask.shape) if size > 1)
    values = set(mask.flatten().tolist()) | ({0, 1} if not mask.is_floating_point() else set())
    for seed in range(20):
        found = other(mask, seed=seed)
        assert not torch.equal(found, mask)
        assert set(found.flatten().tolist()) <= values
        for row, was in zip(found.view(-1, width).tolist(), mask.reshape(-1, width).tolist(), strict=True):
            assert set(was) <= set(row)


@pytest.mark.parametrize(
    ("mask", "dim", "descending"),
    [
        (torch.arange(41) >= torch.tensor([[33], [20], [41], [7]]), -1, False),
        ((torch.arange(9) < torch.tensor([[9], [4], [1]])).long(), -1, True),
        ((torch.arange(20)[:, None] < torch.tensor([3, 12, 20])).float(), 0, True),
        (torch.arange(40)[:, None] < torch.tensor([40, 33, 25, 18, 11, 6]), 0, True),
        (torch.zeros(3, 1, 1, 16).masked_fill(torch.arange(16) < 5, -INF), -1, False),
        (torch.arange(50) < 30, -1, True),
        (torch.full((8, 8), -1e9).triu(1), -1, True),
    ],
)
def test_padding_stays_at_its_end(mask, dim, descending):
    """Keys that a causal mask left alone were hidden, and right kernels that hide these otherwise were rejected."""
    for seed in range(20):
        found = other(mask, seed=seed)
        assert not torch.equal(found, mask) and set(found.unique().tolist()) == set(mask.unique().tolist())
        assert torch.equal(found.float().sort(dim, descending=descending).values, found.float())


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(8, 8).tril().bool(),
        torch.arange(12) < torch.tensor([[12], [9], [7], [4], [2]]),
        torch.full((2, 1, 6, 9), -INF).triu(3),
    ],
)
def test_masks_in_order_along_two_dims_stay_so(mask):
    """Sequences sorted by length were no more, and right kernels that go on with the first ones were rejected."""
    along = [(dim, down) for dim in (-2, -1) for down in (True, False) if _is_sorted(mask, dim, down)]
    assert len(along) == 2
    for seed in range(20):
        found = other(mask, seed=seed)
        assert not torch.equal(found, mask) and all(_is_sorted(found, *order) for order in along)


def _is_sorted(mask: torch.Tensor, dim: int, descending: bool) -> bool:
    return torch.equal(mask.float().sort(dim, descending=descending).values, mask.float())


@pytest.mark.parametrize("sizes", [[(20, 24), (13, 24), (20, 9)], [(7, 5), (19, 23)]])
@pytest.mark.parametrize("padded", [False, True])
def test_masks_of_padded_images_stay_boxes(sizes, padded):
    """Each row was padded from another place on: right kernels that take heights and widths were rejected."""
    mask = torch.stack([(torch.arange(20)[:, None] < h) & (torch.arange(24) < w) for h, w in sizes]) ^ padded
    made = [other(mask, seed=seed) for seed in range(20)]
    boxes = [found ^ padded for found in made]
    assert all(torch.equal(box, box.any(1, keepdim=True) & box.any(2, keepdim=True)) for box in boxes)
    assert all(_is_sorted(box, dim, True) for box in boxes for dim in (1, 2))
    sides = {tuple(box.any(dim).sum(1).tolist()) for box in boxes for dim in (1, 2)}
    assert len(sides) > 10 and not any(torch.equal(found, mask) for found in made)


def test_masks_in_no_order_get_none():
    window = torch.ones(12, 12).tril().triu(-3)
    for mask in (window, torch.rand(4, 30, generator=torch.Generator().manual_seed(1)) < 0.5, torch.ones(4, 30)):
        found = other(mask)
        assert not torch.equal(found.float().sort(-1, descending=True).values, found.float())
    first = torch.eye(9, dtype=torch.long)[torch.zeros(40, dtype=torch.long)]
    assert bool((other(first).sum(-1) == 1).all()) and not torch.equal(other(first), first)


def test_rows_of_one_hot_masks_stay_one_hot():
    found = other(torch.eye(9, dtype=torch.long)[torch.arange(40) % 9])
    assert bool((found.sum(-1) == 1).all()) and not torch.equal(found, torch.eye(9, dtype=torch.long)[:1])


def test_a_redrawn_permutation_is_one():
    assert sorted(other(torch.arange(12)).tolist()) == list(range(12))
    both = torch.arange(24).view(2, 12)
    assert torch.equal(other(both)[1] - other(both)[0], both[1] - both[0]) and not torch.equal(other(both), both)
    columns = torch.stack([torch.randperm(3) for _ in range(9)], 1)  # scatter along dim 0 writes each place once
    assert bool((other(columns).sort(0).values == torch.arange(3)[:, None]).all())


@pytest.mark.parametrize("expanded", [torch.arange(12).expand(3, 12), torch.arange(12)[:, None].expand(12, 3)])
def test_equal_rows_of_positions_differ(expanded):
    """A kernel that read the positions of the first sequence for all passed."""
    found = other(expanded.contiguous())
    rows = found if found.shape[0] == 3 else found.T
    assert found.is_contiguous() and bool((rows.sort(-1).values == torch.arange(12)).all())
    assert not torch.equal(rows[0], rows[1]) and not torch.equal(rows[0], rows[2])


def test_offsets_have_their_steps_in_another_order():
    """Offsets that a candidate wrote out passed."""
    assert other([0, 16, 32, 48]) is None and other([3, 5, 9, 30]) is None
    for offsets in ([0, 3, 3, 7, 9, 9], [0, 13, 40, 64, 96]):
        for seed in range(20):
            found = other(offsets, torch.int32, seed)
            assert found.tolist() != offsets and found[0] == 0 and found[-1] == offsets[-1]
            assert sorted(found.diff().tolist()) == sorted(torch.tensor(offsets).diff().tolist())


SUMS = "s = torch.cat([x[:1] * 0, x.cumsum(0)])\nreturn s[more[0][1:].long()] - s[more[0][:-1].long()]"
MEANS = "return torch.stack([x[a:b].mean(0) for a, b in zip(more[0][:-1], more[0][1:])])"
BAGS = "return F.embedding_bag(x.argmax(-1), more[1], more[0])"


@pytest.mark.parametrize(
    ("forward", "given", "end", "empty"),
    [
        (SUMS, "torch.arange(0, 97, 12)", 96, True),
        (SUMS, "torch.arange(9, dtype=torch.int32) * 12", 96, True),
        (MEANS, "torch.tensor([0, 32, 64, 96])", 96, False),
        (BAGS, "torch.arange(0, 96, 8), torch.randn(5, 3)", 88, True),
    ],
)
def test_equal_segments_become_unequal(tmp_path, forward, given, end, empty):
    """Candidates that take all segments for as long as the first passed."""
    task = read(write(tmp_path, forward, f"return [torch.randn(96, 5), {given}]"))
    problem = task.build({}, "cpu")
    own = problem.inputs(1)[1]
    assert not any("the same in every draw" in finding.message for finding in task.findings)
    for seed in range(20):
        found = problem.inputs(seed, "redrawn")[1]
        steps = (found if end == 96 else torch.cat([found, torch.tensor([96])])).diff()
        assert found.dtype == own.dtype and len(found) == len(own) and found[0] == 0 and int(found.max()) <= 96
        assert int(steps.sum()) == 96 and len(steps.unique()) > 1 and (int(steps.min()) == 0) is empty


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        (SUMS, "torch.arange(0, 97, 12), 12"),  # the longest
        (SUMS, "torch.arange(0, 97, 12), torch.tensor(12)"),
        (SUMS, "torch.arange(0, 97, 12), 16"),  # no less than the longest
        (SUMS, "torch.arange(0, 97, 12), torch.rand(8, 12)"),
        (SUMS, "torch.arange(0, 91, 10)"),  # no size
        ("return x.view(len(more[0]) - 1, -1, 5).sum(1)", "torch.arange(0, 97, 12)"),  # it reads no more than how many
    ],
)
def test_equal_segments_stay_where_something_else_says_so(tmp_path, forward, given):
    """A candidate may read the other argument."""
    problem = read(write(tmp_path, forward, f"return [torch.randn(96, 5), {given}]")).build({}, "cpu")
    for seed in range(5):
        for own, other in zip(problem.inputs(seed)[1:], problem.inputs(seed, "redrawn")[1:], strict=True):
            assert not isinstance(own, torch.Tensor) or own.is_floating_point() or torch.equal(own, other)


IDS, POSITIONS = "torch.arange(8).repeat_interleave(12)", "torch.arange(12).repeat(8)"
BY_IDS = "return x.new_zeros(8, 5).index_add_(0, more[0], x)"
LOOP = "return torch.stack([x[a:b].sum(0) for a, b in zip(*more)])"


UNEQUAL = "torch.tensor([9, 12, 3, 20, 8, 30, 5, 9])"


@pytest.mark.parametrize(
    ("forward", "given", "agree"),
    [
        (SUMS, "torch.arange(0, 97, 12), torch.full((8,), 12, dtype=torch.int32)", lambda o, n: (o.diff(), n)),
        (SUMS, f"torch.arange(0, 97, 12), {IDS}", lambda o, ids: (o.diff(), ids.bincount(minlength=8))),
        (LOOP, "torch.arange(0, 96, 12), torch.arange(12, 97, 12)", lambda a, b: (a[1:], b[:-1])),
        (BY_IDS, f"{IDS}, torch.full((8,), 12)", lambda ids, n: (ids.bincount(minlength=8), n)),
        (f"{BY_IDS} / more[1][:, None]", f"{IDS}, torch.full((8,), 12)", lambda ids, n: (ids.bincount(), n)),
        (
            "return torch.cat([x[:1], x.cumsum(0)])[more[0]] / more[1][:, None]",
            f"{UNEQUAL}.cumsum(0), {UNEQUAL}",
            lambda ends, n: (ends, n.cumsum(0)),
        ),
        (
            "return (x * more[0][:, None]).cumsum(0)[more[1][1:] - 1]",
            f"{POSITIONS}, torch.arange(0, 97, 12)",
            lambda p, o: ((p == 0).nonzero().reshape(-1), o[:-1][o.diff() > 0]),
        ),
    ],
)
def test_segments_said_in_two_ways_become_others_together(tmp_path, forward, given, agree):
    """Candidates that took all segments for equal passed, and positions were others than the offsets said."""
    problem = read(write(tmp_path, forward, f"return [torch.randn(96, 5), {given}]")).build({}, "cpu")
    own = problem.inputs(1)[1:]
    for seed in range(9):
        both = problem.inputs(seed, "redrawn")[1:]
        assert [one.dtype for one in both] == [one.dtype for one in own]
        assert not any(torch.equal(one, other) for one, other in zip(both, own, strict=True))
        assert torch.equal(*(one.long() for one in agree(*both))) and max(int(one.max()) for one in both) <= 96


def _packed(lengths: object) -> torch.Tensor:
    return torch.cat([torch.arange(int(n)) for n in lengths])


@pytest.mark.parametrize(
    ("given", "rows"),
    [
        ("torch.cat([torch.arange(n) for n in LENS])[None]", 1),
        ("torch.cat([torch.arange(n) for n in LENS])[None].int().repeat(3, 1)", 1),  # of time, height and width
        ("torch.cat([torch.arange(n) for n in LENS]).view(3, 32)", 3),
        ("torch.arange(8).repeat_interleave(torch.tensor(LENS))[None]", 0),
        ("torch.arange(96)[None] - torch.tensor([0, *LENS]).cumsum(0)[:-1].repeat_interleave(torch.tensor(LENS))", 1),
    ],
)
def test_packed_positions_become_others_with_their_offsets(tmp_path, given, rows):
    """Those of shape (1, T) and (B, T) changed alone, and who counts them by the offsets was rejected."""
    lens = "LENS = [9, 12, 11, 20, 4, 8, 15, 17]"
    inputs = f"{lens}\nreturn [torch.randn(96, 5), torch.tensor([0, *LENS]).cumsum(0), {given}]"
    forward = "return (x.cumsum(0)[o[1:] - 1] * (x * p.expand(-1, -1).reshape(-1, 96)[0][:, None]).sum(0))"
    task = read(write(tmp_path, forward, inputs, takes="x, o, p"))
    problem, order = task.build({}, "cpu"), set()
    own = problem.inputs(1)[2]
    assert problem.kin == {1, 2} and not any("same in every draw" in one.message for one in task.findings)
    for seed in range(9):
        _, offsets, positions = problem.inputs(seed, "redrawn")
        lengths = offsets.diff()
        told = _packed(lengths) if rows else torch.arange(8).repeat_interleave(lengths)
        assert (positions.shape, positions.dtype) == (own.shape, own.dtype) and not torch.equal(positions, own)
        assert torch.equal(positions.long(), told.view(positions.shape) if rows == 3 else told.expand(own.shape))
        assert rows < 3 or {32, 64} <= set(offsets.tolist()), "segments of a batch stay in its rows"
        order.add(tuple(lengths.tolist()))
    assert len(order) > 5


def test_lengths_of_a_padded_batch_are_redrawn_beside_its_positions(tmp_path):
    """A candidate that ignored the lengths passed."""
    inputs = "return [torch.randn(6, 48, 3), torch.full((6,), 48), torch.arange(48).repeat(6, 1)]"
    forward = "return ((x + p[..., None]) * (torch.arange(48) < o[:, None])[..., None]).sum(1)"
    problem = read(write(tmp_path, forward, inputs, takes="x, o, p")).build({}, "cpu")
    assert not problem.kin
    assert len({tuple(problem.inputs(seed, "redrawn")[1].tolist()) for seed in range(5)}) > 1


def test_rows_of_a_batch_stay_whole(tmp_path):
    """Each row is a sequence of its own, of which none may end in another."""
    inputs = "return [torch.randn(96, 5), torch.arange(0, 97, 12), torch.arange(12).repeat(8, 1)]"
    forward = "return x.cumsum(0)[o[1:] - 1] * (x * p.reshape(-1)[:, None]).sum(0)"
    problem = read(write(tmp_path, forward, inputs, takes="x, o, p")).build({}, "cpu")
    for seed in range(5):
        for own, other in zip(problem.inputs(seed)[1:], problem.inputs(seed, "redrawn")[1:], strict=True):
            assert torch.equal(own, other)


CROSS = """q, k, cq, ck = x, *more[:3]
parts = zip(cq[:-1], cq[1:], ck[:-1], ck[1:])
return torch.cat([torch.softmax(q[a:b] @ k[c:d].T, -1) @ k[c:d] for a, b, c, d in parts])"""
BAGS = """t, (k, cq, ck) = x[:80], more
return torch.cat([F.embedding_bag(k, t, cq), F.embedding_bag(torch.arange(96) % 80, t.cos(), ck)], 1)"""
MEANS = """k, i, j, ni, nj = more
a, b = x.new_zeros(4, 5).index_add_(0, i, x), x.new_zeros(8, 5).index_add_(0, j, k)
return torch.cat([a / ni[:, None], b / nj[:, None]])"""


@pytest.mark.parametrize(
    ("forward", "given", "division"),
    [
        (CROSS, "torch.randn(128, 5), torch.tensor([0, 20, 50, 96]), torch.tensor([0, 24, 60, 128])", "o"),
        (CROSS, "torch.randn(128, 5), torch.arange(0, 97, 24), torch.arange(0, 129, 32)", "o"),
        (CROSS, "torch.randn(128, 5), torch.tensor([0, 12, 20, 96]), torch.tensor([0, 20, 40, 128])", "o"),
        (
            CROSS,
            "torch.randn(128, 5), torch.tensor([0, 20, 50, 96]), torch.tensor([0, 24, 60, 128]), "
            "torch.tensor([20, 30, 46]), torch.tensor([24, 36, 68])",
            "on",
        ),
        (
            CROSS,
            "torch.randn(128, 5), torch.arange(0, 97, 24), torch.arange(0, 129, 32), "
            "torch.full((4,), 24), torch.full((4,), 32)",
            "on",
        ),
        (BAGS, "torch.randint(0, 80, (90,)), torch.tensor([0, 7, 20, 31]), torch.tensor([0, 5, 22, 30])", "o"),
        (BAGS, "torch.randint(0, 80, (90,)), torch.arange(0, 90, 15), torch.arange(0, 96, 16)", "o"),
        (
            MEANS,
            "torch.randn(128, 5), torch.arange(4).repeat_interleave(24), torch.arange(8).repeat_interleave(16), "
            "torch.full((4,), 24), torch.full((8,), 16)",
            "in",
        ),
    ],
)
def test_two_divisions_into_segments_become_others(tmp_path, forward, given, division):
    """Offsets of queries and of keys: one of two stayed as it was, and both where their lengths stood beside them."""
    task = read(write(tmp_path, forward, f"return [torch.randn(96, 5), {given}]"))
    problem = task.build({}, "cpu")
    assert not any("same in every draw" in one.message for one in task.findings)
    assert problem.kin == set(range(2, 2 + 2 * len(division)))
    own = problem.inputs(1)[2:]
    for seed in range(5):
        made = problem.inputs(seed, "redrawn")[2:]
        assert not any(torch.equal(one, other) for one, other in zip(own, made, strict=True))
        for place in (0, 1):  # of queries, of keys
            told = [made[2 * i + place] for i in range(len(division))]
            lengths = told[0].diff() if division[0] == "o" else told[0].bincount(minlength=len(told[1]))
            assert int(lengths.min()) >= 0 and (len(told) == 1 or torch.equal(lengths, told[1]))
        if forward is CROSS:
            assert [int(one[-1]) for one in made[:2]] == [96, 128]
            assert bool((made[0].diff() <= made[1].diff()).all()), "a segment with more queries than keys"


@pytest.mark.parametrize(
    ("forward", "given"),
    [
        (SUMS, "torch.arange(0, 97, 12), torch.full((8,), 12), 12"),  # the longest
        (SUMS, f"torch.arange(0, 97, 12), {IDS}, torch.rand(8, 12)"),
        (SUMS, "torch.arange(0, 49, 6), torch.full((8,), 6)"),  # of no other size
    ],
)
def test_segments_said_in_two_ways_stay_where_something_else_says_so(tmp_path, forward, given):
    problem = read(write(tmp_path, forward, f"return [torch.randn(96, 5), {given}]")).build({}, "cpu")
    for seed in range(5):
        for own, other in zip(problem.inputs(seed)[1:3], problem.inputs(seed, "redrawn")[1:3], strict=True):
            assert torch.equal(own, other)


def test_equal_offsets_of_equal_segments_stay_equal(tmp_path):
    forward = "a, b = more\ns = x.cumsum(0)\nreturn s[a[1:] - 1] * s[b[1:] - 1].cos()"
    inputs = "o = torch.arange(0, 97, 12)\nreturn [torch.randn(96, 5), o, o.clone()]"
    problem = read(write(tmp_path, forward, inputs)).build({}, "cpu")
    for seed in range(9):
        _, one, other = problem.inputs(seed, "redrawn")
        assert torch.equal(one, other) and len(one.diff().unique()) > 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (torch.arange(6).repeat_interleave(4), torch.full((6,), 4)),
        (torch.arange(0, 25, 4), torch.arange(6).repeat_interleave(4)),
        (torch.arange(4, 25, 4), torch.full((6,), 4)),
        (torch.arange(0, 24, 4), torch.arange(4, 25, 4)),
    ],
)
def test_equal_segments_said_in_two_ways_are_kin(one, other):
    """Numbers of equal segments came out as of unequal ones, and their lengths as before."""
    assert kin({1: one, 2: other}) == {1, 2}
    assert not kin({1: torch.full((6,), 4), 2: torch.full((6,), 4)}) and not kin({1: one, 2: torch.ones(6)})


@pytest.mark.parametrize(("value", "others"), [(0, {1}), (1, {2}), (2, {1}), (9, {5, 6, 7, 8})])
def test_of_equal_integers_some_become_others(value, others):
    for shape in ((1,), (), (2,), (40,)):
        own = torch.full(shape, value)
        found = [redrawn(own, torch.Generator().manual_seed(seed)) for seed in range(40)]
        assert {int(n) for one in found for n in one.unique()} == others | ({value} if own.numel() > 1 else set())
        assert all(0 < int((one != own).sum()) < max(own.numel(), 2) and one.dtype == own.dtype for one in found)


@pytest.mark.parametrize(
    ("own", "beside"),
    [
        (torch.full((4,), 8), [torch.rand(4, 8, 6)]),  # the rows of a flattened batch
        (torch.full((4,), 8), [torch.rand(32, 6)]),
        (torch.tensor(20), [torch.tensor([20, 13, 7])]),  # the longest
        (torch.tensor([40]), [torch.tensor([20, 13, 7])]),  # all of them
        (torch.tensor(3), [torch.tensor([20, 13, 7])]),  # how many
    ],
)
def test_integers_that_say_sizes_stay(own, beside):
    assert says_sizes(own, [*beside, own]) and not says_sizes(own + 1 if own.numel() > 1 else own + 4, beside)


@pytest.mark.parametrize("mask", ["long)", "int32)", "long)[:, None, None]"])
def test_masks_of_ones_are_redrawn_whatever_their_type(tmp_path, mask):
    """As many ones as there are tokens were taken for lengths, and a kernel that ignored the mask passed."""
    forward = "return x.masked_fill((more[0].reshape(3, 26) == 0)[..., None], 0).sum(1)"
    inputs = f"return [torch.randn(3, 26, 32), torch.ones(3, 26, dtype=torch.{mask}]"
    problem = read(write(tmp_path, forward, inputs)).build({}, "cpu")
    found = [problem.inputs(seed, "redrawn")[1] for seed in range(5)]
    assert all(0 < int(one.sum()) < one.numel() for one in found)


def test_what_is_symmetric_stays_so_where_that_is_another():
    distances = (torch.arange(9)[:, None] - torch.arange(9)).abs()
    found = other(distances)
    assert torch.equal(found, found.T) and not torch.equal(found, distances)
    assert not torch.equal(other(torch.eye(12, dtype=torch.bool)), torch.eye(12, dtype=torch.bool))


def test_odd_integers_are_left_alone():
    assert other(torch.full((3,), 2**63 - 1)) is None
    assert not is_symmetric(torch.zeros(0, 3, 3, dtype=torch.int64))


def test_one_sign_is_given_where_the_file_takes_it(tmp_path):
    """Quotients by a sum of what is left above 0 are not finite where nothing is."""
    task = read(write(tmp_path, "r = x.relu()\nreturn r / r.sum()", "return [torch.randn(6, 50)]"))
    assert "negative" in task.distributions
    problem = task.build({}, "cpu")
    for seed in range(30):
        assert torch.equal(problem.inputs(seed, "negative")[0], -8 * problem.inputs(seed)[0])


def test_halves_that_are_equal_by_chance_are_no_table(tmp_path):
    inputs = "t = torch.rand(1, 4)\nif torch.initial_seed() == 0:\n    t[:, 2:] = t[:, :2]\nreturn [torch.randn(4), t]"
    problem = made(tmp_path, "return x * more[0]", inputs)
    assert doubling(problem.inputs(0)[1]) == "halves" and not problem.find_twice()


@pytest.mark.parametrize(
    ("inputs", "related"),
    [
        ("x = torch.randn(8, 20)\nreturn [x, torch.randn(20), x.mean(1), x.var(1).rsqrt()]", {0, 2, 3}),
        ("q, k = torch.randn(8, 4), torch.randn(8, 4)\nreturn [q, k, (q @ k.T).logsumexp(1)]", {0, 1, 2}),
        ("x = torch.randn(8, 20) * 0.1\nreturn [x, torch.randn(8, 20) * 0.1, torch.rand(20) + 1]", set()),
        ("return list(torch.randn(3, 8, 20).unbind(0))", set()),
        ("x = torch.randn(8, 20)\nreturn [x[:, :9].contiguous(), x[:, 9:].clone()]", set()),
        ("x = torch.randn(8, 20)\nreturn [x, (x > 0).long()]", set()),
        ("x = torch.randn(30, 20)\nreturn [x, x[torch.randperm(30)[:7]].clone()]", set()),
        ("f = torch.vmap(lambda row: row / row.norm())\nx = torch.randn(8, 20)\nreturn [x, f(x)]", {0, 1}),
        ("a = torch.randn(8, 20)\na.mul_(2)\nreturn [a, torch.arange(20.0)]", set()),
        ("x = torch.randn(8, 20)\nreturn [x, torch.tensor(x.abs().max().item() / 127)]", {0, 1}),
        ("x = torch.randn(8, 20)\nreturn [x, torch.from_numpy(x.numpy().std(-1)), torch.rand(3)]", {0, 1}),
        ("x = torch.randn(8, 20).numpy() * 3\nreturn [torch.from_numpy(x), torch.from_numpy(x + 1)]", {0, 1}),
        ("import numpy as np\nx = np.random.randn(8, 20)\nreturn [torch.tensor(x), torch.tensor(x.mean(0))]", {0, 1}),
        ("import numpy as np\nr = np.random.rand\nreturn [torch.tensor(r(8, 20)), torch.tensor(r(8))]", set()),
        ("return [torch.from_numpy(torch.rand(8, n).numpy()) for n in (20, 9)]", set()),
        ("return [torch.randn(8, 20), torch.tensor(torch.rand(1).item())]", set()),
    ],
)
def test_arguments_that_follow_from_others_are_seen(tmp_path, inputs, related):
    """Mean and deviation beside their row were changed alone, and a kernel that computes them was rejected."""
    task = read(write(tmp_path, "return x + sum(m.sum() for m in more)", inputs))
    problem = task.build({}, "cpu")
    assert problem.related == related
    for distribution in task.distributions:
        own, now = problem.inputs(5), problem.inputs(5, distribution)
        assert all(torch.equal(own[i], now[i]) for i in related)


@pytest.mark.parametrize(("scale", "kept"), [("x.abs().max().item() / 127", True), ("torch.rand(1).item()", False)])
def test_a_number_that_is_made_of_an_argument_stays_beside_it(tmp_path, scale, kept):
    inputs = f"x = torch.randn(8, 20)\nreturn [x, {scale}]"
    problem = read(write(tmp_path, "return x * more[0]", inputs)).build({}, "cpu")
    assert problem.related == ({0, 1} if kept else set())
    own, now = problem.inputs(5), problem.inputs(5, "small_scale")
    assert (own[1] == now[1]) is kept and torch.equal(own[0], now[0]) is kept


@pytest.mark.parametrize(
    ("takes", "forward", "value", "other"),
    [
        ("x, start", "return x * torch.arange(99.0)[start : start + len(x), None]", 0, 1),
        ("x, cur_pos", "return x * torch.arange(99.0)[cur_pos]", 7, 6),
        ("x, step", "return x / (1 - 0.9**step)", 1, 2),
        ("x, step", "return x * 2", 1, None),
        ("x, start", "return x.sum(start)", 0, None),
        ("x, position", "return x * position", 20, None),
        ("x, dim", "return x.cumsum(dim)", 0, None),
    ],
)
def test_steps_so_far_are_others_where_the_file_takes_them(tmp_path, takes, forward, value, other):
    inputs = f"return [torch.randn(8, 20), {value}]"
    task = read(write(tmp_path, forward, inputs, takes=takes))
    problem = task.build({}, "cpu")
    assert problem.inputs(3)[1] == value and ("redrawn" in task.distributions) is (other is not None)
    if other is not None:
        assert problem.inputs(3, "redrawn")[1] == other
    warned = any("the same in every draw" in finding.message for finding in task.findings)
    assert warned is (other is None)


@pytest.mark.parametrize("reads", ["p[0]", "p"])
def test_rows_that_are_equal_stay_so_where_the_first_one_is_read_alone(tmp_path, reads):
    """A candidate that reads each row's own was rejected beside a file that reads the first."""
    inputs = "return [torch.randn(3, 20, 4), torch.arange(20).expand(3, 20)]"
    forward = f"p = more[0]\nreturn x * torch.arange(20.0)[{reads}].cos()[..., None]"
    problem = read(write(tmp_path, forward, inputs)).build({}, "cpu")
    drawn = problem.inputs(5, "redrawn")[1]
    assert bool((drawn == drawn[:1]).all()) is (reads == "p[0]")
    assert not torch.equal(drawn, problem.inputs(5)[1])


@pytest.mark.parametrize(
    ("reads", "dims"), [("m[0, 0]", {0, 1}), ("m[0]", {0}), ("m[:, 0, None]", {1}), ("m[:1, :1]", {0, 1}), ("m", set())]
)
def test_masks_that_are_equal_for_all_items_and_heads_stay_so(tmp_path, reads, dims):
    """Heads whose masks the file gives alike had other masks each, where it reads those of the first head."""
    inputs = "return [torch.randn(3, 4, 12, 12), torch.ones(12, 12).tril().bool().expand(3, 4, 12, 12)]"
    problem = read(write(tmp_path, f"m = more[0]\nreturn x.masked_fill(~{reads}, 0)", inputs)).build({}, "cpu")
    for seed in range(3):
        drawn = problem.inputs(seed, "redrawn")[1]
        assert {dim for dim in (0, 1) if bool((drawn == drawn.narrow(dim, 0, 1)).all())} == dims
        assert not torch.equal(drawn, problem.inputs(seed)[1])


@pytest.mark.parametrize("table", ["torch.rand(20, 4)", "torch.arange(80.0).view(20, 4).cos()"])
@pytest.mark.parametrize("reads", ["t[0]", "t[:1]", "t"])
def test_tables_that_are_equal_for_all_items_stay_so(tmp_path, reads, table):
    """Each item's own table came out as another where the file reads the first: frozen numbers were varied one by one,
    and outliers and exchanged elements did the same to random ones.
    """
    inputs = f"return [torch.randn(3, 20, 4), {table}.expand(3, 20, 4)]"
    task = read(write(tmp_path, f"t = more[0]\nreturn x * {reads}", inputs))
    problem = task.build({}, "cpu")
    drawn = [problem.inputs(seed, name)[1] for seed in (1, 2) for name in task.distributions]
    assert all(bool((t == t[:1]).all()) for t in drawn) is (reads != "t")
    assert not torch.equal(drawn[0], drawn[-1])


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_sparse_tensors_inside_leave_the_distributions(tmp_path, layout):
    inputs = f"x = torch.randn(8, 20).{layout}()\nreturn [x.to_dense(), torch.rand(3)]"
    task = read(write(tmp_path, "return x + more[0].sum()", inputs))
    assert "large_scale" in task.distributions and not task.build({}, "cpu").related


def test_zeros_become_segments():
    for shape in ((40,), (3, 40), (2, 3, 4)):
        for seed in range(20):
            found = redrawn(torch.zeros(shape, dtype=torch.int64), torch.Generator().manual_seed(seed))
            assert bool((found.diff(dim=-1) >= 0).all()) and found.unique().tolist() == [0, 1]


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("self.w[ids]", "torch.zeros(5, 6, dtype=torch.int64)"),  # types of tokens, which a candidate ignored
        ("self.w[:5] / (1 - 0.9 ** (ids + 1))", "torch.zeros(1, dtype=torch.int64)"),  # steps so far
        ("self.w * (torch.arange(8) < ids[:, None])[..., None]", "torch.full((3,), 8)"),  # lengths
    ],
)
def test_equal_integers_of_a_file_are_redrawn(tmp_path, forward, inputs):
    init = "self.w = nn.Parameter(torch.randn(8, 4))"
    task = read(write(tmp_path, f"return x.sum() + {forward}", f"return [torch.rand(4), {inputs}]", init, "x, ids"))
    problem = task.build({}, "cpu")
    assert "redrawn" in task.distributions and not task.findings
    assert not torch.equal(problem.inputs(1)[1], problem.inputs(1, "redrawn")[1])


def test_equal_parts_of_the_rows_of_another_input_stay(tmp_path):
    forward = "return torch.cat([p * (i + 1) for i, p in enumerate(x[: ids.sum()].split(ids.tolist()))]).sum(0) + x"
    task = read(write(tmp_path, forward, "return [torch.rand(12, 4), torch.full((3,), 4)]", takes="x, ids"))
    assert "redrawn" not in task.distributions and "ids is the same in every draw" in str(task.findings)


@pytest.mark.parametrize(
    ("forward", "taken"),
    [
        ("return x.masked_fill(torch.arange(x.shape[1])[:, None] >= ids[:, None, None], -9).amax(1)", True),
        ("return torch.stack([p.sum(0) for p in x.flatten(0, 1)[: ids.sum()].split(ids.tolist())])", False),
    ],
)
def test_lengths_of_padded_sequences_are_redrawn(tmp_path, forward, taken):
    """A kernel that ignores lengths passed where all were as long as the batch. Of packed ones they stay."""
    task = read(write(tmp_path, forward, "return [torch.rand(3, 16, 4), torch.full((3,), 16)]", takes="x, ids"))
    assert ("redrawn" in task.distributions) == taken
    assert ("ids is the same in every draw" in str(task.findings)) != taken


def test_what_is_sorted_stays_sorted():
    segments = torch.tensor([0] * 9 + [1] * 5 + [2])
    found = other(segments)
    assert bool((found.diff() >= 0).all()) and found.unique().tolist() == [0, 1, 2] and not torch.equal(found, segments)
    assert other([-7, -7, -7]) is None


def test_redrawn_integers_come_from_their_own_line():
    labels = torch.randint(0, 50, (200,))
    labels[::7] = -100
    found = other(labels)
    assert torch.equal(found < 0, labels < 0) and set(found.tolist()) <= set(labels.tolist())
    assert found.max() == labels.max() and not torch.equal(found.sort().values, labels.sort().values)
    edges = torch.stack([torch.randint(0, 90, (300,)), torch.randint(0, 5, (300,))], 1)
    assert other(edges)[:, 1].max() < 5
    padded = torch.tensor([-1, 4, 9, -1, 2, 8, 7, 0])  # places to write to, each once
    assert sorted(other(padded).tolist()) == sorted(padded.tolist()) and other(padded)[[0, 3]].tolist() == [-1, -1]


def test_labels_that_never_vary_are_redrawn(tmp_path):
    inputs = "torch.manual_seed(3)\nreturn [torch.randn(64, 20), torch.randint(0, 20, (64,))]"
    task = read(write(tmp_path, "return F.cross_entropy(x, *more)", inputs))
    assert task.distributions[-1] == "redrawn" and not task.findings
    problem = task.build({}, "cpu")
    own, drawn = problem.inputs(1), problem.inputs(1, "redrawn")
    assert torch.equal(own[0], drawn[0]) and not torch.equal(own[1], drawn[1])
    assert torch.equal(drawn[1], problem.inputs(1, "redrawn")[1])
    assert not torch.equal(drawn[1], problem.inputs(2, "redrawn")[1])
    assert torch.equal(problem.inputs(1, "negative")[1], own[1])


def test_starts_stay_before_ends(tmp_path):
    """An end before its start is nothing that the file defines: honest sums by differences of running sums failed."""
    forward = (
        "start, end = more\npos = torch.arange(x.shape[1])\n"
        "return (x * ((pos >= start[:, None]) & (pos < end[:, None]))).sum(1)"
    )
    start, end = [0, 4, 10, 2, 20, 11, 30, 5], [7, 9, 33, 3, 40, 12, 47, 6]
    inputs = f"return [torch.randn(8, 47), torch.tensor({start}), torch.tensor({end})]"
    problem = read(write(tmp_path, forward, inputs)).build({}, "cpu")
    assert not problem.kept
    for seed in range(20):
        _, one, other = problem.inputs(seed, "redrawn")
        assert bool((one < other).all())
        assert one.tolist() != start or other.tolist() != end


def test_offsets_and_their_lengths_agree(tmp_path):
    inputs = "return [torch.randn(9), torch.tensor([0, 2, 5, 9], dtype=torch.int32), torch.tensor([2, 3, 4])]"
    problem = made(tmp_path, "return x * len(more)", inputs)
    for seed in range(9):
        _, offsets, lengths = problem.inputs(seed, "redrawn")
        assert offsets.diff().tolist() == lengths.tolist()


def test_equal_offsets_of_queries_and_keys_stay_equal(tmp_path):
    inputs = "offsets = torch.tensor([0, 3, 5, 12, 13])\nreturn [torch.rand(13, 4), offsets, offsets.int()]"
    problem = made(tmp_path, "return x * more[0].sum() * more[1].sum()", inputs)
    own = problem.inputs(1)
    assert not problem.kept
    for seed in range(6):
        _, queries, keys = problem.inputs(seed, "redrawn")
        assert torch.equal(queries, keys.long()) and not torch.equal(queries, own[1])
        assert sorted(queries.diff().tolist()) == [1, 2, 3, 7]


@pytest.mark.parametrize(
    "low, high",
    [
        ([0, 1, 2, 30, 34, 60], [0, 2, 5, 40, 41, 70]),
        ([0, 3, 4, 5, 40, 41, 64], [0, 4, 6, 8, 50, 60, 90]),
        ([3, 0, 2, 1, 5, 4], [4, 1, 6, 2, 7, 6]),
    ],
)
def test_what_is_mended_is_still_in_order(low, high):
    """Single elements that were put back made offsets that fall, and permutations with a place named twice."""
    own = [torch.tensor(low), torch.tensor(high)]
    for seed in range(60):
        generator = torch.Generator().manual_seed(seed)
        others = [redrawn(one, generator) for one in own]
        keep_in_order(dict(enumerate(own)), dict(enumerate(others)), generator)
        assert bool((others[0] <= others[1]).all())
        for one, other in zip(own, others, strict=True):
            if bool((one.diff() >= 0).all()):
                assert bool((other.diff() >= 0).all()) and other[-1] == one[-1]
            else:
                assert sorted(other.tolist()) == sorted(one.tolist())


@pytest.mark.parametrize("dim", [0, 1])
def test_pairs_in_one_tensor_stay_in_order(tmp_path, dim):
    spans = torch.tensor([[0, 7], [4, 9], [10, 33], [2, 2], [20, 39], [11, 12], [30, 47], [4, 40], [0, 9]])
    spans = (spans.T if dim == 0 else spans).tolist()
    problem = made(tmp_path, "return x[more[0]]", f"return [torch.randn(48), torch.tensor({spans})]")
    for seed in range(20):
        low, high = problem.inputs(seed, "redrawn")[1].unbind(dim)
        assert bool((low <= high).all())


def test_what_is_written_out_lies_inside_at_every_size(tmp_path):
    """Honest loops over the sequences left rows behind the last end, where the file's own mask has them."""
    cuts = [0, 13, 40, 64, 96]
    forward = "return x * torch.bucketize(torch.arange(len(x)), more[0][1:], right=True)[:, None]"
    inputs = f"total = 96\ncuts = torch.tensor({cuts})\nreturn [torch.randn(total, 24), cuts]"
    surveys = Surveys(ProblemFile(write(tmp_path, forward, inputs)))
    found = variants(surveys)
    assert found
    for _, dims in found:
        x, ends = ModuleProblem(surveys.file, dims, "cpu").inputs(1)
        assert len(x) == int(ends.max()) and bool((ends.diff() > 0).all())


def test_what_the_file_does_not_take_stays_and_is_named(tmp_path):
    forward = "assert bool((lengths.diff() <= 0).all())\nreturn x[:, order] * lengths[:, None]"
    inputs = "return [torch.rand(4, 9), torch.tensor([9, 7, 7, 2]), torch.arange(9).flip(0)]"
    task = read(write(tmp_path, forward, inputs, takes="x, lengths, order"))
    problem = task.build({}, "cpu")
    assert problem.kept == {1} and "redrawn" in task.distributions
    drawn = problem.inputs(1, "redrawn")
    assert drawn[1].tolist() == [9, 7, 7, 2] and drawn[2].tolist() != list(range(8, -1, -1))
    (finding,) = task.findings
    assert finding.level == "warn"
    assert finding.message == "argument lengths is the same in every draw: a candidate may ignore it"


def test_what_changes_no_output_is_not_redrawn(tmp_path):
    task = read(write(tmp_path, "return x * 2", "return [torch.rand(4, 9), torch.arange(9), 3, None]"))
    assert "redrawn" not in task.distributions
    assert "arguments arg1, arg2 are the same in every draw" in task.findings[0].message


def test_a_plain_zero_is_named_too(tmp_path):
    """Other numbers are multiplied by something; a kernel that ignored a start of 0.0 passed without a word."""
    task = read(write(tmp_path, "return x * more[1] + more[0]", "return [torch.randn(9, 9), 0.0, 0.5]"))
    assert any("argument arg1 is the same in every draw" in found.message for found in task.findings)


def test_plain_lists_of_one_number_are_named_though_they_become_longer(tmp_path):
    inputs = "n = 40\nreturn [torch.rand(n, 9), [1] * n, [0.5] * n]"
    path = write(tmp_path, "return x * more[0][0] + more[1][0]", inputs)
    (found,) = (found.message for found in read(path, sweep=True).findings if "every draw" in found.message)
    assert "argument arg1 is the same in every draw" in found


@pytest.mark.parametrize("number", ["random.randint(1, 1 << 40)", "int(torch.randint(1 << 40, ()))"])
def test_plain_numbers_that_are_drawn_are_not_called_the_same(tmp_path, number):
    """A whole number that each draw had another of was told to be the same in all of them."""
    inputs = f"import random\nreturn [torch.rand(4, 9), {number}, 2]"
    path = write(tmp_path, "return x * (more[0] % 7 + more[1])", inputs)
    (found,) = (found.message for found in read(path).findings if "every draw" in found.message)
    assert "argument arg2 is the same in every draw" in found


# --------------------------------------------------------------------------------------------------------------------
# Plain zeros; tiny numbers, and rows that are alike
# --------------------------------------------------------------------------------------------------------------------


def test_numbers_of_both_signs_have_one_sign(tmp_path):
    """A row maximum that begins at 0 was right wherever a wide row had one number above it, and zeros in place of minus
    infinity wherever a row had one number above them: logits, or the biases beside them, had one sign, never both.
    """
    inputs = "return [torch.randn(6, 50), torch.randn(50), torch.rand(6, 50)]"
    problem = made(tmp_path, "return (x + more[0] + more[1]).amax(-1)", inputs)
    seen = set()
    for seed in range(60):
        own, now = problem.inputs(seed), problem.inputs(seed, "negative")
        assert torch.equal(now[2], -8 * own[2]) and torch.equal(now[1], -8 * own[1].abs())
        assert torch.equal(now[0].abs(), 8 * own[0].abs())
        signs = now[0].sign()
        assert bool((signs == signs[:, :1]).all()) and int(signs[:, 0].sum()) in (-6, 0, 6)
        seen.add(int(signs[:, 0].sum()))
    assert seen == {-6, 0, 6}


def test_positive_factors_are_taken_where_the_file_takes_no_negative_numbers(tmp_path):
    task = read(write(tmp_path, "return x / (more[0].sqrt() + 1e-8)", "return [torch.randn(9, 9), torch.rand(9, 9)]"))
    names = "standard large_scale small_scale negative tiny_scale outlier padded"
    assert task.distributions == tuple(names.split())
    problem = task.build({}, "cpu")
    own = problem.inputs(1)
    for distribution in ("negative", "outlier"):  # the other argument takes them
        assert torch.equal(problem.inputs(1, distribution)[1], own[1])
    for distribution, factor in (("small_scale", 1 / 16), ("tiny_scale", 2.0**-20)):
        assert torch.equal(problem.inputs(1, distribution)[1], own[1] * factor)


def test_tiny_numbers_are_for_epsilons(tmp_path):
    """Elsewhere they would tell no more than that exp(x) - 1 is not expm1(x)."""
    assert "tiny_scale" not in read(write(tmp_path, "return F.elu(x)", "return [torch.randn(9, 9)]")).distributions
    for forward in ("F.layer_norm(x, (9,))", "x / (x.abs().sum() + 1e-6)", "F.normalize(x)"):
        path = write(tmp_path, f"return {forward}", "return [torch.randn(9, 9)]")
        assert "tiny_scale" in read(path).distributions


def test_tiny_numbers_are_left_out_where_something_is_chosen(tmp_path):
    task = read(write(tmp_path, "return (x / (1e-6 + x.norm())).topk(2).values", "return [torch.randn(9, 9)]"))
    assert "tiny_scale" not in task.distributions and "alike" in task.distributions


@pytest.mark.parametrize(
    ("forward", "tiny"),
    [
        ("s = x.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127\nreturn (x / s).round() * s", True),
        ("return (x / 0.1).round() * 0.1", False),
        ("return (x / x.amax()).floor()", False),
    ],
)
def test_tiny_numbers_are_for_the_floors_of_scales(tmp_path, forward, tiny):
    """A largest number held at 1e-5, for 1e-8, passed."""
    task = read(write(tmp_path, forward, "return [torch.randn(9, 30)]"))
    assert ("tiny_scale" in task.distributions) is tiny


def test_arguments_that_take_a_distribution_have_it_beside_others(tmp_path):
    """Probabilities that may not be negative took that from logits as well."""
    forward = "return more[0] * (more[0].log() - x.log_softmax(-1))"
    task = read(write(tmp_path, forward, "return [torch.randn(8, 9), torch.rand(8, 9) + 0.1]"))
    problem = task.build({}, "cpu")
    own, other = problem.inputs(1), problem.inputs(1, "negative")
    assert torch.equal(other[1], own[1]) and torch.equal(other[0].abs(), 8 * own[0].abs())
    alone = read(write(tmp_path, "return x.log() + more[0].log()", "return list(torch.rand(2, 8, 9))"))
    assert "negative" not in alone.distributions


def test_rows_that_are_alike_go_to_one_place(tmp_path):
    problem = made(tmp_path, "return x.topk(2).values", "return [torch.randn(4, 64, 8)]")
    most = {name: problem.inputs(1, name)[0].argmax(-1).flatten().bincount().max() for name in ("standard", "alike")}
    assert most["standard"] < 80 and most["alike"] > 200


def test_flags_stay_and_numbers_in_order_stay_so(tmp_path):
    """A mask of 0.9 and 1.1 is none, and bins whose edges are in no order are not found by halving."""
    some = "torch.tensor([1.0, 0.0, 1.0])"
    inputs = f"return [torch.rand(8, 9), torch.linspace(0, 2, 9), {some}, torch.rand(3, 8).cumsum(-1)]"
    init = (
        "self.register_buffer('edges', torch.linspace(-1, 1, 9))\n"
        "self.register_buffer('causal', torch.ones(8, 8).tril())\n"
        "self.register_buffer('bias', torch.zeros(8))"
    )
    problem = made(tmp_path, "return x + self.bias.sum() + self.causal.sum()", inputs, init)
    problem.kept = problem.traits.frozen
    for seed in (1, 2):
        for distribution in ("standard", "negative", "small_scale", "outlier", "far_mean"):
            _, edges, flags, sums = problem.inputs(seed, distribution)
            assert bool((edges.diff() > 0).all()) and bool((sums.diff() >= 0).all())
            assert flags.tolist() == [1.0, 0.0, 1.0]
        weights = problem.weights(seed)
        assert bool((weights["edges"].diff() > 0).all()) and torch.equal(weights["causal"], torch.ones(8, 8).tril())
        assert len(weights["bias"].unique()) == 8
    assert not torch.equal(problem.inputs(1)[1], problem.inputs(2)[1])
    assert not torch.equal(problem.weights(1)["edges"], problem.weights(2)["edges"])


def test_rows_of_padding_stay_zero(tmp_path):
    """Candidates leave out padded tokens, as the row for them is zero and training keeps it so."""
    init = (
        "self.bag = nn.EmbeddingBag(3, 5, padding_idx=1)\n"
        "self.none = nn.Embedding(3, 5, padding_idx=2)\nnn.init.zeros_(self.none.weight)\n"
        "self.tied = nn.Linear(5, 3, bias=False)\nself.tied.weight = self.none.weight\n"
        "self.again = nn.Embedding(9, 5, padding_idx=0)\nnn.init.ones_(self.again.weight)\n"
        "self.own = nn.Parameter(torch.randn(7, 5) * (torch.arange(7) != 4)[:, None])\n"
        "self.affine = nn.Parameter(torch.stack([torch.ones(5), torch.zeros(5)]))\n"
        "self.halves = nn.Parameter(torch.cat([torch.randn(6, 5), torch.zeros(2, 5)]))"
    )
    problem = made(tmp_path, "return x", "return [torch.rand(3)]", init)
    zero = {"bag.weight": [1], "none.weight": [2], "tied.weight": [2], "own": [4]}
    for seed, distribution in (0, "standard"), (1, "standard"), (2, "trained"):
        weights = problem.weights(seed, distribution)
        for name in list(weights) if seed else ("bag.weight", "own"):
            rows = (~weights[name].any(1)).nonzero().flatten().tolist()
            assert rows == zero.get(name, []), name
        assert torch.equal(weights["none.weight"], weights["tied.weight"])


def test_what_keeps_away_from_zero_keeps_its_sign(tmp_path):
    inputs = "return [torch.rand(64), torch.rand(64) * 0.02 + 0.01, -1 - torch.rand(5)]"
    problem = made(tmp_path, "return x / more[0].sum()", inputs)
    for distribution in ("negative", "small_scale", "tiny_scale", "outlier", "large_scale", "far_mean"):
        plain, scales, below = problem.inputs(1, distribution)
        assert bool((scales > 0).all()) and bool((below < 0).all())
        assert distribution in ("large_scale", "far_mean") or bool((plain < 0).any())


@pytest.mark.parametrize("forward", ["return x.masked_fill(more[0] == 0, 0)", "return x * more[0]"])
def test_ones_are_flags_where_the_file_takes_some(tmp_path, forward):
    task = read(write(tmp_path, forward, "return [torch.rand(8, 40), torch.ones(8, 40)]"))
    assert "redrawn" in task.distributions
    problem = task.build({}, "cpu")
    assert bool((problem.inputs(1)[1] == 1).all())
    assert set(problem.inputs(1, "redrawn")[1].unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("forward", "inputs"),
    [
        ("return x / more[0]", "torch.ones(8, 40)"),
        ("return x / (more[0] + more[1])", "torch.ones(8, 40), torch.ones(8, 40)"),
        ("return x * more[0]", "torch.ones(40)"),
    ],
)
def test_other_ones_are_made_to_vary(tmp_path, forward, inputs):
    task = read(write(tmp_path, forward, f"return [torch.rand(8, 40), {inputs}]"))
    ones = task.build({}, "cpu").inputs(1)[1]
    assert 0.89 < float(ones.min()) < float(ones.max()) < 1.11


@pytest.mark.parametrize(
    ("added", "factor"),
    [
        ("-1e4", 8),
        ("- 10000.0", 8),
        ("- 1.0e4", 8),
        ("+ -65504.", 8),
        ("- 50_000", 8),
        ("- -torch.finfo(torch.float16).min", 8),
        ("-1e9", 128),
        ("- 8000", 128),
        ("-1e40", 128),
    ],
)
def test_scores_stay_below_what_hides_them(tmp_path, added, factor):
    """Masks of flags and of such numbers are the same function as long as they hide."""
    problem = made(tmp_path, f"return x {added}", "return [torch.rand(8, 9)]")
    assert torch.equal(problem.inputs(3, "large_scale")[0], factor * problem.inputs(3)[0])


# --------------------------------------------------------------------------------------------------------------------
# Zeros, as padding leaves them
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "forward", ["F.normalize(x, dim=-1)", "x.sign()", "x / (x.abs().amax(-1, keepdim=True) + 1e-6)"]
)
def test_zeros_and_rows_of_zeros_come(tmp_path, forward):
    """Kernels that divide by a norm without its epsilon passed."""
    path = write(tmp_path, f"return {forward}", "return [torch.randn(8, 20, 40)]")
    assert "padded" in read(path).distributions
    given = made(tmp_path, f"return {forward}", "return [torch.randn(8, 20, 40)]").inputs(5, "padded")[0]
    zero = given == 0
    assert zero.all((1, 2)).any() and not zero.all((1, 2)).all(), "items"
    assert zero.all(2).any() and (zero.any(2) & ~zero.all(2)).any(), "rows, and places in others"


def test_both_ends_of_the_range_come(tmp_path):
    """A histogram that leaves out 1 passed; rows that sum to 1 do so still."""
    problem = made(
        tmp_path, "return torch.histc(x, 8, 0, 1)", "return [torch.rand(40, 30), torch.rand(40, 9).softmax(1)]"
    )
    given, shares = problem.inputs(5, "padded")
    assert (given == 1).any() and (given == 0).all(1).any()
    assert (shares == 1).any(1).any() and torch.allclose(shares.sum(1), torch.ones(40))


def test_no_zeros_come_where_the_file_takes_none(tmp_path):
    places = ("F.normalize(x).max(1)[1]", "F.max_pool2d(x[None].abs() + 1, 2, return_indices=True)", "x.median(1)[1]")
    for forward in ("x.log()", "x.sort(-1).values", "torch.relu(x)", *places):
        assert "padded" not in read(write(tmp_path, f"return {forward}", "return [torch.rand(9, 9)]")).distributions


# --------------------------------------------------------------------------------------------------------------------
# One thing said in two ways
# --------------------------------------------------------------------------------------------------------------------

LENGTHS = torch.tensor([20, 13, 7, 16, 1, 9])
MASK = torch.arange(20) < LENGTHS[:, None]
SIZES = torch.tensor([5, 12, 3, 20, 8])
BATCH = torch.repeat_interleave(torch.arange(5), SIZES)
ORDER = torch.tensor([0, 1, 8, 16, 9, 2, 3, 10, 17, 4, 5, 6, 7, 11, 12, 13, 14, 15])
EDGES = torch.tensor([[0, 1, 2, 3, 3, 4], [1, 2, 0, 0, 1, 3]])


@pytest.mark.parametrize(
    "one, other, related",
    [
        (MASK, LENGTHS, True),
        (MASK.float(), LENGTHS.int(), True),
        (MASK, ~MASK, True),
        (BATCH, torch.nn.functional.pad(SIZES.cumsum(0), (1, 0)), True),
        (BATCH, SIZES, True),
        (torch.arange(48) - (SIZES.cumsum(0) - SIZES)[BATCH], SIZES, True),  # positions in segments
        (ORDER, ORDER.argsort(), True),
        (EDGES, EDGES[1].bincount().float(), True),
        (torch.eye(6)[[1, 0, 5, 2, 3, 3]], torch.tensor([1, 0, 5, 2, 3, 3]), True),
        (MASK, LENGTHS.flip(0), False),
        (LENGTHS, LENGTHS, False),  # starts of queries and of keys: they are mended together
        (torch.arange(9), torch.arange(9), False),
        (torch.ones(6, 20), torch.full((6,), 20), False),
        (BATCH, ORDER, False),
        (torch.tensor([0, 5, 9, 20]), torch.tensor([0, 3, 11, 12]), False),  # offsets of queries and of keys
        (torch.tensor([2, 0, 1, 3]), torch.tensor([30, 7, 9, 50]), False),
    ],
)
def test_what_follows_from_another_argument(one, other, related):
    assert kin({0: one, 3: other}) == (frozenset((0, 3)) if related else frozenset())


def test_lengths_and_their_mask_stay_as_they_belong(tmp_path):
    """Each was drawn anew alone, and a kernel that counts the mask in place of the lengths was rejected."""
    mask = "(torch.arange(20) < n[:, None]).float()"
    inputs = f"n = torch.tensor([20, 13, 7, 16, 1, 9])\nreturn [torch.randn(6, 20, 4), {mask}, n]"
    task = read(write(tmp_path, "return (x * m[..., None]).sum(1) / n[:, None]", inputs, takes="x, m, n"))
    problem = task.build({}, "cpu")
    assert problem.kin == {1, 2}
    assert _refresh_by(problem.traits, 2, LENGTHS) != "kept", "alone it would change in windows of exchanged elements"
    for distribution in task.distributions:
        _, given, lengths = problem.inputs(3, distribution)
        assert torch.equal(given, (torch.arange(20) < lengths[:, None]).float()), distribution
        assert torch.equal(lengths, LENGTHS) == (distribution != "redrawn"), distribution
    assert "redrawn" in task.distributions and not any("same in every draw" in one.message for one in task.findings)


def test_segments_and_offsets_become_others_as_they_belong(tmp_path):
    """They stayed, and a candidate that has their lengths within it passed."""
    inputs = "n = torch.tensor([5, 12, 3, 20, 8])\nb = torch.repeat_interleave(torch.arange(5), n)\n"
    inputs += "return [torch.randn(48, 4), b, F.pad(n.cumsum(0), (1, 0))]"
    forward = "return torch.zeros(5, 4).index_add(0, b, x) / n.diff()[:, None]"
    task = read(write(tmp_path, forward, inputs, takes="x, b, n"))
    assert not any("same in every draw" in one.message for one in task.findings)
    for seed in range(9):
        _, b, n = task.build({}, "cpu").inputs(seed, "redrawn")
        assert torch.equal(b.bincount(), n.diff()) and not torch.equal(b, BATCH)
        assert sorted(n.diff().tolist()) == sorted(SIZES.tolist())


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_the_edges_of_a_graph_stay_symmetric(dtype):
    """An honest layer that adds up columns in place of rows was rejected on a grid."""
    line = (torch.arange(9)[:, None] - torch.arange(9)).abs() == 1
    given = other(line.to(dtype))
    assert given is not None and torch.equal(given, given.T) and not torch.equal(given, line.to(dtype))
    assert torch.equal(given.sum(0).sort().values, line.sum(0).to(given.sum(0)).sort().values)
    slot = _refresh_by(InputTraits.of([line], {}), 0, line)
    assert slot == "kept"


# --------------------------------------------------------------------------------------------------------------------
# Numbers that a row holds twice
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twice", ["torch.cat([f, f], 1)", "f.repeat_interleave(2, 1)"])
def test_tables_of_rotary_embeddings_hold_each_number_twice(tmp_path, twice):
    """Kernels read one half of the cosines and sines, and were rejected where the other one varied by itself."""
    table = f"f = torch.outer(torch.arange(9.0), 100 ** -torch.linspace(0, 1, 8))\nt = {twice}"
    inputs = f"{table}\nreturn [torch.randn(3, 9, 16), t.cos(), t.sin()]"
    forward = "return x * cos + x.roll(8, -1) * sin * self.sin + self.ones"
    init = f"{table}\nself.register_buffer('sin', t.sin())\nself.ones = nn.Parameter(torch.ones(16))"
    task = read(write(tmp_path, forward, inputs, init, takes="x, cos, sin"))
    problem = task.build({}, "cpu")
    assert problem.twice.keys() == {1, 2, "sin"}
    own = problem.weights(0)["sin"]
    how = doubling(own)
    for distribution in task.distributions:
        weights = problem.weights(1, distribution)
        given = [*problem.inputs(1, distribution)[1:], weights["sin"]]
        assert how is not None and [doubling(table) for table in given] == [how] * 3, distribution
        assert not torch.equal(weights["sin"], own) and doubling(weights["ones"]) is None
    short = torch.rand(1, 2)
    assert torch.equal(doubled(short, how), short[:, :1].expand(1, 2)), "at sizes that do not tell how"


def test_repeated_rows_of_noise_are_no_labels(tmp_path):
    """A kernel that read the first row for all passed: few different numbers were taken for labels, and stayed."""
    inputs = "return [torch.randn(5).repeat(12, 1), torch.randint(0, 5, (60,)).float(), torch.full((60,), 0.5)]"
    problem = made(tmp_path, "return x", inputs)
    assert problem.traits.labels == {1, 2}
    noise, labels, _ = problem.inputs(1, "outlier")
    assert not torch.equal(noise[0].abs() / noise[0, 0].abs(), noise[1].abs() / noise[1, 0].abs())
    assert set(labels.tolist()) == {0, 1, 2, 3, 4}


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("forward", "shifted", "hidden"),
    [
        ("return F.layer_norm(self.l(x), (12,))", {"l.bias"}, {0}),
        ("return F.layer_norm(self.l(x.view(2, 3, 9)).view(6, 12) + more[0], (12,))", {"l.bias"}, {0}),
        ("return F.layer_norm(self.l(x), (12,)) + x.mean()", {"l.bias"}, set()),
        ("return F.layer_norm(self.l(x).relu(), (12,))", set(), set()),
        ("return self.l(F.layer_norm(x, (9,)))", set(), set()),
        ("return (self.l(x) - self.l(x).mean(-1, True)).softmax(-1)", set(), set()),
        ("return F.layer_norm(F.linear(x, self.l.weight) + self.b, (12,))", {"b"}, {0}),
        ("return F.layer_norm(x @ self.l.weight.mT - self.b.view(1, 12), (12,))", {"b"}, {0}),
        ("return F.layer_norm(torch.einsum('bi,oi->bo', x, self.l.weight).add_(more[0]) + self.b, (12,))", {"b"}, {0}),
        ("return F.layer_norm(torch.addmm(self.b, x, self.l.weight.t()), (12,))", {"b"}, {0}),
        ("return F.layer_norm(self.l(x) + self.b, (12,))", {"b", "l.bias"}, {0}),
        ("return F.group_norm(F.conv1d(x.view(6, 3, 3), self.c) + self.b[:, None], 3)", {"b"}, {0}),
        ("return F.layer_norm((x @ self.l.weight.mT + self.b).relu(), (12,))", set(), set()),
        ("return F.layer_norm(more[0] @ self.m * self.b, (12,))", set(), set()),
        ("return F.layer_norm(F.linear(x, more[1], more[2]), (12,))", {3}, {0, 2, 3}),
        ("return F.layer_norm(x @ more[1].mT + more[2], (12,)) + x.mean()", {3}, {2, 3}),
        ("return F.layer_norm(x @ more[1].mT + self.b, (12,))", set(), set()),
    ],
)
def test_biases_of_which_a_mean_is_taken_off_are_found(tmp_path, forward, shifted, hidden):
    inputs = "return [torch.randn(6, 9), torch.randn(6, 12), torch.randn(12, 9), torch.randn(12)]"
    init = "self.l, self.b = nn.Linear(9, 12), nn.Parameter(torch.zeros(12))\n"
    init += "self.c, self.m = nn.Parameter(torch.randn(12, 3, 1)), nn.Parameter(torch.randn(12, 12))"
    task = read(write(tmp_path, forward, inputs, init))
    problem = task.build({}, "cpu")
    assert problem.shifted.keys() == shifted and problem.behind_layers == hidden and "far_mean" in task.distributions
    weights, far = problem.weights(1), problem.weights(1, "far_mean")
    assert {name for name in weights if not torch.equal(weights[name], far[name])} == shifted - {3}
    near, now = problem.inputs(1), problem.inputs(1, "far_mean")
    assert {i for i in (0, 2, 3) if torch.equal(near[i], now[i])} >= hidden - shifted
    assert torch.allclose(now[3] - near[3], (now[3] - near[3])[:1], rtol=1e-3) is (3 in shifted)


@pytest.mark.parametrize(
    ("forward", "shifted"),
    [
        ("F.layer_norm(self.t(x) + self.p(x % 4), (12,))", {"t.weight", "p.weight"}),
        ("F.layer_norm(self.t.weight[x] + self.n[:5], (12,))", {"t.weight"}),
        ("F.embedding_bag(x, self.n, mode='mean').var(-1)", {"n"}),
        ("F.rms_norm(self.t(x), (12,)) + F.layer_norm(self.p(x % 4), (12,))", {"p.weight"}),
        ("F.layer_norm(self.t(x), (12,)) @ self.t.weight.T", set()),
        ("F.layer_norm(self.n, (12,))[x]", set()),
    ],
)
def test_tables_of_which_a_mean_is_taken_off_are_far_from_zero(tmp_path, forward, shifted):
    """Token ids alone have no mean: a variance by one pass behind a sum of embeddings passed."""
    init = "self.t, self.p, self.n = nn.Embedding(20, 12), nn.Embedding(4, 12), nn.Parameter(torch.randn(20, 12))"
    task = read(write(tmp_path, f"return {forward}", "return [torch.randint(0, 20, (3, 5))]", init))
    problem = task.build({}, "cpu")
    assert problem.shifted.keys() == shifted and ("far_mean" in task.distributions) is bool(shifted)
    weights, far = (problem.weights(1, name) for name in ("standard", "far_mean"))
    assert {name for name in weights if bool((far[name].mean(1) / far[name].std(1) > 50).all())} == shifted
    assert all(torch.equal(weights[name], far[name]) for name in weights.keys() - shifted)


@pytest.mark.parametrize(("forward", "far"), [("F.layer_norm({}, (12,))", True), ("{}", False)])
@pytest.mark.parametrize("product", ["x @ self.w + self.a + self.b", "F.linear(x, self.w.mT, self.a)"])
def test_both_names_of_a_tied_bias_are_far_from_zero(tmp_path, forward, product, far):
    """One of them stayed, and a variance by one pass passed where the candidate read that one."""
    init = "self.a, self.w = nn.Parameter(torch.zeros(12)), nn.Parameter(torch.randn(9, 12))\nself.b = self.a"
    task = read(write(tmp_path, f"return {forward.format(product)} - x.mean()", "return [torch.randn(6, 9)]", init))
    problem = task.build({}, "cpu")
    assert problem.shifted.keys() == ({"a", "b"} if far else set())
    weights = problem.weights(1, "far_mean")
    assert torch.equal(weights["a"], weights["b"]) and bool((weights["a"].abs() > 50).all()) is far


@pytest.mark.parametrize(
    ("forward", "inputs", "shifted"),
    [
        ("F.layer_norm(x @ self.w8.to(x.dtype) + self.b, (12,))", "", {"b"}),
        ("F.layer_norm(x @ more[0] + more[1], (12,)) + more[2][more[1]]", "torch.randint(0, 10, (12,))", set()),
        ("F.layer_norm(x @ self.w + (torch.bmm(x.new_zeros(4, 2, 3), self.v) + self.n).sum(), (12,))", "", set()),
    ],
)
def test_biases_beside_whole_numbers_and_empty_ones_are_read(tmp_path, forward, inputs, shifted):
    """Reading the file ended in an internal error, or in one of its own operators on other types."""
    init = "self.b, self.w = nn.Parameter(torch.zeros(12)), nn.Parameter(torch.randn(9, 12))\n"
    init += "self.n, self.v = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.zeros(4, 3, 0))\n"
    init += "self.register_buffer('w8', torch.randint(-8, 8, (9, 12), dtype=torch.int8))"
    given = f", torch.randn(9, 12), {inputs}, torch.randn(10)" * bool(inputs)
    task = read(write(tmp_path, f"return {forward}", f"return [torch.randn(8, 9){given}]", init))
    assert task.build({}, "cpu").shifted.keys() == shifted


def test_masks_stay_flags_at_a_size_of_one(tmp_path):
    """Ones in a single column varied by a tenth, and zeros became noise: who compared with 0 was wrong there."""
    inputs = (
        "n = torch.randint(1, T + 1, (B,))\n"
        "drawn = (torch.arange(T) < n[:, None]).float()\n"
        "causal = torch.full((T, T), float('-inf')).triu(1)\n"
        "return [torch.randn(B, T), drawn, torch.ones(B, T), causal, torch.rand(B, T)]"
    )
    forward = (
        "drawn, ones, causal, other = more\n"
        "x = (x * drawn * ones + other) * self.lower.sum(0)\n"
        "return (x[:, None] + causal).softmax(-1)"
    )
    path = write(tmp_path, forward, inputs, "self.register_buffer('lower', torch.ones(T, T).tril())")
    path.write_text(path.read_text().replace("class Model", "B = 5\nT = 12\nclass Model"))
    task = read(path)
    single = task.build({"T": 1}, "cpu")
    _, drawn, ones, causal, other = single.inputs(1)
    assert drawn.eq(1).all() and ones.eq(1).all() and causal.eq(0).all() and not other.eq(1).any()
    assert single.weights(1)["lower"].eq(1).all()
    assert task.build({}, "cpu").weights(1)["lower"].sum(0).unique().numel() == 12
