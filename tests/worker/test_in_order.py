"""Windows in stream order: honest calls get through. That unjoined streams are found: ``tests/attacks/gpu``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kerneleval.devices import find as find_device
from kerneleval.judge import Judge
from kerneleval.judge.checks.track import Subject, alike_everywhere
from kerneleval.judge.probes.calls import Calls
from kerneleval.judge.probes.cells import CellJudge
from kerneleval.judge.windows.worker_pool import Loaded
from kerneleval.records import Candidate, Passed, Protocol
from kerneleval.tasks import find
from kerneleval.worker.staging import InOrder, Moved

ADD = "import torch\n\n\ndef add(a, b):\n    return torch.add(a, b)\n"
ENTRY = ADD + "\n\ndef add_backward(grad, a, b):\n    return grad, grad\n"


class Queue:
    """A device whose current stream is a list: what is queued runs at once, and its order is kept."""

    torch_device = "cpu"

    def __init__(self, on_delay: Callable[[], None]) -> None:
        self.delay = on_delay

    def synchronize(self) -> None:
        pass


def _moved(private: torch.Tensor, revealed: torch.Tensor) -> Moved:
    return Moved(call=None, private=(private,), revealed=(revealed,))


def test_inputs_are_poison_until_the_stream_has_come_to_them() -> None:
    seen = []
    in_order = InOrder(Queue(lambda: seen.append(private.view(torch.float32).clone())))  # type: ignore[arg-type]
    private = in_order.private(16)
    given = torch.arange(4, dtype=torch.float32)
    run = in_order.run(
        [_moved(private, given.view(torch.uint8))], lambda _: [private.view(torch.float32) * 2], lambda r: r
    )
    assert torch.isnan(seen[0]).all()
    assert torch.equal(run[0][0], given * 2)


def test_outputs_are_those_that_were_there_right_behind_the_call() -> None:
    in_order = InOrder(find_device("cpu"))
    out = torch.zeros(4)
    results = in_order.run([_moved(in_order.private(4), torch.zeros(4, dtype=torch.uint8))], lambda _: [out], list)
    out.fill_(1.0)  # work that came too late
    assert torch.equal(results[0][0], torch.zeros(4))


@pytest.mark.parametrize("source", [ADD, ENTRY], ids=["autograd", "entry"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_honest_calls_get_through(judge: Judge, tmp_path: Path, source: str, direction: str) -> None:
    candidate = Candidate(files=(("add.py", source),), language="torch")
    protocol = Protocol(directions=(direction,), dtypes=("float32",), categories=("small",))  # type: ignore[arg-type]
    task = find("add")
    case = next(c for c in judge.plan(task, protocol) if (c.layout, c.distribution) == ("contiguous", "standard"))
    loaded = Loaded(judge.pool, candidate, ("add",))
    calls = Calls(loaded, task, protocol, judge.device)
    assert isinstance(CellJudge(calls).judge(case), Passed)
    subject = Subject(calls, case)
    for in_order in (True, False, True):
        assert alike_everywhere(subject.window(in_order=in_order).outputs, subject.native)
    loaded.close()


def test_one_element_that_was_never_written_shows() -> None:
    wanted = torch.randn(1000, 1000)
    got = wanted.clone()
    assert alike_everywhere([got], [wanted])
    got[17, 300] += 1.0
    assert not alike_everywhere([got], [wanted])
    got[17, 300] = float("nan")
    assert not alike_everywhere([got], [wanted])
    assert not alike_everywhere([torch.tensor([3, 4])], [torch.tensor([3, 5])])
