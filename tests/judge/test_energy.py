"""Energy of a call: from a counter that steps, or not at all."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from kerneleval.devices.cpu import Cpu
from kerneleval.judge.timing import energy
from kerneleval.judge.timing.energy import Counted, Meter, energy_of, mean_power
from kerneleval.records import Samples


class World:
    """A clock, and a device of so many watts whose counter steps every ``step_s``."""

    def __init__(self, watts: float, step_s: float, window_s: float, idle_s: float = 0.0, call_ns: float = 1e6) -> None:
        self.now = 0.0
        self.watts, self.step_s, self.window_s, self.idle_s, self.call_ns = watts, step_s, window_s, idle_s, call_ns
        self.check_s = 0.0

    def counter_mj(self) -> float:
        return 5e6 + 1e3 * self.watts * (self.now // self.step_s) * self.step_s

    def window(self) -> Counted:
        """Of which so much was idle; then something is compared."""
        made, last, read_s = Counted(), self.counter_mj(), 0.0005
        for _ in range(round(self.window_s / read_s)):
            self.now += read_s
            if (value := self.counter_mj()) != last:
                made.steps.append((self.now, value))
                last = value
        made.span_s = self.window_s
        made.within_ns = 1e9 * (self.window_s - self.idle_s)
        made.calls = round(made.within_ns / self.call_ns)
        self.now += self.check_s
        return made

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("check_s", [0.0, 0.7])
@pytest.mark.parametrize("step_s", [0.001, 0.02, 0.1])
def test_power_is_known_to_the_counters_step(step_s: float, check_s: float) -> None:
    """What lies between windows is not counted: a device that draws nothing there has the same figure."""
    world = World(watts=300.0, step_s=step_s, window_s=1.3)
    world.check_s = check_s
    spent = mean_power(world.window, 2.0, world.clock)
    assert spent.power_w == pytest.approx(300.0, rel=0.03)
    assert (spent.busy, spent.span_s) == (pytest.approx(1.0), pytest.approx(2.6))
    assert spent.steps >= 11
    assert spent.call_ns == pytest.approx(1e6)


def test_a_counter_that_seldom_steps_says_nothing() -> None:
    world = World(watts=300.0, step_s=0.4, window_s=1.0)
    spent = mean_power(world.window, 2.0, world.clock)
    assert spent.power_w is None and 6 <= spent.steps <= 10
    assert spent.span_s == pytest.approx(4.0)


def test_a_counter_of_a_tenth_of_a_second_gets_the_time_that_it_needs() -> None:
    """NVML's on an H100: it stepped ten times in a second."""
    world = World(watts=300.0, step_s=0.1, window_s=0.5)
    spent = mean_power(world.window, 1.0, world.clock)
    assert spent.power_w == pytest.approx(300.0, rel=0.02) and 11 <= spent.steps <= 15
    assert spent.span_s == pytest.approx(1.5)


def test_windows_that_are_over_at_once_come_to_an_end() -> None:
    """As where the first pass took so long that there is no second one."""
    world = World(watts=300.0, step_s=0.1, window_s=0.0)
    world.check_s = 0.6
    spent = mean_power(world.window, 1.0, world.clock)
    assert spent.power_w is None and world.now < 6


def of(world: World, monkeypatch: pytest.MonkeyPatch, candidate_ns: float = 1e6) -> dict[str, Any]:
    monkeypatch.setattr(mean_power, "__defaults__", (world.clock,))
    return energy_of(world.window, world.window, seconds=1.0, candidate_ns=candidate_ns, baseline_ns=1.2e6)


def test_energy_is_power_times_the_verified_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(World(watts=400.0, step_s=0.02, window_s=0.5, idle_s=0.1), monkeypatch)
    assert found["candidate_j"] == pytest.approx(0.4, rel=0.02)
    assert found["baseline_j"] == pytest.approx(0.48, rel=0.02)
    assert found["candidate_w"] == pytest.approx(400.0, rel=0.02)
    assert found["candidate_busy"] == pytest.approx(0.8, rel=0.01)


def test_what_cannot_be_told_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stepped 4 times in 2.0 s, which is too seldom" in of(World(300.0, 0.4, 0.5), monkeypatch)["why_not"]
    assert "calls filled 29% of the time" in of(World(300.0, 0.01, 0.7, idle_s=0.5), monkeypatch)["why_not"]


@pytest.mark.parametrize("candidate_ns", [0.7e6, 1.3e6])
def test_calls_that_take_another_time_than_when_timed_have_no_energy(
    monkeypatch: pytest.MonkeyPatch, candidate_ns: float
) -> None:
    """Else whoever sees that energy is counted could rest then, or compute nothing."""
    found = of(World(300.0, 0.02, 0.5), monkeypatch, candidate_ns)
    assert found == {
        "why_not": f"a call of the candidate took 1000.0 us while energy was counted, and {candidate_ns / 1e3:.1f} us "
        "when it was timed"
    }


def test_a_counter_that_is_slow_to_answer_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked between passes of 10 ms, such a one left calls less than half of the time."""
    monkeypatch.setattr(energy, "_READ_S", 0.001)
    asked = 0

    def counter_mj() -> float:
        nonlocal asked
        time.sleep(0.03)
        asked += 1
        return 100.0 * asked

    meter = Meter(counter_mj)
    assert meter.stop() == Counted()
    meter.start()
    time.sleep(0.5)
    counted = meter.stop()
    assert counted is meter.stop()
    assert counted.span_s >= 0.5
    assert 4 <= len(counted.steps) < 20
    assert [mj for _, mj in counted.steps] == [100.0 * n for n in range(2, asked + 1)]
    seconds, mj = counted.between
    assert seconds <= counted.span_s + 0.1 and mj == 100.0 * (asked - 2)


@pytest.mark.serial
def test_a_precise_verdict_tells_joules(new_cache: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, with a host that is said to take 50 W."""
    from dataclasses import replace

    from kerneleval.devices import cpu
    from kerneleval.judge import Judge
    from kerneleval.judge.timing.effort import HOST_TIERS
    from kerneleval.pipeline import check

    class Watts:
        def read_mj(self) -> float:
            return 5e4 * time.perf_counter()

    monkeypatch.setattr(cpu, "HOST", Watts())
    monkeypatch.setattr("kerneleval.judge.timing.energy._BUSY", 0.0)  # a busy machine leaves little room for windows
    monkeypatch.setattr("kerneleval.judge.timing.energy._PACE", 100.0)
    monkeypatch.setattr("kerneleval.judge.timing.energy._STEPS", 1)  # this counter is exact at every step
    monkeypatch.setattr("kerneleval.judge.timing.energy._WINDOW_NS", 2e8)
    short = replace(HOST_TIERS["quick"], energy_s=0.3)
    monkeypatch.setitem(HOST_TIERS, "quick", short)
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    options: dict[str, Any] = {"dtypes": ["float32"], "distributions": ["standard"], "directions": ["forward"]}
    with Judge("cpu", new_cache()) as judge:
        verdict = check(path, "gelu", judge=judge, tier="quick", allow=("library",), categories=["medium"], **options)
    assert verdict.verdict == "passed", verdict.message
    timed = [c.outcome for c in verdict.cells if c.outcome.timing]  # type: ignore[union-attr]
    assert timed
    for outcome in timed:
        energy = outcome.evidence["energy"]
        assert energy["candidate_w"] == pytest.approx(50.0, rel=0.01)
        call_s = sorted(outcome.timing.samples.candidate_ns)[len(outcome.timing.samples.candidate_ns) // 2] / 1e9
        assert energy["candidate_j"] == pytest.approx(50.0 * call_s, rel=0.5)


def test_outputs_of_windows_whose_energy_is_told_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever tells them from timed ones, by what follows what, would do nothing in them. How often such a window
    goes through its calls is a secret: the outputs are the last pass'.
    """
    compared: list[Any] = []
    pass_counts: list[int] = []
    pass_ns = 30e6 + 2e6  # its calls, and what the round trip takes

    class Sides:
        candidate, baseline, generator = "candidate", "baseline", "generator"

        def once(self, runner: str, _image: object, mode: Any) -> Any:
            assert mode.rounds == 3  # 100 calls of 0.1 ms, 30 ms a pass
            elapsed_ns = 3 * pass_ns  # the first one loads and tunes
            made = 1
            while mode.again(elapsed_ns) == "generator":
                made, elapsed_ns = made + 1, elapsed_ns + pass_ns
            pass_counts.append(made)
            return SimpleNamespace(of=runner, output_offsets=[[512]])

        def alone(self, runner: str, _image: object, places: list[list[int]]) -> Any:
            assert places == [[512]]  # those of the other side: rows of both are of the same calls
            return SimpleNamespace(of=runner)

    class Calls:
        layout = SimpleNamespace(calls=range(100))

    counts: Any = SimpleNamespace(energy_mj=lambda: 0.0)
    samples = Samples(candidate_ns=(1e5,), baseline_ns=(1e5,), calls=100, empty_ns=2e6)

    def tell() -> Any:
        return energy.energy_in_windows(Sides(), Calls(), samples, 20.0, counts, (None, None))  # type: ignore[arg-type]

    def figures(candidate: Any, baseline: Any, **_how: Any) -> dict[str, float]:
        for windows in (candidate, baseline):
            for _ in range(100):
                counted = windows()
                assert counted.calls == 300 * (pass_counts[-1] - 1)
                assert counted.within_ns / counted.calls == pytest.approx(1e5)
        return {}

    def compare(pair: Any, *_how: Any) -> None:
        compared.append([window.of for window in pair])

    monkeypatch.setattr(energy, "energy_of", figures)
    monkeypatch.setattr(energy, "verify", compare)
    assert tell() == {}
    assert compared == [["candidate", "baseline"]] * 100
    assert min(pass_counts) >= 34 and max(pass_counts) <= 67 and len(set(pass_counts)) > 20

    pass_counts.clear()
    now = iter(range(0, 10**15, 900_000_000))  # every pass takes 0.9 s: whoever sleeps in them does not keep the judge
    monkeypatch.setattr(energy.time, "perf_counter_ns", lambda: next(now))
    monkeypatch.setattr(energy, "energy_of", lambda candidate, _baseline, **_how: candidate() and {})
    tell()
    assert pass_counts == [4]
    monkeypatch.setattr(energy, "energy_of", None)
    counts.energy_mj = Cpu().energy_mj  # a device that counts none is not asked for windows
    assert counts.energy_mj() is not None or tell() == {}


def test_nothing_is_read_any_more_once_a_window_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sides:
        candidate, baseline, generator = "candidate", "baseline", "generator"

        def once(self, _runner: str, _image: object, mode: Any) -> Any:
            mode.again(1e6)
            raise ValueError("wrong")

    class Calls:
        layout = SimpleNamespace(calls=range(100))

    counts: Any = SimpleNamespace(energy_mj=lambda: 0.0)
    samples = Samples(candidate_ns=(4e6,), baseline_ns=(4e6,), calls=100)
    with pytest.raises(ValueError, match="wrong"):
        energy.energy_in_windows(Sides(), Calls(), samples, 1.0, counts, (None, None))  # type: ignore[arg-type]
    assert all(thread.name != "energy" for thread in threading.enumerate())
