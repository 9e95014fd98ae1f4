"""A timed cell against the machine's limits: fractions, and times that no kernel can have."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.judge.conftest import case_of

from kerneleval import devices, tasks
from kerneleval.judge import Judge
from kerneleval.judge.machine import peaks
from kerneleval.judge.probes.calls import BoundCase
from kerneleval.judge.timing import roofline
from kerneleval.judge.timing.pair import TimedCall, TimedMismatch
from kerneleval.judge.timing.roofline import MARGIN, backward_flops, check_limit, needed_bytes, reached
from kerneleval.judge.windows.buffers import dense
from kerneleval.pipeline import check
from kerneleval.records import Limits, Peak, Samples, Task, new_secret

CPU = devices.find("cpu")
M, N = 64, 96
BYTES = 2 * 4 * M * N
LIMITS = Limits(bandwidth_bytes_per_s=1e9, flop_per_s=(("float32", 1e10), ("tf32", 4e10)), cache_bytes=1000)


def cell(name: str, dims: dict[str, int] | None = None, **kind: str) -> tuple[Task, Any, Any, TimedCall]:
    """Task, case, form of a call, and a call with the reference's own outputs."""
    task, case = tasks.find(name), case_of(name, dims or {"M": M, "N": N}, **kind)
    bound = BoundCase(task, case, CPU, tf32=False)
    drawn = bound.draw(new_secret())
    outputs = tuple(t.clone() for t in drawn.expectation.native)
    return task, case, bound.call_layout(drawn), TimedCall(tensors=drawn.tensors, outputs=outputs)


def samples(call_s: float, calls: int = 100, empty_s: float = 0.0) -> Samples:
    return Samples(candidate_ns=(call_s * 1e9,) * 3, baseline_ns=(1e6,) * 3, calls=calls, empty_ns=empty_s * 1e9)


def no_better() -> Limits:
    return LIMITS


def test_bytes_and_operations_over_the_peaks() -> None:
    task, case, form, _ = cell("gelu")
    least_s = BYTES / 1e9
    found = reached(task, case, form, samples(4 * least_s, calls=10**6), LIMITS, tf32=False)
    flops = task.flops(case.dims_map)
    assert found["iou"] == pytest.approx(0.25, rel=1e-3)
    assert found["mfu"] == pytest.approx(flops / 1e10 / (4 * least_s))
    assert found["fraction"] == max(found["iou"], found["mfu"])
    assert found["bound"] == ("arithmetic" if found["mfu"] > found["iou"] else "memory")
    assert found["least_ns"] == pytest.approx(found["fraction"] * 4 * least_s * 1e9)
    with_tf32 = reached(task, case, form, samples(4 * least_s), LIMITS, tf32=True)
    assert with_tf32["mfu"] == pytest.approx(found["mfu"] / 4)


def test_gradients_have_bytes_alone() -> None:
    task, case, form, _ = cell("gelu", direction="backward")
    found = reached(task, case, form, samples(BYTES / 1e9, calls=10**6), LIMITS, tf32=False)
    assert found["bytes"] == BYTES
    assert found["mfu"] is None
    assert found["fraction"] == pytest.approx(1.0, rel=1e-3)


def test_gradients_of_products_have_operations() -> None:
    dims = {"M": 24, "N": 40, "K": 56}
    task, case, form, _ = cell("matmul", dims, direction="backward")
    found = reached(task, case, form, samples(1e-3), LIMITS, tf32=False)
    assert found["flops"] == 2 * (2 * 24 * 40 * 56)  # one product for each of the two gradients
    assert found["mfu"] == pytest.approx(found["flops"] / 1e10 / 1e-3)
    assert found["bound"] == "arithmetic"


def test_a_reference_that_looks_at_its_data_states_no_operations() -> None:
    task, _, form, _ = cell("matmul", {"M": 8, "N": 8, "K": 8}, direction="backward")

    def looks(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (a @ b) * (1 if float(a.detach().sum()) else 2)

    assert backward_flops(replace(task, reference=looks), form) == 0


def test_types_without_a_peak_have_bytes_alone() -> None:
    task, case, form, _ = cell("gelu", dtype="bfloat16")
    found = reached(task, case, form, samples(1e-3), LIMITS, tf32=False)
    assert found["mfu"] is None
    assert found["bound"] == "memory"


def test_what_must_be_moved_is_what_outputs_depend_on() -> None:
    task, case, form, sample = cell("gelu")
    assert needed_bytes(task, case, form, sample) == pytest.approx(BYTES, rel=0.01)
    task, case, form, sample = cell("relu")  # half of the inputs show nothing of themselves, half of the outputs are 0
    assert needed_bytes(task, case, form, sample) < 0.9 * BYTES


def test_outputs_that_are_equal_may_be_one_in_memory() -> None:
    task, case, form, sample = cell("gelu")
    equal = replace(sample, outputs=(torch.ones(M, N),))
    assert needed_bytes(task, case, form, equal) == pytest.approx(BYTES / 2 + 8, rel=0.01)
    rows = replace(sample, outputs=(torch.randn(1, N).expand(M, N),))
    assert needed_bytes(task, case, form, rows) == pytest.approx(BYTES / 2 + 4 * N, rel=0.01)
    both = replace(sample, outputs=(sample.outputs[0], sample.outputs[0].clone()))  # one tensor, given twice
    assert needed_bytes(task, case, form, both) == pytest.approx(BYTES, rel=0.01)


def test_weights_and_expanded_inputs_count_for_what_lies_in_memory() -> None:
    task, case, form, sample = cell("gelu")
    (slot,) = form.slots
    kept = replace(form, args=(replace(slot, weight=True),))
    assert needed_bytes(task, case, kept, sample) == pytest.approx(BYTES / 2, rel=0.01)
    one = replace(form, args=(replace(dense((M, N), "float32"), strides=(0, 1), extent=N),))
    assert needed_bytes(task, case, one, sample) == pytest.approx(BYTES / 2 + 4 * N, rel=0.01)


@pytest.mark.parametrize(
    ("name", "direction"),
    [(n, d) for n in tasks.CORE for d in ("forward", "backward") if d == "forward" or not tasks.find(n).no_backward],
)
def test_what_must_be_moved_is_never_more_than_there_is(name: str, direction: str) -> None:
    task = tasks.find(name)
    task, case, form, sample = cell(name, {dim.name: max(dim.low, 8) for dim in task.dims}, direction=direction)
    there = sum(slot.nbytes for slot in form.slots) + sum(o.numel() * o.element_size() for o in sample.outputs)
    assert 0 < needed_bytes(task, case, form, sample) <= there


def test_a_time_below_the_limit_is_impossible() -> None:
    task, case, form, sample = cell("gelu")
    least_s = (100 * BYTES - 2000) / 1e9 / 100
    with pytest.raises(TimedMismatch, match="no kernel can have done it") as caught:
        check_limit(task, case, form, samples(0.95 * least_s / MARGIN), sample, LIMITS, no_better)
    assert caught.value.reason == "impossible"
    assert caught.value.evidence["needed_bytes"] == pytest.approx(BYTES, rel=0.01)
    check_limit(task, case, form, samples(1.05 * least_s / MARGIN), sample, LIMITS, no_better)


def test_the_round_trip_counts_for_the_candidate() -> None:
    task, case, form, sample = cell("gelu")
    check_limit(task, case, form, samples(1e-9, empty_s=100 * BYTES / 1e9), sample, LIMITS, no_better)


def test_bandwidth_is_measured_again_before_anybody_fails() -> None:
    task, case, form, sample = cell("gelu")
    asked = []

    def better() -> Limits:
        asked.append(1)
        return replace(LIMITS, bandwidth_bytes_per_s=2e9)

    check_limit(task, case, form, samples(0.6 * BYTES / 1e9), sample, LIMITS, better)
    assert asked == [1]
    check_limit(task, case, form, samples(BYTES / 1e9), sample, LIMITS, better)
    assert asked == [1]


def test_windows_that_the_caches_may_hold_are_not_looked_at() -> None:
    task, case, form, sample = cell("gelu")
    warm = replace(LIMITS, cache_bytes=26 * BYTES)  # twice that is more than half of 100 calls
    check_limit(task, case, form, samples(1e-9), sample, warm, no_better)
    with pytest.raises(TimedMismatch):
        check_limit(task, case, form, samples(1e-9), sample, replace(warm, cache_bytes=24 * BYTES), no_better)
    check_limit(task, case, form, samples(1e-9), sample, replace(warm, cache_bytes=0), no_better)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("out of memory"), RuntimeError("no kernel for Double")])
def test_a_reference_without_gradients_here_condemns_nobody(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def full(*_given: Any) -> int:
        raise error

    monkeypatch.setattr(roofline, "_read_bytes", full)
    task, case, form, sample = cell("gelu")
    assert needed_bytes(task, case, form, sample) == pytest.approx(BYTES / 2, rel=0.01)


GELU = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n"


def judged(judge: Judge, tmp_path: Any, *directions: str) -> Any:
    path = tmp_path / "gelu.py"
    path.write_text(GELU)
    options: dict[str, Any] = {"dtypes": ["float32"], "distributions": ["standard"], "categories": ["medium"]}
    options["directions"] = directions or ("forward",)
    return check(path, "gelu", judge=judge, tier="quick", allow=("library",), **options)


def keep(judge: Judge, bandwidth: float) -> None:
    rates = dict.fromkeys(peaks.BANDWIDTHS, bandwidth) | {"cache": 1e12, "matrix/float32": 1e12}
    found = {name: Peak(name=name, unit="B/s", best=rate, median=rate, n=1) for name, rate in rates.items()}
    peaks._keep(judge.machine, judge.pool.cache_dir, found)


@pytest.mark.serial
def test_a_verdict_tells_how_near_its_cells_come(
    new_cache: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without peaks it says so; with them each timed cell has its fraction; where the machine is said to be too slow
    for what the clock saw, the candidate is judged by what it can do now, and fails only if that is too slow as well.
    """
    monkeypatch.setattr(peaks, "caches_bytes", lambda: 1000)
    monkeypatch.setattr(peaks, "_path", lambda machine, _folder: tmp_path / f"{machine.fingerprint}.json")
    with Judge("cpu", new_cache()) as judge:
        verdict = judged(judge, tmp_path)
        assert verdict.verdict == "passed", verdict.message
        assert [f.check for f in verdict.findings if "were not measured" in f.message] == ["limits"]
        keep(judge, 1e12)
        verdict = judged(judge, tmp_path, "forward", "backward")
        assert verdict.verdict == "passed", verdict.message
        assert not [f for f in verdict.findings if f.check == "limits"]
        fractions = [c.outcome.evidence["limit"]["fraction"] for c in verdict.cells if c.outcome.timing]
        assert fractions
        assert all(0 < fraction < 1 and math.isfinite(fraction) for fraction in fractions)
        keep(judge, 1e4)
        monkeypatch.setattr(peaks, "measure", lambda _d, _m, name, _room=None: Peak(name=name, unit="B/s", best=1e12))
        assert judged(judge, tmp_path).verdict == "passed"
        keep(judge, 1e4)
        monkeypatch.setattr(peaks, "measure", lambda _d, _m, name, _room=None: Peak(name=name, unit="B/s", best=1e4))
        verdict = judged(judge, tmp_path)
        assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "timing", "impossible")
