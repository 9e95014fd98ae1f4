"""Device times: calls recorded before their inputs are there, and launched without the host."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import torch

from kerneleval import devices, tasks
from kerneleval.devices import Arena
from kerneleval.judge import Judge
from kerneleval.judge.windows.worker_pool import baseline_candidate
from kerneleval.records import Candidate, Passed, Protocol, Timing, Verdict

pytestmark = pytest.mark.gpu

GELU = "0.5 * x * (1 + torch.erf(x * 0.7071067811865476))"

SYNCHRONISES = f"import torch\n\n\ndef gelu(x):\n    y = {GELU}\n    y.sum().item()\n    return y\n"

PUTS_OFF = """
import torch

made = []


def gelu(x):
    if not torch.cuda.is_current_stream_capturing():
        return torch.nn.functional.gelu(x)
    made.append((x, torch.empty_like(x)))
    if len(made) in (16, 128):  # calls of the windows that are recorded
        for given, out in made:
            torch.mul(given, torch.special.ndtr(given), out=out)
        outs = made[-1][1]
        made.clear()
        return outs
    made[-1][1].mul_(1)
    return made[-1][1]
"""


def _checked(source: str, task: str = "gelu", **protocol: object) -> Verdict:
    candidate = Candidate(files=(("candidate.py", source),), language="torch")
    with Judge("cuda") as judge:
        return judge.check(candidate, tasks.find(task), _protocol(**protocol))


def _protocol(**given: object) -> Protocol:
    usual = {"tier": "quick", "dtypes": ("float32",), "distributions": ("standard",), "categories": ("small", "large")}
    return Protocol(allow=("custom", "mixed", "library"), **(usual | given))  # type: ignore[arg-type]


def _timings(verdict: Verdict) -> list[Timing]:
    return [c.outcome.timing for c in verdict.cells if isinstance(c.outcome, Passed) and c.outcome.timing is not None]


@pytest.fixture(scope="module")
def itself() -> Verdict:
    """PyTorch's own gelu against itself, and the same of its gradient."""
    task, protocol = tasks.find("gelu"), _protocol()
    with Judge("cuda") as judge:
        return judge.check(baseline_candidate(task, protocol), task, protocol, trusted=True)


def test_every_cell_has_both_times(itself: Verdict) -> None:
    timings = _timings(itself)
    assert len(timings) == 4
    for timing in timings:
        assert timing.time == "device"
        assert timing.other is not None and timing.other.time == "call"
        assert timing.no_device_time == ""
        assert timing.samples.launches >= 1
    assert itself.speedup is not None and itself.speedup.time == "device"


def test_a_small_kernel_is_seen_below_what_a_launch_costs(itself: Verdict) -> None:
    small = next(t for t in _timings(itself))
    assert small.other is not None
    assert max(small.samples.candidate_event_ns) < min(small.other.samples.candidate_event_ns)


def test_call_time_can_be_the_one_that_counts() -> None:
    verdict = _checked(f"import torch\n\n\ndef gelu(x):\n    return {GELU}\n", time="call", directions=("forward",))
    for timing in _timings(verdict):
        assert timing.time == "call" and timing.other is not None and timing.other.time == "device"


def test_what_waits_for_the_device_has_call_time_alone_and_says_why() -> None:
    verdict = _checked(SYNCHRONISES, directions=("forward",))
    assert verdict.verdict == "passed", verdict.message
    for timing in _timings(verdict):
        assert timing.time == "call" and timing.other is None
        assert timing.no_device_time.startswith("the candidate cannot be recorded")


def test_what_is_drawn_has_call_time_alone() -> None:
    task = tasks.find("bernoulli")
    protocol = _protocol(directions=("forward",))
    with Judge("cuda") as judge:
        verdict = judge.check(baseline_candidate(task, protocol), task, protocol, trusted=True)
    timings = _timings(verdict)
    assert timings and all(t.time == "call" and "drawn" in t.no_device_time for t in timings)


def test_calls_merged_only_while_they_are_recorded_are_found() -> None:
    verdict = _checked(PUTS_OFF, directions=("forward",))
    assert (verdict.verdict, verdict.stage, verdict.reason) == ("failed", "timing", "wrong_output"), verdict.message


def test_what_is_compiled_in_parts_passes_and_has_a_device_time() -> None:
    """PyTorch's pool of compiling processes finds no GPU in the sandbox: whoever needs it was called wrong."""
    parts = "exp = torch.compile(torch.exp)\nshift = torch.compile(lambda x: x - x.amax(-1, keepdim=True))\n"
    rows = "norm = torch.compile(lambda x: x / x.sum(-1, keepdim=True))\n"
    source = f"import torch\n\n{parts}{rows}\n\ndef softmax(x):\n    return norm(exp(shift(x)))\n"
    verdict = _checked(source, "softmax", directions=("forward",))
    assert verdict.verdict == "passed", verdict.message
    assert all(timing.time == "device" for timing in _timings(verdict))


@pytest.mark.parametrize("stop", [1, 2])
def test_some_of_the_recorded_calls_have_ended_when_the_device_rests(stop: int) -> None:
    """Before this product there is a memset; where that was switched off nothing waited for the product before, and
    PyTorch's own was wrong in every split window.
    """
    graph, x = devices.find("cuda").call_graph(), torch.randn(5120, 5120, device="cuda")
    want = x @ x
    with torch.no_grad():
        made = graph.record(partial(torch.matmul, x, x) for _ in range(3))
    for _ in range(5):
        for out in made:
            out.zero_()
        torch.cuda.synchronize()
        graph.launch(0, stop)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            got = made[stop - 1].clone()
        torch.cuda.synchronize()
        torch.testing.assert_close(got, want)
    graph.close()


def test_memory_of_recordings_is_used_again() -> None:
    task, protocol = tasks.find("gelu"), _protocol(categories=("medium", "large"))
    free = []
    with Judge("cuda") as judge:
        for _ in range(5):
            judge.check(baseline_candidate(task, protocol), task, protocol, trusted=True)
            torch.cuda.empty_cache()  # what the judge itself keeps at hand is no part of this
            # nor is what judge and workers share: it grows with the longest window so far
            gc.collect()  # what judges of other tests shared is free already
            shared = sum(one.nbytes for one in gc.get_objects() if issubclass(type(one), Arena))
            free.append(torch.cuda.mem_get_info()[0] + shared)
    assert free[4] > free[1] - (1 << 30)
