"""Candidates for problem files, judged: strides of inputs, buffers that are returned again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kerneleval.judge import Judge
from kerneleval.records import Candidate, NotJudgedError, Passed, Protocol, Verdict
from kerneleval.tasks import open_task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        {reference}

def get_inputs():
    return [torch.randn(48, 20)]
def get_init_inputs():
    return []
"""

CANDIDATE = """
import torch

class ModelNew(torch.nn.Module):
    out = None
    def forward(self, x):
        {body}
"""


def judged(
    judge: Judge,
    folder: Path,
    body: str,
    layout: str,
    reference: str = "return x.sum(-1) * 2",
    distribution: str = "standard",
    drawn: str = "torch.randn(48, 20)",
) -> Verdict:
    """The verdict on ``forward`` with this body, at the first case of one layout and distribution."""
    path = folder / "problem.py"
    path.write_text(TASK.format(reference=reference).replace("torch.randn(48, 20)", drawn))
    task, words = open_task(str(path), sweep=layout != "contiguous"), ("custom", "mixed", "library")
    protocol = Protocol(timed=False, allow=words, shapes="default" if layout == "contiguous" else "sweep", tier="quick")
    cases = [c for c in judge.plan(task, protocol) if c.layout == layout and c.distribution == distribution][:1]
    own = judge.plan(task, protocol)[:1] if layout != "contiguous" else ()
    source = CANDIDATE.format(body=body.replace("\n", "\n        "))
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    return judge.check(candidate, task, protocol, cases=(*own, *cases))


DENSE = "return x.as_strided(x.shape, (x.shape[1], 1)).sum(-1) * 2"
STORAGE = "flat = x.as_strided((x.numel(),), (1,), 0)\nreturn flat.view(x.shape).sum(-1) * 2"


PITCH = "return x.as_strided(x.shape, (x.stride(0), 1)).sum(-1) * 2"
COLUMNS = "return x.as_strided(x.shape, (x.shape[1] * x.stride(1), x.stride(1))).sum(-1) * 2"


@pytest.mark.parametrize(
    ("layout", "body"),
    [("transposed", DENSE), ("sliced", DENSE), ("offset", STORAGE), ("transposed", PITCH), ("sliced", COLUMNS)],
)
def test_inputs_read_as_if_they_were_dense_are_wrong(judge, tmp_path, layout, body):
    verdict = judged(judge, tmp_path, body, layout)
    assert (verdict.verdict, verdict.reason) == ("failed", "wrong_output")
    assert isinstance(verdict.cells[0].outcome, Passed)


def test_whoever_raises_on_one_way_of_slicing_is_not_wrong(judge, tmp_path):
    body = "if x.storage_offset():\n    raise ValueError('no')\nreturn x.sum(-1) * 2"
    assert judged(judge, tmp_path, body, "sliced").verdict == "passed"


def test_who_raises_on_strided_inputs_declares_them_unsupported(judge, tmp_path):
    verdict = judged(judge, tmp_path, "assert x.is_contiguous()\nreturn x.sum(-1) * 2", "transposed")
    assert verdict.verdict == "passed" and "1 declared unsupported" in verdict.message


def test_strides_that_the_reference_does_not_take_are_left_out(judge, tmp_path):
    verdict = judged(judge, tmp_path, "return x.relu().view(-1)", "transposed", "return x.view(-1).relu()")
    assert verdict.verdict == "passed" and len(verdict.cells) == 1
    (left_out,) = [f for f in verdict.findings if f.check == "reference"]
    assert left_out.level == "warn" and "takes no transposed inputs" in left_out.message


@pytest.mark.parametrize(
    "keep",
    [
        "if self.out is None: self.out = torch.empty(x.shape[0])",
        "self.out = torch.empty(64)[: x.shape[0]] if self.out is None else self.out",
        "ModelNew.out = torch.empty(x.shape[0]) if ModelNew.out is None else ModelNew.out",
    ],
)
def test_a_buffer_that_is_returned_again_is_called_so(judge, tmp_path, keep):
    verdict = judged(judge, tmp_path, f"{keep}\nself.out.copy_(x.sum(-1) * 2)\nreturn self.out", "contiguous")
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "correctness", "output_reused")
    assert "allocate them in every call" in verdict.message


PLANES = "return torch.nn.functional.instance_norm(x.view(-1, 4, 3, 4, 5)).view(x.shape)"
ONE_PASS = """planes = x.view(-1, 60)
mean, square = planes.mean(-1, keepdim=True), (planes * planes).mean(-1, keepdim=True)
return ((planes - mean) * torch.rsqrt((square - mean * mean).clamp(min=0) + 1e-5)).view(x.shape)"""
IN_TURN = """planes = x.view(-1, 60)
def mean(x):
    total = torch.zeros(len(x), 1)
    for column in x.split(1, -1):
        total = total + column
    return total / x.shape[-1]
apart = planes - mean(planes)
return (apart * torch.rsqrt(mean(apart * apart) + 1e-5)).view(x.shape)"""
DISTANCE = "return torch.stack([(x - row).square().sum(-1) for row in x[:3]])"
GRAM = "a, b = x, x[:3]\nreturn (b * b).sum(-1)[:, None] + (a * a).sum(-1) - 2 * b @ a.T"


@pytest.mark.parametrize(
    ("reference", "body", "passes"),
    [(PLANES, ONE_PASS, False), (PLANES, IN_TURN, True), (PLANES, PLANES, True), (DISTANCE, GRAM, False)],
)
@pytest.mark.parametrize("rows", [48, 960])
def test_means_far_from_zero_cancel(judge, tmp_path, reference, body, passes, rows):
    drawn = f"torch.randn({rows}, 20)"
    verdict = judged(judge, tmp_path, body, "contiguous", reference, distribution="far_mean", drawn=drawn)
    (cell,) = verdict.cells
    assert verdict.verdict == ("passed" if passes else "failed") and cell.case.distribution == "far_mean"


LAYERS = """
import torch
import torch.nn.functional as F

class Model{new}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.conv = torch.nn.Linear(20, 36), torch.nn.Conv1d(4, 8, 3, padding=1)
        self.bias = torch.nn.Parameter(torch.zeros(36))

    def forward(self, x):
        y = {layer}
        shape, y = y.shape, y.flatten(1)
        return ({norm}).view(shape)

def get_inputs():
    return [torch.randn(48, 20)]
def get_init_inputs():
    return []
"""
NORM = "F.layer_norm(y, y.shape[1:])"
NORM_IN_ONE = "(y - y.mean(1, True)) * torch.rsqrt((y * y).mean(1, True) - y.mean(1, True).square() + 1e-5)"
NORM_IN_TWO = "(y - y.mean(1, True)) * torch.rsqrt((y - y.mean(1, True)).square().mean(1, True) + 1e-5)"
PARTS = "torch.var_mean(torch.stack(y.chunk(4, 1)), 2, correction=0)"  # of which one variance is made
MERGED = (
    f"(y - (p := {PARTS})[1].mean(0)[:, None]) * (p[0].mean(0) + p[1].var(0, correction=0) + 1e-5).rsqrt()[:, None]"
)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(("norm", "passes"), [(NORM_IN_ONE, False), (NORM_IN_TWO, True), (MERGED, True), (NORM, True)])
@pytest.mark.parametrize("layer", ["self.fc(x)", "self.conv(x.view(-1, 4, 5))", "x @ self.fc.weight.T + self.bias"])
def test_biases_before_a_norm_are_far_from_zero(judge, tmp_path, layer, norm, passes):
    """Behind a layer, rows of inputs far from 0 are no longer so: variances by one pass passed. So they did where the
    file itself adds the bias.
    """
    path = tmp_path / "problem.py"
    path.write_text(LAYERS.format(new="", layer=layer, norm=NORM))
    task = open_task(str(path))
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), tier="quick")
    cases = [c for c in judge.plan(task, protocol) if c.distribution == "far_mean"]
    source = LAYERS.format(new="New", layer=layer, norm=norm)
    verdict = judge.check(Candidate(files=(("c.py", source),), language="torch"), task, protocol, cases=cases)
    assert len(cases) == 1 and verdict.verdict == ("passed" if passes else "failed")


SCAN = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v, g):
        step = torch.nn.functional.softplus(g)
        a, k, s, out = torch.exp(-torch.linspace(1, 16, 12) * step), k * step, 0, []
        for t in range(q.shape[1]):
            s = a[:, t, :, None] * s + k[:, t, :, None] * v[:, t, None]
            out.append((q[:, t, :, None] * s).sum(1))
        return torch.stack(out, 1)
def get_inputs():
    return [torch.randn(2, 40, 12), torch.randn(2, 40, 12), torch.randn(2, 40, 16), torch.randn(2, 40, 12) - 3]
def get_init_inputs():
    return []
"""
CHUNK = """
import torch

class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, g):
        step = torch.nn.functional.softplus(g)
        total, k = (-torch.linspace(1, 16, 12) * step).cumsum(1), k * step
        kept = torch.exp((total[:, :, None] - total[:, None]).clamp_max(0){rounded})
        return torch.einsum("btd,bsd,btsd->bts", q, k, kept).tril() @ v
"""


@pytest.mark.slow
def test_scans_in_chunks_pass_where_inputs_are_large(judge, tmp_path):
    """Decays come as exponentials of differences of running sums, whose size the inputs must not set. Beside steps of
    100, under ``large_scale``, the others' decays do not show.
    """
    path = tmp_path / "scan.py"
    path.write_text(SCAN)
    task = open_task(str(path))
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), tier="quick")
    cases = [c for c in judge.plan(task, protocol) if c.distribution in ("outlier", "negative", "large_scale")]
    for rounded in ("", ".half().float()"):
        candidate = Candidate(files=(("candidate.py", CHUNK.format(rounded=rounded)),), language="torch")
        cells = judge.check(candidate, task, protocol, cases=tuple(cases)).cells
        assert len(cells) == len(cases) > 1
        asked = [cell for cell in cells if not rounded or cell.case.distribution != "large_scale"]
        assert all(isinstance(cell.outcome, Passed) == (not rounded) for cell in asked), [c.outcome for c in cells]


STATES = """
import torch
from torch import nn

class Model{new}(nn.Module):
    def __init__(self, n, h):
        super().__init__()
        self.lstm = nn.LSTM(n, h, 2)
        self.gru = nn.GRUCell(n, h)
    def forward(self, {takes}):
        {forward}

steps, batch, n, h = 5, 3, 10, 12
def get_inputs():
    return [torch.rand(steps, batch, n), {given}]
def get_init_inputs():
    return [n, h]
"""

STATE = "torch.randn(2, batch, h)"
LSTM = "x, state", "out, state = self.lstm(x, state)\n        return out, state", f"({STATE}, {STATE})"
DICT = (
    "x, past",
    "state = (past['layers'][0], past['layers'][1])\n        return self.lstm(x * past['scale'], state)",
    f"{{'layers': [{STATE}, {STATE}], 'scale': 0.5, 'none': None}}",
)
LOOP = (
    "x, states",
    "for i in range(len(x)): states = [self.gru(x[i], s) for s in states]\n        return states",
    "[torch.randn(batch, h), torch.randn(batch, h)]",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "wrong"),
    [
        (
            LSTM,
            [
                ("self.lstm(x, state)", "self.lstm(x, (state[1], state[0]))"),
                ("return out, state", "return out, (state[0], state[0])"),
            ],
        ),
        (DICT, [("past['layers'][1])", "past['layers'][1] * 0)"), ("past['scale']", "0.5")]),
        (LOOP, [("return states", "return [states[0], states[0]]")]),
    ],
)
def test_tensors_in_tuples_lists_and_dicts_are_inputs_of_their_own(judge, tmp_path, task, wrong):
    takes, forward, given = task
    path = tmp_path / "problem.py"
    path.write_text(STATES.format(new="", takes=takes, forward=forward, given=given))
    opened = open_task(str(path), sweep=True)
    protocol = Protocol(timed=False, allow=("library",), tier="quick", categories=("given", "tiny"))
    assert len(opened.case_dims) > 3
    for right, body in ((True, forward), *((False, forward.replace(*one)) for one in wrong)):
        source = STATES.format(new="New", takes=takes, forward=body, given=given).partition("\nsteps, batch")[0]
        candidate = Candidate(files=(("candidate.py", source),), language="torch")
        verdict = judge.check(candidate, opened, protocol, fail_fast=not right)
        assert verdict.verdict == ("passed" if right else "failed"), verdict.message
        assert right or verdict.reason == "wrong_output"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("made = self.lstm(x, state)\n        state[1].zero_()\n        return made", "input_mutation"),
        ("out, _ = self.lstm(x, state)\n        return out, state", "output_alias"),
    ],
)
def test_what_a_candidate_does_to_inputs_in_a_tuple_shows(judge, tmp_path, body, reason):
    takes, forward, given = LSTM
    path = tmp_path / "problem.py"
    path.write_text(STATES.format(new="", takes=takes, forward=forward, given=given))
    source = STATES.format(new="New", takes=takes, forward=body, given=given).partition("\nsteps, batch")[0]
    protocol = Protocol(timed=False, allow=("library",), tier="quick")
    found = judge.check(
        Candidate(files=(("candidate.py", source),), language="torch"), open_task(str(path)), protocol, fail_fast=True
    )
    assert (found.verdict, found.reason) == ("failed", reason)


KEYWORDS = """
import torch

class Model{new}(torch.nn.Module):
    def __init__(self, factor, *, power=2, **more):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(20) * factor)
        self.power, self.more = power, more
    def forward(self, x):
        return self.scale * x ** {power} + self.more["shift"]

def get_inputs():
    return [torch.randn(48, 20)]
def get_init_inputs():
    return [[2.0], {{"power": 3, "shift": 0.5}}]
"""


def test_candidates_are_given_the_keywords_of_the_constructor(judge, tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(KEYWORDS.format(new="", power="self.power"))
    task, protocol = open_task(str(path)), Protocol(timed=False, allow=("library",), tier="quick")
    for power, right in (("self.power", "passed"), ("2", "failed")):
        source = KEYWORDS.format(new="New", power=power).partition("\ndef get_inputs")[0]
        verdict = judge.check(Candidate(files=(("candidate.py", source),), language="torch"), task, protocol)
        assert verdict.verdict == right, verdict.message


PRODUCT = """
import torch

class Model{new}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.randn(96))
    def forward(self, a, b):
        {body}

def get_inputs():
    return [torch.randn(64, 128), torch.randn(128, 96)]
def get_init_inputs():
    return []
"""
AUTOCAST = "with torch.autocast(a.device.type, dtype=torch.bfloat16): c = a @ b\n        return "
HALF, BFLOAT = ("a.half().float()", "b.half().float()"), ("a.bfloat16().float()", "b.bfloat16().float()")
NARROW = {
    "half": ("return a.half() @ b.half()", *HALF, ".half()"),
    "bfloat16": ("return a.to(torch.bfloat16) @ b.bfloat16()", *BFLOAT, ".bfloat16()"),
    "float": ("return (a.bfloat16() @ b.bfloat16()).float() + self.bias", *BFLOAT, "+ self.bias"),
    "autocast": (AUTOCAST + "c.float() + self.bias", "a", "b", "+ self.bias"),
}


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("kind", NARROW)
def test_who_computes_wider_than_a_file_that_casts_to_a_half_type_is_right(judge, tmp_path, kind):
    body, a, b, end = NARROW[kind]
    path = tmp_path / "problem.py"
    path.write_text(PRODUCT.format(new="", body=body))
    task, protocol = open_task(str(path)), Protocol(timed=False, allow=("custom", "mixed", "library"), tier="quick")
    bodies = {
        body: "passed",
        f"return ({a} @ {b}){end}": "passed",
        f"return (a @ b){end}": "passed",
        f"return ({a}[:, :-1] @ {b}[:-1]){end}": "failed",
        f"return ({a} @ {b} * 1.02){end}": "failed",
        f"return ({a} @ {b} * (torch.arange(96) < 95)){end}": "failed",
        f"return ({a} @ {b})[torch.arange(64).clamp(max=62)]{end}": "failed",
    }
    for written, right in bodies.items():
        source = PRODUCT.format(new="New", body=written).partition("\ndef get_inputs")[0]
        candidate = Candidate(files=(("candidate.py", source),), language="torch")
        verdict = judge.check(candidate, task, protocol, fail_fast=right == "failed")
        assert verdict.verdict == right, (written, verdict.message)
        assert right == "passed" or verdict.reason == "wrong_output"


EIGHT_BITS = """
import torch

class Model{new}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.randn(8, 48).to(torch.float8_e5m2))

    def forward(self, a, edges):
        made = a.float() @ self.weight.float().T
        out, (top, place) = made.to(torch.float8_e4m3fn), a.float().max(-1)
        wide = edges.float()
        {body}

def get_inputs():
    edges = torch.linspace(0, 4, 300).repeat(4, 1)
    return [torch.randn(40, 48).to(torch.float8_e4m3fn), edges.to(torch.float8_e4m3fn)]
def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [False, True])
def test_floating_numbers_of_eight_bits_come_in_and_go_out(judge, tmp_path, sweep):
    path, right = tmp_path / "problem.py", "return out, top, place, wide * 2"
    path.write_text(EIGHT_BITS.format(new="", body=right))
    task = open_task(str(path), sweep=sweep)
    words = {"allow": ("custom", "mixed", "library"), "tier": "quick", "shapes": "sweep" if sweep else ""}
    protocol = Protocol(timed=False, **words)
    bodies = {
        right: "passed",
        "return (made * 1.1).to(torch.float8_e4m3fn), top, place, wide * 2": "failed",
        "return out, top, torch.zeros_like(place), wide * 2": "failed",
        "return out, top, place, edges[:1].float().expand_as(wide) * 2": "failed",
        "return out, top, place, torch.linspace(0, 4, 300).to(edges.dtype).float().expand_as(wide) * 2": "failed",
    }
    for body, due in bodies.items():
        source = EIGHT_BITS.format(new="New", body=body).partition("\ndef get_inputs")[0]
        candidate = Candidate(files=(("candidate.py", source),), language="torch")
        verdict = judge.check(candidate, task, protocol, fail_fast=due == "failed")
        assert verdict.verdict == due, (body, verdict.message)
        assert due == "passed" or verdict.reason == "wrong_output"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("return torch.log(-x.abs() - 1)", "its outputs are nothing but NaN"),
        ("return x[:0] * 2", "its outputs have no elements"),
        ("return torch.arange(4.0)", "its outputs do not depend on its inputs"),
    ],
)
def test_void_problems_say_why(judge, tmp_path, reference, message):
    with pytest.raises(NotJudgedError, match=message) as raised:
        judged(judge, tmp_path, "return x", "contiguous", reference)
    assert raised.value.reason == "void"


@pytest.mark.parametrize(("stable", "verdict"), [("True", "failed"), ("False", "passed")])
def test_equal_elements_keep_their_order_where_the_file_asks_for_it(judge, tmp_path, stable, verdict):
    body = "values, order = torch.sort(x.flip(-1), stable=True)\nreturn values, x.shape[1] - 1 - order"
    reference, drawn = f"return torch.sort(x, stable={stable})", "torch.randint(0, 5, (48, 20)).float()"
    assert judged(judge, tmp_path, body, "contiguous", reference, drawn=drawn).verdict == verdict


def test_a_constant_flag_is_told(judge, tmp_path):
    verdict = judged(judge, tmp_path, "return x == x", "contiguous", "return x > 0")
    assert verdict.reason == "wrong_output" and "constant" in str(verdict.cells[0].outcome)


_SIDES = """lows, highs = torch.maximum(x[:, None, :2], x[:, :2]), torch.minimum(x[:, None, 2:], x[:, 2:])
both, each = (highs - lows).clamp(min=0).prod(-1), (x[:, 2:] - x[:, :2]).prod(-1)
one = each[:, None] + each - both
return {}"""


@pytest.mark.parametrize(("body", "verdict"), [("both > one * 0.3", "passed"), ("both >= one * 0", "failed")])
def test_boxes_stay_boxes(judge, tmp_path, body, verdict):
    """Elements that were exchanged one by one gave boxes of negative area, of which nothing says what is right."""
    reference = _SIDES.format("both / one > 0.3").replace("\n", "\n        ")
    drawn = "(lambda a: torch.cat([a, a + torch.rand(40, 2) + 0.5], 1))(torch.rand(40, 2) * 2)"
    for distribution in ("standard", "negative"):
        made = judged(judge, tmp_path, _SIDES.format(body), "contiguous", reference, distribution, drawn)
        assert made.verdict == verdict


@pytest.mark.parametrize(
    ("drawn", "reference", "body"),
    [
        ("x, (x.abs().max() / 127).item()", "torch.round(x / s).clamp(-100, 100) * s", None),
        ("x, int(torch.randint(2, 9, ()))", "x.topk(s, -1).values", "x.sort(-1)[0].flip(-1)[:, :s].clone()"),
        (
            "x, int(n.max()), n",
            "x.masked_fill(torch.arange(20, device=x.device) >= n[:, None], 0).sum(-1)",
            "x[:, :s].masked_fill(torch.arange(s, device=x.device) >= n[:, None], 0).sum(-1)",
        ),
    ],
)
def test_plain_numbers_that_are_drawn_belong_to_their_call(judge, tmp_path, drawn, reference, body):
    """Watched calls had the number of an earlier call, and the file's own code was wrong. So was who goes as far as the
    largest length, where the lengths alone were drawn anew.
    """
    path = tmp_path / "problem.py"
    source = TASK.format(reference=f"return {reference}").replace("(self, x)", "(self, x, s, n=None)")
    inputs = (
        f"    x, n = torch.randn(48, 20), torch.randint(1, 7, (48,)) + torch.randint(1, 9, ())\n    return [{drawn}]"
    )
    path.write_text(source.replace("    return [torch.randn(48, 20)]", inputs))
    source = CANDIDATE.format(body=f"return {body or reference}").replace("(self, x)", "(self, x, s, n=None)")
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), tier="quick")
    verdict = judge.check(candidate, open_task(str(path)), protocol)
    assert verdict.verdict == "passed", verdict.message


@pytest.mark.parametrize("read", ["m[0, 0]", "m", "m[:, :1]"])
def test_what_all_items_may_share_stays_so_while_elements_are_exchanged(judge, tmp_path, read):
    """A bias of a batch of one was the same for three items, until elements of it changed places."""
    body = f"y = x * 2 + {read}; return torch.where(y > 0, y, 0.0)"
    inputs = "[torch.randn(1, 48, 20), torch.randn(1, 1, 20)]"
    made = judged_items(judge, tmp_path, body, "return (x * 2 + m).relu()", inputs)
    assert made.verdict == "passed", made.message


def judged_items(
    judge: Judge, folder: Path, body: str, reference: str, inputs: str, name: str = "get_inputs[batch]"
) -> Verdict:
    """The verdict at the file's own sizes and where there are so many items."""
    path = folder / "problem.py"
    source = TASK.format(reference=reference).replace("(self, x)", "(self, x, m)")
    path.write_text(source.replace("[torch.randn(48, 20)]", inputs))
    task = open_task(str(path), sweep=True)
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), shapes="sweep", tier="quick")
    own, *others = judge.plan(task, protocol)
    (case,) = [c for c in others if dict(c.dims).get(name) == 3]
    source = CANDIDATE.format(body=body).replace("(self, x)", "(self, x, m)")
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    return judge.check(candidate, task, protocol, cases=(own, case))


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return (x[0] * m[0]).softmax(-1)[None]", "failed"),
        ("return (x.view(-1, 20)[:48] * m[0]).softmax(-1).view(1, 48, 20)", "failed"),
        ("return (x[:1] * m).softmax(-1).expand_as(x).clone()", "failed"),
        ("y = (x * m[0]).exp(); return y / y.sum(-1, keepdim=True)", "passed"),
        ("return torch.stack([(a * b).softmax(-1) for a, b in zip(x, m)])", "passed"),
    ],
)
def test_a_batch_of_one_is_judged_as_several_too(judge, tmp_path, body, verdict):
    inputs = "[torch.randn(1, 48, 20), torch.ones(1, 48, 20).tril()]"
    made = judged_items(judge, tmp_path, body, "return (x * m).softmax(-1)", inputs)
    assert made.verdict == verdict and isinstance(made.cells[0].outcome, Passed)


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return x[:, :1].cumsum(0).expand_as(x) * m", "failed"),
        ("return x.reshape(-1, 20)[:48].cumsum(0)[:, None].expand_as(x) * m", "failed"),
        ("return (x[:, 0].cumsum(0) * m[0])[:, None]", "failed"),
        ("return torch.stack([a.cumsum(0) * m[0] for a in x.unbind(1)], 1)", "passed"),
        ("y = torch.ones(len(x), len(x)).tril(); return torch.einsum('ts,sbd->tbd', y, x) * m", "passed"),
    ],
)
def test_a_batch_of_one_behind_the_steps_is_judged_as_several_too(judge, tmp_path, body, verdict):
    inputs, name = "[torch.randn(48, 1, 20), torch.randn(1, 20)]", "get_inputs[batch_second]"
    made = judged_items(judge, tmp_path, body, "return x.cumsum(0) * m", inputs, name)
    assert made.verdict == verdict and isinstance(made.cells[0].outcome, Passed)


NUMBERS = """
import torch, torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self, slope, top_k):
        super().__init__()
        self.slope, self.k = slope, top_k
    def forward(self, x):
        return F.leaky_relu(x, self.slope).topk(self.k, largest=False).values

rows, width = 16, 40

def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [0.25, 3]
"""


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(
    ("old", "new", "verdict", "words"),
    [
        ("class", "class", "passed", ""),
        ("slope, top_k\n", "0.25, top_k\n", "failed", "Model[slope%]=75"),
        ("slope, top_k\n", "slope, 3\n", "failed", "Model[top_k]=4"),
        ("super()", "assert top_k == 3\n        super()", "passed", "1 declared unsupported"),
        ("return", "assert self.slope == 0.25\n        return", "passed", "1 declared unsupported"),
    ],
)
def test_numbers_of_the_constructor_are_read(judge, tmp_path, old, new, verdict, words):
    """Numbers that stood in the candidate instead passed; who raises at others is not wrong."""
    path = tmp_path / "problem.py"
    path.write_text(NUMBERS)
    task = open_task(str(path), sweep=True)
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), shapes="sweep", tier="quick")
    other = next(case for case in judge.plan(task, protocol) if "Model[top_k]=4" in case.key)
    source = NUMBERS.replace("Model", "ModelNew").replace(old, new, 1)
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    found = judge.check(candidate, task, protocol, cases=(*judge.plan(task, protocol)[:1], other))
    assert found.verdict == verdict
    assert words in (found.message if verdict == "passed" else found.cells[-1].case.key)
    assert isinstance(found.cells[0].outcome, Passed)


PAST = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, past):
        every = torch.cat([past, x], 1)
        return (x @ every.mT).softmax(-1) @ every

rows, before = 6, 10

def get_inputs():
    return [torch.randn(2, rows, 8), torch.randn(2, before, 8)]
def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "verdict"),
    [
        ("class", "class", "passed"),
        ("every = ", "assert past.shape[1]\n        every = ", "passed"),
        ("x], 1)", "x], 1) if past.shape[1] else x[:, :1]", "failed"),
    ],
)
def test_a_cache_may_be_empty(judge, tmp_path, old, new, verdict):
    """What is wrong where nothing came before passed; who raises there is not wrong."""
    path = tmp_path / "problem.py"
    path.write_text(PAST)
    task = open_task(str(path), sweep=True)
    protocol = Protocol(timed=False, allow=("custom", "mixed", "library"), shapes="sweep", tier="quick")
    empty = next(case for case in judge.plan(task, protocol) if case.dims_map["before"] == 0)
    candidate = Candidate(
        files=(("candidate.py", PAST.replace("Model", "ModelNew").replace(old, new)),), language="torch"
    )
    found = judge.check(candidate, task, protocol, cases=(*judge.plan(task, protocol)[:1], empty))
    assert found.verdict == verdict and isinstance(found.cells[0].outcome, Passed)
