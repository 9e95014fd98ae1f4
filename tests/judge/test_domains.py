"""What the judge makes of inputs stays where the operator is defined: moved inputs, windows with new content, weights.

Beyond it a reference raises on the CPU, and on a GPU an assert in its kernel ends the process.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from kerneleval.devices import find as find_device
from kerneleval.judge.oracle import reference, reference_call
from kerneleval.judge.oracle.comparison import Match, compare
from kerneleval.judge.oracle.expectation import PROBE
from kerneleval.judge.oracle.reference_call import _moved, own_range
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.judge.windows.buffers import WindowBuffer, WindowLayout
from kerneleval.records import Candidate, NotJudgedError, Protocol, TensorSpec, UsageError, Verdict
from kerneleval.tasks import find, open_task

from .conftest import case_of, drawn

BELOW_ONE = 1 - 2.0**-24
ENDS = {"uniform": (0.0, BELOW_ONE, 1.0), "symmetric": (-BELOW_ONE, BELOW_ONE, -1.0), "above_one": (1.0, 1 + 2.0**-23)}


BOUNDED = (
    *("acos", "acosh", "asin", "atanh", "bernoulli", "binary_cross_entropy", "binary_cross_entropy_backward"),
    *("binary_cross_entropy_none", "binomial", "dice_loss", "erfinv", "legendre_polynomial_p", "logit", "ndtri"),
    *("sigmoid_backward", "tanh_backward", "uniform", "zeta"),
)
"""Tasks over (M, N) with arguments that end somewhere."""


@pytest.mark.parametrize("name", BOUNDED)
def test_numbers_at_the_ends_of_a_domain_are_not_moved_out_of_it(name):
    """Bernoulli, binary cross entropy and the like raise; others made NaN of what was none."""
    task = find(name)
    for direction in task.directions:
        for turn in range(3):
            case = case_of(name, {"M": 64, "N": 96}, direction=direction)
            args, grads = drawn(task, case)
            for spec, arg in zip(task.arguments(case.dims_map, "float32"), args, strict=True):
                if isinstance(spec, TensorSpec) and spec.values in ENDS and spec.scale == 1:
                    arg.view(-1)[::2] = ENDS[spec.values][turn % len(ENDS[spec.values])]
            expectation = reference.expect(task, case, args, grads)
            call = reference_call.ReferenceCall(task=task, case=case, args=args, grads=grads)
            for moved, wide in zip(call.moved().run("fp32"), expectation.oracle, strict=True):
                if reference_call.inexact(wide) and task.tolerance.law is None:
                    assert bool((moved.isfinite() | ~wide.isfinite()).all())
            if task.tolerance.law is None:
                assert isinstance(compare(expectation.native, expectation), Match)


def test_what_is_drawn_is_not_run_on_moved_inputs():
    task, runs = find("bernoulli"), []

    def counted(*args: Any) -> torch.Tensor:
        runs.append(args[0].dtype)
        return task.reference(*args)

    mine = replace(task, reference=counted)
    case = case_of("bernoulli", {"M": 30, "N": 40})
    reference.expect(mine, case, *drawn(mine, case))
    assert runs == [torch.float64, torch.float32]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.rand(300, 300),
        torch.rand(300, 300) * 2 - 1,
        torch.rand(70_000).add(1),
        torch.randint(0, 2, (500,)).float(),
        torch.rand(200, dtype=torch.bfloat16),
        torch.randn(90, dtype=torch.complex64),
        torch.tensor([1.0]),
        torch.full((40,), 1.0),
    ],
)
def test_moved_numbers_stay_in_their_own_range(tensor):
    for number in range(4):
        for again in (0, 1000):
            found = _moved(tensor, number + again, within=own_range(tensor))
            parts, moved = (torch.view_as_real(t) if t.is_complex() else t.float() for t in (tensor, found))
            high = max(float(parts.max()), 1.0 if bool((parts == parts.flatten()[0]).all()) else -math.inf)
            assert float(moved.max()) <= high and (
                float(moved.min()) >= float(parts.min()) or tensor.unique().numel() == 1
            )
            size = ((moved - parts).abs() / parts.abs())[parts != 0]
            assert float(size.min()) > 0.99 * PROBE and float(size.max()) < 1.5 * PROBE


@pytest.mark.parametrize("value", [0.3, -5.0, 7.0])
def test_equal_numbers_move_up_and_down(value):
    tensor = torch.full((999,), value)
    up = (_moved(tensor, 1, within=own_range(tensor)) > tensor).float().mean()
    assert 0.4 < float(up) < 0.6


def test_what_was_outside_of_a_domain_moves_as_ever():
    tensor = torch.linspace(-50, 50, 999)
    assert torch.equal(_moved(tensor, 2, within=(0.0, 0.001)), _moved(tensor, 2))
    odd = torch.tensor([math.inf, -math.inf, 3e38, 0.0, math.nan])
    found = _moved(odd, 1, within=own_range(odd))
    assert torch.equal(found.isfinite(), odd.isfinite()) and float(found[3]) == 0
    assert own_range(torch.ones(0)) is None


# -- Problem files ----------------------------------------------------------------------------------------------------


FILE = """
import torch, torch.nn as nn, torch.nn.functional as F
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {takes}):
        {body}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""

LOG = "(t * torch.log(p).clamp_min(-100) + (1 - t) * torch.log1p(-p).clamp_min(-100))"
TAKEN = "return F.binary_cross_entropy(p, t)"
RIGHT, SUM, CUT = f"return -{LOG}.mean()", f"return -{LOG}.sum()", f"p, t = p[:, 8:], t[:, 8:]; return -{LOG}.mean()"
RAND, ROWS = "torch.rand(48, 200)", "torch.randn(48, 200).softmax(-1)"
BERNOULLI = "torch.distributions.Bernoulli(probs=p, validate_args=True)"
ROWS_TAKEN = "assert bool(((p.sum(-1) - 1).abs() < 1e-6).all()); return -(p * p.log()).sum(-1)"

FILES: dict[str, tuple[str, str, str, str, tuple[str, ...], str]] = {
    "bce": ("p, t", f"{RAND}, {RAND}", TAKEN, RIGHT, (SUM, CUT), "pass"),
    "flags": ("p, t", f"{RAND}, torch.randint(0, 2, (48, 200)).float()", TAKEN, RIGHT, (SUM, CUT), "pass"),
    "fixed_ones": ("p, t", f"{RAND}, torch.ones(48, 200)", TAKEN, RIGHT, (SUM, CUT), "pass"),
    "fixed_zeros": ("p, t", f"{RAND}, torch.zeros(48, 200)", TAKEN, RIGHT, (SUM, CUT), "pass"),
    "acos": ("x", f"{RAND} * 2 - 1", "return x.acos()", "return torch.pi / 2 - x.asin()", ("return 1.57 - x",), "pass"),
    "sqrt": ("x", RAND, "return (1 - x * x).sqrt()", "return ((1 - x) * (1 + x)).sqrt()", ("return 1 - x",), "pass"),
    "drops": (
        "x, p, u",
        f"{RAND}, {RAND} / 2 + 0.5, {RAND}",
        "return x * (u < p) / p",
        "return torch.where(u < p, x / p, 0.0)",
        ("return torch.where(u < p, x, 0.0)",),
        "pass",
    ),
    "validated": ("p", RAND, f"return {BERNOULLI}.variance", "return p - p * p", ("return p.sqrt() - p",), "pass"),
    "rows": ("p", ROWS, ROWS_TAKEN, "return -torch.xlogy(p, p).sum(-1)", ("return -p.log().sum(-1)",), "pass"),
    "symmetric": (
        "x",
        "(lambda x: x + x.mT)(torch.rand(60, 60))",
        "assert torch.equal(x, x.mT); return x @ x",
        "return x.mT @ x",
        ("return x @ x * 1.001",),
        "pass",
    ),
    "weights": (
        "x",
        RAND,
        "return x * self.p.logit() + F.binary_cross_entropy(self.p, self.q)",
        "p, t = self.p, self.q; return x * (p / (1 - p)).log() - " + LOG + ".mean()",
        ("return x * self.p.logit()",),
        "self.p, self.q = nn.Parameter(torch.rand(200)), nn.Parameter(torch.ones(200))",
    ),
    "ascending": (
        "x",
        f"{RAND}.sort().values",
        "assert bool((x.diff() >= 0).all()); return x.diff()",
        "return x[:, 1:] - x[:, :-1]",
        ("return x.diff() * 1.001",),
        "pass",
    ),
    "edges": (
        "x, e",
        f"{RAND}, torch.linspace(0, 1, 9)",
        "assert bool((e.diff() > 0).all() and e[-1] == 1); return torch.relu(x[..., None] - e).sum(-1)",
        "return (x[..., None] - e).clamp_min(0).sum(-1)",
        ("return (x[..., None] - e).sum(-1)",),
        "pass",
    ),
}  # fmt: skip


def test_moved_inputs_of_a_file_stay_in_their_range_where_it_takes_no_others(tmp_path):
    path = tmp_path / "problem.py"
    ends = "torch.rand(48, 200).mul(9).round().div(9) * 2 - 1"
    for bounded, body in ((True, "return x.acos()"), (False, "return x * 2")):
        path.write_text(FILE.format(name="Model", init="pass", takes="x", body=body, inputs=ends))
        task = open_task(str(path))
        problem = task.build({}, "cpu")
        case = case_of(task.name, {})
        call = reference_call.ReferenceCall(task=task, case=case, args=problem.inputs(1), problem=problem)
        assert problem.bounded is bounded and call.args[0].abs().max() == 1
        for number in range(3):
            moved = call.moved(number=number)
            assert (float(moved.args[0].abs().max()) <= 1) is bounded
            assert all(bool(out.isfinite().all()) for out in moved.run("fp32"))


@pytest.mark.slow(every=5)
@pytest.mark.parametrize("name", FILES)
def test_files_that_take_a_range_of_numbers_are_judged(judge, tmp_path, name):
    takes, inputs, taken, right, wrong, init = FILES[name]
    path, parts = tmp_path / f"{name}.py", {"takes": takes, "inputs": inputs, "init": init}
    path.write_text(FILE.format(name="Model", body=taken, **parts))
    task = open_task(str(path), sweep=True)

    def judged(body: str, *, fail_fast: bool = False) -> Verdict:
        source = FILE.format(name="ModelNew", body=body, **parts)
        allow, sizes = ("custom", "mixed", "library"), ("given", "tiny", "small", "edge")
        protocol = Protocol(timed=False, allow=allow, tier="quick", categories=sizes)
        candidate = Candidate(files=(("candidate.py", source),), language="torch")
        return judge.check(candidate, task, protocol, fail_fast=fail_fast)

    verdict = judged(right)
    assert verdict.verdict == "passed", verdict.message
    for body in wrong:
        verdict = judged(body, fail_fast=True)
        assert (verdict.verdict, verdict.reason) == ("failed", "wrong_output"), (body, verdict.message)


def drawn_of(path):
    """One case of a problem file, one draw of it, and its layout."""
    task = open_task(str(path))
    problem = task.build({}, "cpu")  # type: ignore[misc]
    bound = BoundCase(task, case_of(task.name, {}), find_device("cpu"), tf32=False, problem=problem)
    bound.weights = {}
    drawn = bound.draw(1)
    layout = bound.call_layout(drawn)
    return bound, drawn, layout


@pytest.mark.parametrize(
    ("inputs", "refresh"),
    [
        ("F.one_hot(torch.randint(0, 60, (48,)), 60).float()", "rows"),
        ("torch.randint(0, 2, (300,)).float()", "rows"),
        ("torch.rand(60, 60).lt(0.2).float()", "scaled"),
        ("torch.rand(48, 60).softmax(-1)", "records"),
        ("torch.rand(1, 60).softmax(-1)", "moved"),
        ("torch.rand(60).softmax(-1)", "moved"),
        ("torch.rand(48, 48).sub(99 * torch.ones(48, 48).triu(1)).softmax(-1).tril()", "kept"),
        ("torch.rand(48, 60)", "elements"),
        ("torch.rand(48, 60).sort().values", "steps"),
        ("(torch.rand(48, 60) * 50).floor().sort().values / 50", "steps"),
        ("torch.rand(48, 60, dtype=torch.bfloat16).cumsum(-1) / 60", "steps"),
    ],
)
def test_flags_and_ranges_stay_such_in_timed_windows(tmp_path, inputs, refresh):
    """One-hot targets of 1.3 were no targets for a binary cross entropy."""
    path = tmp_path / "flags.py"
    path.write_text(FILE.format(name="Model", takes="p", inputs=inputs, init="pass", body="return p.sum(-1)"))
    bound, drawn, layout = drawn_of(path)
    assert layout.slots[0].refresh == refresh
    buffer = WindowBuffer(WindowLayout([layout] * 3, "forward"), bound.device, [drawn.tensors] * 3)
    for _ in range(5):
        buffer.refresh(torch.Generator().manual_seed(1))
    for call in range(3):
        now, was = buffer.tensor(call, 0), drawn.args[0]
        assert float(now.min()) >= 0 and float(now.max()) <= float(was.max())
        assert torch.equal(now, was) == (refresh == "kept")
        if "softmax" in inputs:
            assert torch.allclose(now.sum(-1), torch.ones(was.shape[:-1]))
        if refresh == "rows":
            assert torch.equal(now.sum(-1), was.sum(-1))
        if refresh == "steps":
            assert bool((now.diff() >= 0).all())


def test_what_a_file_takes_alone_is_kept_in_all_windows(tmp_path):
    path = tmp_path / "edges.py"
    takes, inputs, taken = FILES["edges"][:3]
    path.write_text(FILE.format(name="Model", takes=takes, inputs=inputs, init="pass", body=taken))
    bound, drawn, layout = drawn_of(path)
    assert [slot.refresh for slot in layout.slots] == ["elements", "kept"]
    buffer = WindowBuffer(WindowLayout([layout] * 2, "forward"), bound.device, [drawn.tensors] * 2)
    buffer.refresh(torch.Generator().manual_seed(1))
    assert torch.equal(buffer.tensor(0, 1), torch.linspace(0, 1, 9))
    assert any("argument e is the same in every draw" in finding.message for finding in bound.task.findings)


@pytest.mark.parametrize(
    ("body", "inputs", "bounded"),
    [
        ("return p.sum(-1) / (p.abs().sum(-1) + 1)", RAND, False),
        ("return p.sum(-1)", "torch.randint(0, 2, (48, 200)).float()", False),
        ("return torch.softmax(p, -1) + self.q", "torch.randn(48, 200)", False),
        ("return F.binary_cross_entropy(p, p)", RAND, True),
        ("return p.acosh()", f"{RAND} + 1", True),
        ("return p * F.binary_cross_entropy(self.q, self.q)", RAND, True),
    ],
)
def test_only_files_that_need_it_are_moved_within_their_range(tmp_path, body, inputs, bounded):
    """Flags would all move one way, and bounds of their sums be up to twice as wide."""
    path = tmp_path / "file.py"
    init = "self.q = nn.Parameter(torch.rand(200))"
    path.write_text(FILE.format(name="Model", takes="p", inputs=inputs, init=init, body=body))
    assert open_task(str(path)).build({}, "cpu").bounded is bounded  # type: ignore[misc]


def test_a_file_that_raises_at_other_sizes_loses_those_alone(tmp_path):
    path = tmp_path / "sized.py"
    path.write_text(FILE.format(name="Model", takes="p", inputs=RAND, init="pass", body="assert 0, 'no such size'"))
    task = open_task(str(path))
    problem = task.build({}, "cpu")  # type: ignore[misc]
    for category, error in ("given", UsageError), ("small", NotJudgedError):
        case = replace(case_of(task.name, {}), shape_category=category)
        bound = BoundCase(task, case, find_device("cpu"), tf32=False, problem=problem)
        with pytest.raises(UsageError, match="no such size") as caught:
            bound.draw(1)
        assert type(caught.value) is error


def test_files_that_draw_are_refused_for_that(tmp_path):
    for body in ("return torch.bernoulli(p)", "return torch.multinomial(p, 4)"):
        path = tmp_path / "draws.py"
        path.write_text(FILE.format(name="Model", takes="p", inputs=RAND, init="pass", body=body))
        problem = open_task(str(path)).build({}, "cpu")  # type: ignore[misc]
        with pytest.raises(NotJudgedError, match="random numbers that forward draws"):
            problem.reference(problem.inputs(1), problem.weights(1))
