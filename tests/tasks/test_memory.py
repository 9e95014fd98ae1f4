"""Recurrences of problem files that forget are also judged where they remember."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.tasks.formats.kernelbench import read

FILE = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.p = torch.nn.Parameter({parameter})
        self.skip = torch.nn.Parameter(torch.ones(4))
    def forward(self, x{more}):
        {before}
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = {step}
            out.append(h + self.skip * x[:, t])
        return torch.stack(out, 1)
def get_inputs():
    return [torch.randn(2, 40, 4){given}]
def get_init_inputs():
    return []
"""


def written(folder: Path, step: str, parameter: str = "torch.rand(4)", gate: str = "", before: str = "pass") -> Path:
    path = folder / "problem.py"
    more, given = (", f", f", {gate}") if gate else ("", "")
    path.write_text(FILE.format(step=step, parameter=parameter, more=more, given=given, before=before))
    return path


@pytest.mark.parametrize(
    ("step", "parameter", "gate", "what", "toward"),
    [
        ("torch.exp(-torch.exp(self.p)) * h + x[:, t]", "torch.rand(4)", "", "p", "down"),
        ("torch.sigmoid(self.p) * h + x[:, t]", "torch.randn(4) - 2", "", "p", "up"),
        ("self.p * h + x[:, t]", "torch.rand(4) / 2", "", "p", "one"),
        ("torch.exp(self.p) * h + x[:, t]", "-1 - torch.rand(4)", "", "p", "zero"),
        ("torch.sigmoid(f[:, t]) * h + self.p * x[:, t]", "torch.ones(4)", "torch.randn(2, 40, 4)", 1, "up"),
    ],
)
def test_what_holds_the_decays_is_found(tmp_path, step, parameter, gate, what, toward):
    task = read(written(tmp_path, step, parameter, gate))
    assert "long_memory" in task.distributions
    problem = task.build({}, "cpu")
    assert problem.slow is not None and (problem.slow.what, problem.slow.toward) == (what, toward)
    args, weights = problem.inputs(1, "long_memory"), problem.weights(1, "long_memory")
    usual_args, usual_weights = problem.inputs(1), problem.weights(1)
    changed = [i for i, (a, b) in enumerate(zip(args, usual_args, strict=True)) if not a.equal(b)]
    changed += [name for name in weights if not weights[name].equal(usual_weights[name])]
    assert changed == [what]


@pytest.mark.parametrize(
    "step",
    [
        "h + self.p * x[:, t]",  # remembers anyway
        "self.p * x[:, t] + (x[:, t - 1] if t else 0)",  # one step back and never more
        "self.p * x[:, t]",
    ],
)
def test_nothing_else_is_changed(tmp_path, step):
    assert "long_memory" not in read(written(tmp_path, step)).distributions


def test_files_without_steps_are_not_tried(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x.sum(-1)\n"
        "def get_inputs():\n    return [torch.randn(64, 40)]\ndef get_init_inputs():\n    return []\n"
    )
    assert "long_memory" not in read(path).distributions


GATED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, g, k, q):
        {before}
        h, out = 0, []
        for t in range(x.shape[1]):
            {step}
        return torch.stack(out, 1)
def get_inputs():
    return [torch.randn(2, 24, 6), torch.randn(2, 24, 6){shift}, torch.randn(2, 24, 6), torch.randn(2, 24, 6)]
def get_init_inputs():
    return []
"""
STATE = "h = {decay} * h + k[:, t, :, None] * x[:, t, None]; out.append((q[:, t, :, None] * h).sum(1))"
ATTENTION = (
    "w = (q[:, t, None] * k[:, :t + 1]).sum(-1) + g[:, :t + 1, 0]; "
    "out.append((w.softmax(-1)[..., None] * x[:, :t + 1]).sum(1))"
)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("step", "shift", "before", "gates"),
    [
        (STATE.format(decay="a[:, t, :, None]"), " + 3", "a = torch.sigmoid(g)", {1}),
        (STATE.format(decay="a[:, t, :, None]"), " - 3", "a = torch.exp(-torch.nn.functional.softplus(g))", {1}),
        (STATE.format(decay="g[:, t, :, None].sigmoid()"), "", "q = q.cumsum(1)", {1}),
        (
            "h = torch.exp(-d[:, t, 0, None, None] * b[:, t, :1, None]) * h + k[:, t, :, None] * x[:, t, None]; "
            "out.append((q[:, t, :, None] * h).sum(1))",
            "",
            "d, b = g.abs(), k.abs()",
            {1, 2},  # one of them is taken up too
        ),
        (STATE.format(decay="0.9") + "; out[-1] = out[-1] * g[:, t]", "", "pass", set()),
        ("h = torch.tanh(h * torch.sigmoid(g[:, t]) + k[:, t] * x[:, t]); out.append(h * q[:, t])", "", "pass", set()),
        (ATTENTION, "", "pass", set()),
        ("out.append(g[:, t] * k[:, t] * q[:, t] * x[:, t])", "", "pass", set()),
    ],
)
def test_gates_are_found_and_keep_their_size(tmp_path, step, shift, before, gates):
    """A running sum of logarithms of thousands has lost the digits of their differences."""
    path = tmp_path / "problem.py"
    path.write_text(GATED.format(step=step, shift=shift, before=before))
    task = read(path)
    problem = task.build({}, "cpu")
    assert problem.gates == gates
    assert task.tolerance.rms == (4.0 if gates else 1.0)
    for distribution in ("large_scale", "negative", "outlier", "small_scale"):
        args, usual = problem.inputs(1, distribution), problem.inputs(1)
        open_at = 100 if distribution == "large_scale" else float("nan")
        same = {i for i, (a, b) in enumerate(zip(args, usual, strict=True)) if bool(((a == b) | (a == open_at)).all())}
        assert same == (set() if distribution == "small_scale" else gates)


def test_gates_with_their_steps_in_another_dim_are_found(tmp_path):
    path = tmp_path / "problem.py"
    text = GATED.format(step=STATE.format(decay="g[:, :, t, None].sigmoid()"), shift="", before="pass")
    path.write_text(
        text.replace(
            "torch.randn(2, 24, 6), torch.randn(2, 24, 6),", "torch.randn(2, 24, 6), torch.randn(2, 6, 24),", 1
        )
    )
    assert read(path).build({}, "cpu").gates == {1}


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("torch.sigmoid(x[:, t] * self.p) * h + x[:, t]", True),
        ("torch.exp(-torch.exp(x[:, t] - 2)) * h + x[:, t]", True),
        ("torch.exp(-torch.exp((n := torch.layer_norm(x[:, t], x.shape[2:])) - 2)) * h + n", True),
        ("torch.exp(-1.5 * torch.exp(x[:, t] * 0.1)) * h + x[:, t]", True),
        ("torch.sigmoid(self.p) * h + x[:, t]", False),
        ("h + torch.sigmoid(x[:, t])", False),
        ("torch.tanh(torch.sigmoid(x[:, t]) * h + x[:, t])", False),
    ],
)
def test_decays_made_of_the_input_are_found(tmp_path, step, found):
    task = read(written(tmp_path, step))
    assert ("large_scale" not in task.distributions) is found
    assert (task.tolerance.rms > 1) is found


def test_gates_are_saturated_where_their_exponential_overflows(tmp_path):
    """A sigmoid as exp(x) / (1 + exp(x)), and a softplus as log(1 + exp(x)), passed, because decays keep their size.
    Where nothing is left, it is in all steps: differences of running sums would lose their digits elsewhere.
    """
    text = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, gate):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = {decay} * h + x[:, t]
            out.append(h)
        return torch.stack(out, 1)
def get_inputs():
    return [torch.randn(2, 12, 4), {gates}]
def get_init_inputs():
    return []
"""
    softplus = "torch.exp(-2 * torch.nn.functional.softplus({}))"
    cases = (
        ("torch.sigmoid(gate[:, t])", "torch.randn(2, 12, 4)", None),
        (softplus.format("gate[:, t]"), "torch.randn(2, 12, 4)", 2),
        (softplus.format("gate[..., t]"), "torch.randn(2, 4, 12)", 1),
        (softplus.format("gate[t]"), "torch.randn(12)", "stays"),
        ("gate[:, t]", "torch.rand(2, 12, 4)", "stays"),
    )
    for number, (decay, gates, full) in enumerate(cases):
        path = tmp_path / f"{number}.py"
        path.write_text(text.format(decay=decay, gates=gates))
        problem = read(path).build({}, "cpu")
        assert (problem.gates, problem.saturated) == ({1}, {} if full == "stays" else {1: full})
        at_100 = problem.inputs(1, "large_scale")[1] == 100
        if isinstance(full, int):
            slices = at_100.movedim(full, 0).flatten(1)
            assert bool((slices.any(1) == slices.all(1)).all()) and int(slices.all(1).sum()) == 2
        else:
            assert bool(at_100.any()) is (full is None) and not bool(at_100.all())


def test_what_a_gate_has_no_part_in_says_nothing_of_it(tmp_path):
    """The keys of an attention beside: what is left of them is the same for any gate, as of one that is open."""
    text = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, gate, q, k):
        h, out = torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = torch.exp(-torch.nn.functional.softplus(gate[:, t])) * h + x[:, t]
            out.append(h)
        return torch.stack(out, 1) + (q @ k.mT).softmax(-1) @ k
def get_inputs():
    return [torch.randn(2, 12, 4), torch.randn(2, 12, 4), torch.randn(2, 12, 4), torch.randn(2, 12, 4)]
def get_init_inputs():
    return []
"""
    (tmp_path / "beside.py").write_text(text)
    assert read(tmp_path / "beside.py").build({}, "cpu").saturated == {1: 2}
