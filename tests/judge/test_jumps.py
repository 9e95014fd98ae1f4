"""Problem files whose outputs jump: a few elements fall to the other side of a step in honest kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.devices import find as find_device
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import Match, compare, matches
from kerneleval.judge.oracle.expectation import Expectation
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.judge.probes.repeats import exchanged_call
from kerneleval.judge.windows import inputs
from kerneleval.records import Case, NotJudgedError
from kerneleval.tasks import open_task
from kerneleval.tasks.formats.jumps import Noise, jumps, noisy

TASK = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, x):
        {forward}

rows, n = {rows}, 512
def get_inputs():
    return [torch.randn(rows, n)]
def get_init_inputs():
    return []
"""


def bound(folder: Path, forward: str, rows: int = 256, distribution: str = "standard", dtype: str = "") -> BoundCase:
    path = folder / "problem.py"
    text = TASK.format(forward=forward.replace("\n", "\n        "), rows=rows)
    path.write_text(text.replace("n)]", f"n, dtype=torch.{dtype})]") if dtype else text)
    task = open_task(str(path))
    case = Case(
        task=task.name, direction="forward", dims=(), dtype="float32", layout="contiguous", distribution=distribution
    )
    assert task.build is not None
    made = BoundCase(task, case, find_device("cpu"), tf32=False, problem=task.build({}, "cpu"))
    made.weights = {}
    return made


def passes(output: torch.Tensor, expectation: Expectation) -> bool:
    return isinstance(compare([output], expectation), Match)


def amax(x: torch.Tensor) -> torch.Tensor:
    return x.abs().amax(-1, keepdim=True)


def in_turn(x: torch.Tensor) -> torch.Tensor:
    """Means of the rows, their terms added in another order."""
    return x.view(len(x), 16, 32).sum(1).sum(-1, keepdim=True) * (1 / 512)


def softly(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e * (1 / e.view(len(x), 16, 32).sum(1).sum(-1, keepdim=True))


def stuck(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x[:3], x[2:3], x[4:]])


INT8 = "s = x.abs().amax(-1, keepdim=True) / 127\nreturn torch.round(x / s).clamp(-127, 127) * s"
FP8 = "s = x.abs().amax(-1, keepdim=True) / 448\nreturn (x / s).to(torch.float8_e4m3fn).float() * s"
FILES = {
    "fixed": (
        "return torch.round(x / 0.05) * 0.05",
        lambda x: torch.round(x * (1 / 0.05)) * 0.05,
        [
            lambda x: torch.round(x / 0.0501) * 0.0501,
            lambda x: torch.trunc(x / 0.05) * 0.05,
            lambda x: stuck(torch.round(x / 0.05) * 0.05),
            lambda x: x.clone(),
        ],
    ),
    "affine": (
        "return torch.fake_quantize_per_tensor_affine(x, 0.03, 3, -128, 127)",
        lambda x: (torch.clamp(torch.round(x * (1 / 0.03) + 3), -128, 127) - 3) * 0.03,
        [
            lambda x: (torch.clamp(torch.round(x / 0.03) + 2, -128, 127) - 2) * 0.03,
            lambda x: torch.round(x / 0.03) * 0.03,
        ],
    ),
    "int8": (
        INT8,
        lambda x: torch.round(x * (127 / amax(x))).clamp(-127, 127) / (127 / amax(x)),
        [
            lambda x: torch.round(x / amax(x) * 128).clamp(-128, 127) * (amax(x) / 128),
            lambda x: torch.round(x / amax(x).roll(1, 0) * 127).clamp(-127, 127) * (amax(x).roll(1, 0) / 127),
        ],
    ),
    "fp8": (
        FP8,
        lambda x: (x * (448 / amax(x))).clamp(-448, 448).to(torch.float8_e4m3fn).float() / (448 / amax(x)),
        [lambda x: (x / amax(x) * 448).to(torch.float8_e5m2).float() * (amax(x) / 448)],
    ),
    "layer_norm": (
        "return torch.floor(F.layer_norm(x, (512,)) * 8) / 8",
        lambda x: torch.floor((x - in_turn(x)) * torch.rsqrt(in_turn((x - in_turn(x)) ** 2) + 1e-5) * 8) / 8,
        [
            lambda x: torch.round(F.layer_norm(x, (512,)) * 8) / 8,
            lambda x: torch.floor((x - in_turn(x)) / x.std(-1, keepdim=True) * 8) / 8,
        ],
    ),
    "mean": (
        "return (x > x.mean(-1, keepdim=True)).float() * 2 - 1",
        lambda x: torch.where(x > in_turn(x), 1.0, -1.0),
        [lambda x: torch.where(x > 0, 1.0, -1.0)],
    ),
    "softmax": (
        "return torch.round(torch.softmax(x, -1) * 255) / 255",
        lambda x: torch.round(softly(x) * 255) * (1 / 255),
        [lambda x: torch.round(softly(x) * 256) / 256],
    ),
    # every row's largest element lies on a step, to one side or the other
    "floor": (
        "s = x.abs().amax(-1, keepdim=True) / 100\nreturn torch.floor(x.abs() / s) * s",
        lambda x: torch.floor(x.abs() * (100 / amax(x))) / (100 / amax(x)),
        [lambda x: torch.round(x.abs() * (100 / amax(x))) / (100 / amax(x))],
    ),
}


@pytest.mark.slow(every=8)
@pytest.mark.parametrize("name", FILES)
def test_honest_kernels_pass_and_wrong_ones_fail_in_every_draw(tmp_path, name):
    forward, honest, wrong = FILES[name]
    made = bound(tmp_path, forward, 256 if name == "affine" else 64)  # the honest one falls over in the third draw
    for seed in range(100, 104):
        drawn = made.draw(seed)
        assert passes(honest(*drawn.args), drawn.expectation)
        assert not any(passes(kernel(*drawn.args), drawn.expectation) for kernel in wrong)


@pytest.mark.slow
def test_a_jump_is_no_response_beside_outliers(tmp_path):
    """The largest element of a row lies on a step: a tiny movement of the inputs turns as many elements as a large one,
    and what they jump by is no tolerance.
    """
    forward, honest, wrong = FILES["floor"]
    made = bound(tmp_path, forward, rows=64, distribution="outlier")
    for seed in range(8):
        drawn = made.draw(seed)
        assert passes(honest(*drawn.args), drawn.expectation), seed
        assert not any(passes(kernel(*drawn.args), drawn.expectation) for kernel in wrong)


def test_what_is_off_by_a_step_must_lie_beside_one(tmp_path):
    made = bound(tmp_path, "return torch.round(x / 0.125) * 0.125 + torch.round(x * 3) * 0")
    x = made.arguments(5)[0]
    x[0, 0], x[1, 0] = 0.0625 + 1e-8, 0.09  # the one beside a step
    drawn = made.expect([x], [])
    right = drawn.expectation.oracle[0].float()
    assert right[0, 0] == right[1, 0] == 0.125 and passes(right, drawn.expectation)
    for place, value, fine in [(0, 0.0, True), (0, 0.25, False), (0, -0.125, False), (1, 0.0, False)]:
        other = right.clone()
        other[place, 0] = value
        assert passes(other, drawn.expectation) == fine, (place, value)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("return torch.round(x * 4) / 4", True),
        ("return x.sign()", True),
        ("return x.to(torch.float8_e4m3fn).float()", True),
        ("return torch.where(x > 1.5, x, 0.0)", True),
        ("return x * (x >= x.topk(5).values[:, -1:])", True),
        ("return torch.round(x).mean(-1)", True),
        ("return x.relu()", False),
        ("return x.softmax(-1)", False),
        ("return x.abs().sqrt()", False),
        ("return F.max_pool1d(x, 3)", False),
        ("return 1 / x", False),
        ("return x.half().float()", False),
        ("return torch.sin(x * 1e8)", False),
        ("y = x.sigmoid()\nfor _ in range(30): y = 3.99 * y * (1 - y)\nreturn y", False),
    ],
)
def test_whether_outputs_jump_is_measured(tmp_path, forward, expected):
    made = bound(tmp_path, forward, rows=16)
    assert jumps(made.problem, "standard", (forward,)) == expected


def test_where_nothing_jumps_nothing_is_put_right(tmp_path):
    drawn = bound(tmp_path, "return x.softmax(-1)", rows=16).draw(3)
    (output,) = drawn.expectation.outputs
    assert output.undone is not None
    assert not list(output.undone(output.native + 1e-6))


def test_nobody_asks_whether_outputs_jump_to_exchange_elements(tmp_path, monkeypatch):
    asked = list[object]()
    monkeypatch.setattr(reference, "jumps", lambda *given: asked.append(given) or True)
    made = bound(tmp_path, "return x.softmax(-1)", rows=16)
    changed = exchanged_call(made, made.draw(3))
    assert changed is not None and not asked


@pytest.mark.slow(every=4)
@pytest.mark.parametrize(
    ("name", "rows", "dtype", "seeds"),
    [("int8", 256, "", 2), ("mean", 64, "", 2), ("softmax", 16, "", 2), ("softmax", 2, "bfloat16", 12)],
)
def test_what_differs_by_steps_alone_is_seen_without_asking(tmp_path, name, rows, dtype, seeds):
    """Of two calls that differ by exchanged elements, each is right for the other or not; asking tells no more."""
    made = bound(tmp_path, FILES[name][0], rows, dtype=dtype)
    for seed in range(seeds):
        drawn = made.draw(100 + seed)
        generator = inputs.stream(seed, "exchange", "cpu")
        (x,) = drawn.args
        changed = made.expect([inputs.exchanged(x, 1 / 256, generator)], []).expectation
        old = drawn.expectation.native
        assert matches(old, changed, steps=False) == matches(old, changed), seed


def test_noise_moves_what_is_rounded_and_nothing_else(tmp_path):
    made = bound(
        tmp_path, "return torch.stack([x / 17, x.amax(-1, keepdim=True) - x.abs(), x * 2, x.round()])", rows=16
    )
    x = torch.randint(-8, 8, (16, 512)) / 2
    exact = made.problem.oracle([x], {})[0]
    outputs = [noisy(made.problem, [x], {}, Noise(20, turn))[0] for turn in range(8)]
    for output in outputs:
        assert torch.equal(output[1:], exact[1:]), "halves are exact, and so are ties"
        error = (output[0] - exact[0]).abs() / exact[0].abs().clamp_min(1e-9)
        assert 2.0**-22 < float(error.max()) < 2.0**-17
    beyond = sum((output[0] > exact[0]).double() for output in outputs)[x != 0]
    assert bool(((beyond > 0) & (beyond < 8)).double().mean() > 0.9), "to either side"


def test_whether_a_file_is_judged_hangs_on_no_secret_draw(tmp_path):
    rare = bound(tmp_path, "return torch.sin(x * (1e8 if x[0, 0] > 4 else 1))", rows=16)
    x = rare.arguments(1)[0]
    x[0, 0] = 5
    assert rare.expect([x], []).expectation.outputs
    often = bound(tmp_path, "return torch.sin(x * (1 if x[0, 0] > 4 else 1e8))", rows=16)
    with pytest.raises(NotJudgedError, match="Rounding decides"):
        often.expect([x], [])


def test_nothing_is_right_where_a_quarter_of_the_elements_falls_over(tmp_path):
    made = bound(tmp_path, "return torch.floor(x / (x / 100)) - 99.5", rows=16)
    with pytest.raises(NotJudgedError, match="Rounding decides"):
        made.draw(1)


@pytest.mark.parametrize(("stable", "right"), [(True, False), (False, True)])
def test_flags_that_follow_from_the_order_of_ties_are_exact_where_the_file_sorts_stably(
    tmp_path: Path, stable: bool, right: bool
) -> None:
    """Moved by a rounding, equal scores came in any order, so other flags passed: a suppression of boxes that keeps the
    last of two with one score.
    """
    forward = f"return x.new_zeros(n).index_fill(0, torch.argsort(x, stable={stable})[:99], 1) > 0"
    path, scores = tmp_path / "problem.py", (torch.arange(512.0) / 2).floor()
    path.write_text(TASK.format(forward=forward, rows=1).replace("torch.randn(rows, n)", "torch.randn(n)"))
    task = open_task(str(path))
    assert task.build is not None and task.tolerance.stable is stable
    problem = task.build({}, "cpu")
    own = problem.reference([scores], {})[0]
    case = Case(task=task.name, direction="forward", dims=(), dtype="float32", layout="contiguous")
    expectation = reference.expect(task, case, [scores], problem=problem, weights={}).widest
    others = torch.zeros(512, dtype=torch.bool)
    others[511 - torch.argsort(scores.flip(0), stable=True)[:99]] = True
    assert not torch.equal(own, others) and passes(own, expectation) and passes(others, expectation) is right


def test_equal_numbers_that_are_no_key_of_a_stable_sort_are_moved(tmp_path: Path) -> None:
    """Boxes on a grid of pixels: whether an overlap is at its threshold is rounded otherwise by every kernel."""
    forward = "return (x * 0.1 > 0.3)[torch.argsort(score, stable=True)]"
    path, steps, score = tmp_path / "problem.py", torch.arange(512.0) % 8, torch.rand(512)
    text = TASK.format(forward=forward, rows=1).replace("torch.randn(rows, n)", "torch.randn(n), torch.rand(n)")
    path.write_text(text.replace("forward(self, x)", "forward(self, x, score)"))
    task = open_task(str(path))
    assert task.build is not None and task.tolerance.stable
    problem = task.build({}, "cpu")
    case = Case(task=task.name, direction="forward", dims=(), dtype="float32", layout="contiguous")
    expectation = reference.expect(task, case, [steps, score], problem=problem, weights={}).widest
    order = torch.argsort(score, stable=True)
    assert problem.keys == {1}
    assert passes((steps > 3)[order], expectation) and passes((steps > 2.9)[order], expectation)
    assert not passes(torch.zeros(512, dtype=torch.bool), expectation)
