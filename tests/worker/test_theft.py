"""What a worker's processes compute while nobody waits for them keeps the judge from running: it counts as waiting."""

from __future__ import annotations

import pytest

from kerneleval.sandbox import processes
from kerneleval.sandbox.processes import Activity
from kerneleval.worker import waiting


class Machine:
    """Two processors, one worker process, and a judge that waits for one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = self.used_s = self.delay_s = 100.0
        monkeypatch.setattr(waiting.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(processes, "activity", lambda _: Activity(0, int(1e9 * self.used_s)))
        monkeypatch.setattr(processes, "delay_s", lambda: self.delay_s)
        monkeypatch.setattr(waiting, "processors", lambda: 2)
        self.theft = waiting.StolenTime(lambda: [1])
        self.theft.taken_s(0.0)

    def after(self, seconds: float, *, used_s: float, delay_s: float, waited_s: float = 0.0) -> float:
        self.now_s, self.used_s, self.delay_s = self.now_s + seconds, self.used_s + used_s, self.delay_s + delay_s
        return self.theft.taken_s(waited_s)


@pytest.mark.parametrize(
    ("used_s", "delay_s", "waited_s", "taken_s"),
    [
        (20.0, 9.0, 0.0, 9.0),  # it computes beside the judge, which hardly runs
        (0.1, 9.0, 0.0, 0.1),  # others keep the judge from running
        (20.0, 0.1, 0.0, 0.1),  # there are processors left
        (12.0, 5.0, 6.0, 0.0),  # it computes what it is asked for
        (18.0, 4.0, 6.0, 4.0),
    ],
)
def test_only_what_it_computes_unasked_and_at_the_judges_cost_counts(
    used_s: float, delay_s: float, waited_s: float, taken_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch)
    assert machine.after(10.0, used_s=used_s, delay_s=delay_s, waited_s=waited_s) == pytest.approx(taken_s)
    assert machine.after(10.0, used_s=0.0, delay_s=9.0) == 0.0


def test_waits_between_two_looks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch)
    assert [machine.after(0.1, used_s=0.2, delay_s=0.1, waited_s=0.1) for _ in range(10)] == pytest.approx([0.0] * 10)
