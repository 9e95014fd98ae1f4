"""Single cases: the order of a window's calls, and what becomes of a candidate that refuses one."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.judge.conftest import expected

from kerneleval.judge import Judge
from kerneleval.judge.probes import calls, cells, repeats
from kerneleval.judge.probes.calls import BoundCase, Calibrated, Drawn
from kerneleval.judge.probes.repeats import drawn_together, shuffled_calls
from kerneleval.judge.windows.buffers import CallLayout, dense
from kerneleval.pipeline import check
from kerneleval.records import Failed, InfrastructureError
from kerneleval.worker import waiting
from kerneleval.worker.host import Worker, WorkerError

DIES_WHEN_ASKED_AGAIN = """
import os
import torch

refused = False


def gelu(x):
    global refused
    if refused:
        os._exit(3)
    if x.numel() and float(x.abs().max()) > 300:
        refused = True
        raise NotImplementedError("too large")
    return torch.nn.functional.gelu(x)
"""


ONE_PAIR_OF_STRIDES = """
import torch


def alike(x, y):
    if x.stride() != y.stride():
        raise NotImplementedError("one pair of strides")


def add(x, y):
    alike(x, y)
    return torch.add(x, y)


def swiglu_backward(grad, gate, up):
    alike(grad, gate)
    alike(gate, up)  # whatever part of the three is contiguous, one of the pairs differs
    sigma = torch.sigmoid(gate)
    return grad * up * sigma * (1 + gate * (1 - sigma)), grad * gate * sigma


def swiglu(gate, up):
    alike(gate, up)
    return torch.nn.functional.silu(gate) * up
"""


MEAN_NORM = """
import torch


class {}(torch.nn.Module):
    def forward(self, x):
        return x / x.abs().mean(1)[:, None]


def get_inputs():
    return [torch.rand(40, 60)]


def get_init_inputs():
    return []
"""


def test_no_ring_of_buffers_survives_the_order_of_calls() -> None:
    """Two buffers in turn did once in a thousand, when the order was merely drawn."""
    one, other = object(), object()
    for _ in range(4_000):
        calls = [one, other, *shuffled_calls((one, other))]
        for buffers in range(1, 12):
            kept = {number % buffers: call for number, call in enumerate(calls)}
            assert any(kept[number % buffers] is not call for number, call in enumerate(calls)), buffers


def test_a_slow_candidate_gets_fewer_calls_in_a_window(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreted kernel of ten seconds a call met the limit of a window in which it was called twelve times."""
    file = tmp_path / "exp.py"
    file.write_text("import time\nimport torch\n\n\ndef exp(x):\n    time.sleep(0.4)\n    return torch.exp(x)\n")
    monkeypatch.setattr(waiting, "CALLS_S", 3.0)
    monkeypatch.setattr(calls, "_PROBE_S", 1.0)
    verdict = check(
        file,
        "exp",
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=["forward"],
        categories=["tiny"],
        distributions=["standard"],
        timed=False,
    )
    assert verdict.verdict == "passed", verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["add", "swiglu_backward"])
def test_strides_that_differ_may_be_declared_unsupported(judge: Judge, tmp_path: Path, kind: str) -> None:
    """Support may depend on form: it was told as refusing values, because standard ones were given alike strides."""
    name, _, direction = kind.partition("_")
    file = tmp_path / "candidate.py"
    file.write_text(ONE_PAIR_OF_STRIDES)
    verdict = check(
        file,
        name,
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=[direction or "forward"],
        timed=False,
    )
    assert verdict.verdict == "passed", verdict.message
    unsupported = [c for c in verdict.cells if isinstance(c.outcome, Failed) and c.outcome.reason == "unsupported"]
    assert unsupported
    assert all(c.case.layout != "contiguous" for c in unsupported)


STRIDES_OF_FIRST = """
import torch


def add(x, y):
    return x + (y if x.stride() == y.stride() or min(x.shape) < 2 else y.flip(0))
"""


@pytest.mark.slow
@pytest.mark.parametrize("native_is_right", [True, False])
def test_where_pytorch_is_wrong_a_candidate_may_be(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native_is_right: bool
) -> None:
    """Attention's reference failed its own task: cuDNN reads an upstream gradient by the strides of the queries."""
    file = tmp_path / "add.py"
    file.write_text(STRIDES_OF_FIRST)
    monkeypatch.setattr(BoundCase, "native_is_right", lambda *_: native_is_right)
    allow = ("custom", "mixed", "library")
    small = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small", "medium"]}
    verdict = check(file, "add", judge=judge, allow=allow, tier="quick", timed=False, **small)
    outcomes = [c.outcome for c in verdict.cells if c.case.layout != "contiguous"]
    if native_is_right:
        assert verdict.reason == "wrong_output"
        assert "only where a part of the arguments is contiguous" in verdict.message
    else:
        assert verdict.verdict == "passed", verdict.message
        assert any(o.evidence.get("native_is_wrong") for o in outcomes), "and what was left out is told"
        assert "PyTorch itself is wrong there" in next(f.message for f in verdict.findings if f.check == "reference")


def test_a_full_device_is_the_machines_fault(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's traceback ended the program, where another process had filled the device."""

    def full(*_args: Any, **_options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 7.00 GiB.\nMore of it")

    monkeypatch.setattr(calls, "WindowBuffer", full)
    file = tmp_path / "gelu.py"
    file.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    with pytest.raises(InfrastructureError, match=r"too little memory left to judge gelu: .* 7\.00 GiB\.$"):
        check(file, "gelu", judge=judge, allow=("library",), dtypes=["float32"], timed=False)


def test_a_candidate_that_dies_when_its_refusal_is_looked_into_has_died_there(judge: Judge, tmp_path: Path) -> None:
    """It was told as ``unsupported``, and the case after it met the dead worker."""
    file = tmp_path / "gelu.py"
    file.write_text(DIES_WHEN_ASKED_AGAIN)
    verdict = check(
        file,
        "gelu",
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=["forward"],
        categories=["small"],
        distributions=["standard", "large_scale"],
        timed=False,
    )
    large = next(cell.outcome for cell in verdict.cells if cell.case.distribution == "large_scale")
    assert isinstance(large, Failed)
    assert (verdict.verdict, large.reason) == ("failed", "exit")


def test_nothing_of_a_case_is_held_when_the_next_begins(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inputs and outputs of every case were kept to the end: 61 GiB of device memory for one operator."""
    file = tmp_path / "gelu.py"
    file.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    held: list[Any] = []
    alive: list[int] = []
    draw = BoundCase.draw

    def drawing(self: BoundCase, seed: int) -> Drawn:
        found = draw(self, seed)
        held.extend(weakref.ref(t) for t in (*found.tensors, *found.expectation.native, *found.expectation.oracle))
        return found

    monkeypatch.setattr(BoundCase, "draw", drawing)
    monkeypatch.setattr(cells, "_PREFETCH_BYTES", -1)  # those are held until their turn, as many as there is room for
    check(
        file,
        "gelu",
        judge=judge,
        allow=("custom", "mixed", "library"),
        dtypes=["float32"],
        directions=["forward", "backward"],
        categories=["tiny", "small"],
        timed=False,
        on_event=lambda event: alive.append(sum(ref() is not None for ref in held)),
    )
    assert len(held) > 20
    assert max(alive) == 0


def test_a_machine_that_cannot_make_a_worker_ready_is_to_blame(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told as an error of the candidate's worker, though none of a candidate's code had run."""
    request = Worker.request
    judge.pool.quiet()  # the next test's worker is not to fail

    def full(self: Worker, op: str, *args: Any, **options: Any) -> Any:
        if op == "warm":
            raise WorkerError("OutOfMemoryError", "CUDA error: out of memory", unsupported=False, evidence={})
        return request(self, op, *args, **options)

    monkeypatch.setattr(Worker, "request", full)
    blamed = pytest.raises(InfrastructureError, match="no worker can be made ready on cpu: CUDA error: out of memory")
    with Judge("cpu", tmp_path / "cache") as other, blamed:
        other.pool.warm_runner()


def test_under_other_weights_one_call_is_held_at_a_time(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first call was held beside each of the further ones: inputs of 8 GiB filled a GPU of 140 GiB."""
    problem, file = tmp_path / "problem.py", tmp_path / "candidate.py"
    problem.write_text(MEAN_NORM.format("Model"))
    file.write_text(MEAN_NORM.format("ModelNew"))
    monkeypatch.setattr(repeats, "_SMALL_MODULE_BYTES", 0)
    held: list[weakref.ref[torch.Tensor]] = []
    most = [0]
    expect = BoundCase.expect

    def expecting(self: BoundCase, args: list[Any], grads: list[torch.Tensor]) -> Drawn:
        found = expect(self, args, grads)
        most[0] = max(most[0], sum(ref() is not None for ref in held))
        held.extend(weakref.ref(t) for t in found.expectation.oracle)
        return found

    monkeypatch.setattr(BoundCase, "expect", expecting)
    verdict = check(file, str(problem), judge=judge, allow=("library",), timed=False)
    assert verdict.verdict == "passed", verdict.message
    assert len(held) > 5
    assert most == [0]


@pytest.mark.slow
def test_calls_in_exchanged_places_lie_where_the_first_ones_lay(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second window of a pair has more calls: shared memory grew for them, elsewhere, and copies of strided inputs
    that were kept by address were right in 23 of 80 verdicts."""
    file = tmp_path / "gelu.py"
    file.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    seen: list[Any] = []
    pairs: list[list[Any]] = []
    window = calls.Calls.window

    def looking(self: calls.Calls, *args: Any, **options: Any) -> Any:
        outcome = window(self, *args, **options)
        seen.append(self.loaded.runner._arenas["in"])
        return outcome

    def told(name: str) -> None:
        asked = getattr(repeats.Repeats, name)

        def asking(self: repeats.Repeats, bound: BoundCase, first: Drawn) -> Any:
            seen.clear()
            outcome = asked(self, bound, first)
            pairs.append([*seen])
            return outcome

        monkeypatch.setattr(repeats.Repeats, name, asking)

    monkeypatch.setattr(calls.Calls, "window", looking)
    told("judge")
    told("strided")
    options = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small", "medium", "large"]}
    verdict = check(file, "gelu", judge=judge, allow=("library",), tier="standard", timed=False, **options)
    assert verdict.verdict == "passed", verdict.message
    assert sum(len(arenas) > 1 for arenas in pairs) >= 4
    assert all(len({id(arena) for arena in arenas}) <= 1 for arenas in pairs)


def test_a_slow_candidate_is_seen_in_other_forms_too(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not all of the calls could be made within 10 s, none was: a nap in strided cases, which are not timed, hid
    that they were wrong."""
    file = tmp_path / "add.py"
    file.write_text(STRIDES_OF_FIRST.replace("    return", "    import time\n\n    time.sleep(0.05)\n    return"))
    monkeypatch.setattr(calls, "_PROBE_S", 0.01)
    allow = ("custom", "mixed", "library")
    small = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small", "medium"]}
    verdict = check(file, "add", judge=judge, allow=allow, tier="quick", timed=False, **small)
    assert verdict.reason == "wrong_output"


KEPT_BY_FIRST = """
import time
import torch

calls, kept = 0, []


def linear(x, weight, bias):
    global calls
    if x.dtype == torch.float32:
        return torch.nn.functional.linear(x, weight, bias)
    calls += 1
    if calls == 5:
        time.sleep(1.5)  # more than the check may take
    for a, shape, y in kept:
        if shape == weight.shape and a.shape == x.shape and torch.equal(a, x):
            return y.clone()
    y = torch.nn.functional.linear(x, weight, bias)
    kept.append((x.clone(), weight.shape, y.clone()))
    del kept[:-4]
    return y
"""


def test_a_nap_does_not_hide_what_is_kept_by_one_argument(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A single slow call in the window before ended the check for its dtype."""
    file = tmp_path / "linear.py"
    file.write_text(KEPT_BY_FIRST)
    monkeypatch.setattr(calls, "_PROBE_S", 0.3)
    small = {"dtypes": ["float32", "float16"], "directions": ["forward"], "categories": ["tiny", "small"]}
    verdict = check(file, "linear", judge=judge, allow=("library",), tier="quick", timed=False, **small)
    assert verdict.reason == "wrong_output", verdict.message


def test_an_output_of_zeros_is_not_taken_for_that_of_a_later_call() -> None:
    """An output that nobody wrote is that, where a later call of one element gives 0."""
    found = [expected("relu", {"M": 1, "N": 1}, seed) for seed in range(20)]
    drawn = [Drawn(args=args, grads=[], expectation=expectation) for args, expectation in found]
    positive = [one for one in drawn if one.expectation.native[0].item() > 0]
    zero = next(one for one in drawn if one.expectation.native[0].item() == 0)
    new = {id(one) for one in drawn}
    zeros = [(torch.zeros(1, 1),)] * 2
    assert not calls._of_later_call(zeros.__getitem__, [positive[0], zero], 0, new)


@pytest.mark.parametrize(("times", "reused"), [(1.0, True), (1 + 2**-23, False)])
def test_a_wrong_number_near_that_of_a_later_call_is_no_reused_output(times: float, reused: bool) -> None:
    """A mean over a part of the rows was another call's mean by chance, and a reused buffer was looked for in vain."""
    found = [expected("sum", {"M": 1, "N": 64}, seed) for seed in (1, 2)]
    drawn = [Drawn(args=args, grads=[], expectation=expectation) for args, expectation in found]
    later = drawn[1].expectation.native[0]
    made = [(later * times,), (later,)]
    assert calls.matches(made[0], drawn[1].expectation)
    assert calls._of_later_call(made.__getitem__, drawn, 0, {id(one) for one in drawn}) is reused


DIES = """
import ctypes
import time


def gelu(x):
    time.sleep(0.5)
    ctypes.string_at(0)
"""


@pytest.mark.parametrize(("most_lost_s", "died"), [(60.0, 3), (0.3, 1)])
def test_a_worker_that_takes_long_to_die_is_not_replaced(
    most_lost_s: float, died: int, judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes memory up to its limit was waited for three times, 30 s in all."""
    file = tmp_path / "gelu.py"
    file.write_text(DIES)
    monkeypatch.setattr(cells, "_MOST_LOST_S", most_lost_s)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    verdict = check(file, "gelu", judge=judge, timed=False, **options)
    assert verdict.reason == "crash", verdict.message
    messages = [cell.outcome.message for cell in verdict.cells if isinstance(cell.outcome, Failed)]
    assert len(messages) > died
    assert [m.startswith("not run after") for m in messages].index(True) == died


HANGS_LATER = """
import itertools
import time

import torch

calls = itertools.count()


def gelu(x):
    if next(calls) == 60:
        time.sleep(1000)
    return torch.nn.functional.gelu(x)
"""


@pytest.mark.slow
def test_a_worker_that_was_ended_is_asked_for_nothing(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks called it, and said that it had closed its connection."""
    file = tmp_path / "gelu.py"
    file.write_text(HANGS_LATER)
    monkeypatch.setattr(waiting, "CALLS_S", 1.0)
    options: dict[str, Any] = {"dtypes": ["float32"], "directions": ["forward"], "categories": ["small"]}
    verdict = check(file, "gelu", judge=judge, allow=("library",), timed=False, **options)
    assert (verdict.stage, verdict.reason) == ("call", "timeout"), verdict.message
    assert any(not isinstance(cell.outcome, Failed) for cell in verdict.cells)
    assert not [finding for finding in verdict.findings if finding.level == "fail"]


def test_integers_of_a_problem_file_change_together():
    """Lengths of one draw beside the page table of another name pages that are none: honest kernels failed."""
    x, table, lengths = torch.randn(3), torch.arange(3), torch.arange(3, dtype=torch.int32)
    assert drawn_together([x, table, 0.5, lengths, x], [0, 1, 2, 3, 4]) == [[0], [2], [4], [1, 3]]
    assert drawn_together([x, x.to(torch.cfloat)], [0, 1]) == [[0], [1]]
    assert drawn_together([x, lengths, 7, 0.5], [0, 1, 2, 3]) == [[0], [3], [1, 2]]


def test_timed_lengths_belong_to_the_plain_number_that_was_drawn_of_them():
    """Timed calls had the longest length of one draw beside the lengths of others: who goes no further failed."""
    x, lengths = torch.randn(2, 3), torch.tensor([2, 3])
    slots = (dense((2, 3), "float32"), dense((2,), "int64"), 3)
    layout = CallLayout(args=slots, grads=(), outputs=(((2,), "float32"),), wanted=(), dims={})
    known = Calibrated(call_layout=layout, bounds=None, whole={1: torch.tensor([3, 1])})  # type: ignore[arg-type]
    assert [known.belonging([x, lengths, 3])[i] is one for i, one in enumerate((x, lengths))] == [True, True]
    args = known.belonging([x, torch.tensor([4, 1]), 4])
    assert args[0] is x and args[1].tolist() == [3, 1]
