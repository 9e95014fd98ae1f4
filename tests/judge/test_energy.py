"""Energy of a call: from a counter that steps, or not at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kerneleval.devices.cpu import DEVICE
from kerneleval.judge import energy_windows
from kerneleval.judge.energy import Check, Look, energy_of, mean_power
from kerneleval.records import Samples


class World:
    """A clock, and a device of so many watts whose counter steps every ``step_s``."""

    def __init__(
        self, watts: float, step_s: float, window_s: float, pause_s: float = 0.0, call_ns: float = 1e6
    ) -> None:
        self.now = 0.0
        self.watts, self.step_s, self.window_s, self.pause_s = watts, step_s, window_s, pause_s
        self.calls = round(window_s * 1e9 / call_ns)
        self.check_s = self.rested_s = 0.0

    def counter_mj(self) -> float:
        return 5e6 + 1e3 * self.watts * ((self.now - self.rested_s) // self.step_s) * self.step_s

    def windows(self, look: Look) -> tuple[float, int, Check | None]:
        for _ in range(8):
            self.now += self.window_s / 8
            look()
        self.now += self.pause_s
        return self.window_s * 1e9, self.calls, self.compare if self.check_s else None

    def compare(self) -> None:
        """Nothing is drawn meanwhile."""
        self.now += self.check_s
        self.rested_s += self.check_s

    def clock(self) -> float:
        return self.now


@pytest.mark.parametrize("window_s", [0.008, 0.2])
@pytest.mark.parametrize("step_s", [0.001, 0.02, 0.09])
def test_power_is_known_to_the_counters_step(step_s: float, window_s: float) -> None:
    """Also where a window takes longer than the counter's steps: it is read between passes over the calls."""
    world = World(watts=300.0, step_s=step_s, window_s=window_s)
    spent = mean_power(world.counter_mj, world.windows, 1.0, world.clock)
    assert spent.power_w == pytest.approx(300.0, rel=0.03)
    assert spent.busy == pytest.approx(1.0)
    assert spent.steps >= 11
    assert spent.call_ns == pytest.approx(1e6)


@pytest.mark.parametrize("step_s", [0.01, 0.1])
def test_comparing_is_not_counted(step_s: float) -> None:
    world = World(watts=300.0, step_s=step_s, window_s=0.4)
    world.check_s = 0.7
    spent = mean_power(world.counter_mj, world.windows, 2.0, world.clock)
    assert spent.power_w == pytest.approx(300.0, rel=0.03)
    assert spent.busy == pytest.approx(1.0)
    assert world.now > 5.0


def test_a_counter_that_seldom_steps_says_nothing() -> None:
    world = World(watts=300.0, step_s=0.2, window_s=0.008)
    spent = mean_power(world.counter_mj, world.windows, 1.0, world.clock)
    assert (spent.power_w, spent.steps) == (None, 10)


def test_a_counter_of_a_tenth_of_a_second_gets_the_time_that_it_needs() -> None:
    """NVML's on an H100: it stepped ten times in a second."""
    world = World(watts=300.0, step_s=0.1, window_s=0.008)
    spent = mean_power(world.counter_mj, world.windows, 1.0, world.clock)
    assert (spent.power_w, spent.steps) == (pytest.approx(300.0, rel=0.02), 11)
    assert world.now < 1.2


class Device:
    """What :func:`energy_of` needs of a device."""

    def __init__(self, world: World) -> None:
        self.world = world

    def energy_mj(self) -> float | None:
        return self.world.counter_mj()


def of(
    candidate: World, monkeypatch: pytest.MonkeyPatch, candidate_ns: float = 1e6, seconds: float = 1.0
) -> dict[str, Any]:
    monkeypatch.setattr(mean_power, "__defaults__", (candidate.clock,))
    windows = candidate.windows
    return energy_of(
        Device(candidate),  # type: ignore[arg-type]
        windows,
        windows,
        seconds=seconds,
        candidate_ns=candidate_ns,
        baseline_ns=1.2e6,
    )


def test_energy_is_power_times_the_verified_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of(World(watts=400.0, step_s=0.02, window_s=0.008, pause_s=0.002), monkeypatch)
    assert found["candidate_j"] == pytest.approx(0.4, rel=0.02)
    assert found["baseline_j"] == pytest.approx(0.48, rel=0.02)
    assert found["candidate_w"] == pytest.approx(400.0, rel=0.02)
    assert found["candidate_busy"] == pytest.approx(0.8, rel=0.01)


def test_what_cannot_be_told_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stepped 10 times in 2 s, which is too seldom" in of(World(300.0, 0.2, 0.008), monkeypatch)["why_not"]
    assert "calls filled 29% of the time" in of(World(300.0, 0.01, 0.002, pause_s=0.005), monkeypatch)["why_not"]


@pytest.mark.parametrize("candidate_ns", [0.7e6, 1.3e6])
def test_calls_that_take_another_time_than_when_timed_have_no_energy(
    monkeypatch: pytest.MonkeyPatch, candidate_ns: float
) -> None:
    """Else whoever sees that energy is counted could rest then, or compute nothing."""
    found = of(World(300.0, 0.02, 0.008), monkeypatch, candidate_ns)
    assert found == {
        "why_not": f"a call of the candidate took 1000.0 us while energy was counted, and {candidate_ns / 1e3:.1f} us "
        "when it was timed"
    }


@pytest.mark.serial
def test_a_precise_verdict_tells_joules(new_cache: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, with a host that is said to take 50 W."""
    import time
    from dataclasses import replace

    from kerneleval.devices import cpu
    from kerneleval.judge import Judge, clock
    from kerneleval.pipeline import check

    class Watts:
        def read_mj(self) -> float:
            return 5e4 * time.perf_counter()

    monkeypatch.setattr(cpu, "HOST", Watts())
    monkeypatch.setattr("kerneleval.judge.energy._BUSY", 0.0)  # a busy machine leaves little room for windows
    monkeypatch.setattr("kerneleval.judge.energy._PACE", 100.0)
    monkeypatch.setattr("kerneleval.judge.energy._STEPS", 2)  # this counter is exact at every step
    short = replace(clock.TIERS["quick"], energy_s=0.3)
    monkeypatch.setitem(clock.TIERS, "quick", short)
    path = tmp_path / "gelu.py"
    path.write_text("import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x)\n")
    options: dict[str, Any] = {"dtypes": ["float32"], "distributions": ["standard"], "directions": ["forward"]}
    with Judge("cpu", new_cache()) as judge:
        verdict = check(path, "gelu", judge=judge, tier="quick", allow=("library",), categories=["large"], **options)
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
    passes: list[int] = []

    class Sides:
        candidate, baseline, generator = "candidate", "baseline", "generator"

        def once(self, runner: str, _image: object, again: Any) -> Any:
            made = 1
            while again() == "generator":
                made += 1
            passes.append(made)
            return SimpleNamespace(elapsed_ns=1e6 * made, of=runner)

        def alone(self, runner: str, _image: object) -> Any:
            return SimpleNamespace(elapsed_ns=1e6, of=runner)

    class Calls:
        plan = SimpleNamespace(calls=range(100))

        def part(self, count: int) -> object:
            assert count == 50
            return self

    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1

    def energy(_device: object, candidate: Any, baseline: Any, **_how: Any) -> dict[str, float]:
        for windows in (candidate, baseline):
            for _ in range(500):
                elapsed_ns, calls, check = windows(look)
                assert elapsed_ns / calls == 1e6 / 50
                if check is not None:
                    check()
        return {}

    def compare(pair: Any, *_how: Any) -> None:
        compared.append([window.of for window in pair])

    monkeypatch.setattr(energy_windows, "energy_of", energy)
    monkeypatch.setattr(energy_windows, "verify", compare)
    samples = Samples(candidate_ns=(1e6,), baseline_ns=(1e6,), calls=100)
    how: Any = (None, None)
    counts: Any = SimpleNamespace(energy_mj=lambda: 0.0)
    energy_windows.energy_in_windows(Sides(), Calls(), samples, 20.0, counts, how)  # type: ignore[arg-type]
    assert 0 < len(compared) < 300 and all(pair == ["candidate", "baseline"] for pair in compared)
    assert set(passes) == set(range(5, 10)) and looked == sum(passes)

    passes.clear()
    now = iter(range(0, 10**15, 300_000_000))  # every pass takes 0.3 s: whoever sleeps in them does not keep the judge
    monkeypatch.setattr(energy_windows.time, "perf_counter_ns", lambda: next(now))
    monkeypatch.setattr(
        energy_windows, "energy_of", lambda _device, candidate, _baseline, **_how: candidate(look) and {}
    )
    energy_windows.energy_in_windows(Sides(), Calls(), samples, 20.0, counts, how)  # type: ignore[arg-type]
    assert passes == [4]
    monkeypatch.setattr(energy_windows, "energy_of", None)
    # a device that counts none is not asked for windows
    assert energy_windows.energy_in_windows(Sides(), Calls(), samples, 20.0, DEVICE, how) == {}  # type: ignore[arg-type]
