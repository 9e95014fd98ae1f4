"""Claims from raw samples: what may be said, and what may not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kerneleval.judge.timing.statistics import (
    KNOWN,
    SURE,
    Noise,
    claim_of,
    error_of,
    of_equal_code,
    pair_log_ratios,
    scatter_now,
    sure,
    timings_of,
)
from kerneleval.judge.verdicts import _summary
from kerneleval.records import CellResult, Passed, Samples

from .conftest import case_of

NOISE = Noise(spread=0.01, between=0.003)


def _samples(candidate: list[float], baseline: list[float], **more: object) -> Samples:
    given = {"calls": 8, "sessions": tuple(0 for _ in candidate)} | more
    return Samples(candidate_ns=tuple(candidate), baseline_ns=tuple(baseline), **given)  # type: ignore[arg-type]


def equal_code(
    rng: np.random.Generator, *, sessions: int = 1, blocks: int = 2, sigma: float = 0.01, off: float = 0.0
) -> Samples:
    """Windows of equal code of this standard deviation, in processes that are off by so much in every session."""
    mine, theirs, processes = [], [], []
    for _ in range(sessions):
        own, *both = rng.normal(0, off / math.sqrt(2), 3)
        for _ in range(blocks):
            order = rng.permutation(2)
            mine += [own + rng.normal(0, sigma)] * 2
            theirs += (np.array(both)[order] + rng.normal(0, sigma, 2)).tolist()
            processes += order.tolist()
    numbers = tuple(number for number in range(sessions) for _ in range(2 * blocks))
    return _samples(
        np.exp(mine).tolist(), np.exp(theirs).tolist(), sessions=numbers, processes=tuple(processes), calls=1000
    )


def test_blocks_average_two_pairs() -> None:
    blocks = pair_log_ratios(_samples([1.0, 1.0, 1.0, 1.0], [math.e, 1.0, 1.0, 1.0]))
    assert np.allclose(blocks[0], [0.5, 0.0])


def test_a_window_that_sank_below_its_constant_claims_nothing() -> None:
    """Found on an overloaded machine: one pair had nothing left of its window, and 1906x 'faster' came out."""
    samples = _samples([1.0, 9e5], [1e6, 1.1e6], empty_ns=1e5, empty_spread_ns=2e5)
    (timing,) = timings_of([(samples, Noise(spread=0.02, between=0.01))])
    assert timing.claim == "inconclusive"
    assert timing.low < 1 < timing.high


def test_scatter_of_the_constant_widens_the_interval() -> None:
    noise = Noise(spread=0.002, between=0.0)
    (steady,) = timings_of([(_samples([1e6] * 4, [1.1e6] * 4), noise)])
    (shaky,) = timings_of([(_samples([1e6] * 4, [1.1e6] * 4, empty_spread_ns=2e6), noise)])
    assert steady.claim == "faster"
    assert shaky.claim == "inconclusive"


def test_equal_code_is_the_baselines_two_processes() -> None:
    """The second is 10 % slower in every block, whichever of the two is first."""
    samples = _samples([1.0] * 4, [1.0, 1.1, 1.1, 1.0], processes=(0, 1, 1, 0))
    (found,) = of_equal_code(samples)
    assert np.allclose(found, -math.log(1.1))
    assert of_equal_code(_samples([1.0] * 4, [1.0] * 4)) == []


@pytest.mark.slow(every=3)
@pytest.mark.parametrize(("sessions", "blocks"), [(1, 1), (1, 2), (2, 4), (3, 5)])
@pytest.mark.parametrize(("busier", "off"), [(1.0, 0.003), (5.0, 0.003), (1.0, 0.03)])
def test_intervals_cover_the_truth(sessions: int, blocks: int, busier: float, off: float) -> None:
    """Of eight cells in a verdict, on the machine as it was, five times busier, and with processes ten times as far
    apart: 95 % contain the truth, or more. By the figures of the idle machine alone it were 30 to 60 %.
    """
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(100):
        cells = [equal_code(rng, sessions=sessions, blocks=blocks, sigma=0.01 * busier, off=off) for _ in range(8)]
        inside += sum(timing.low <= 1 <= timing.high for timing in timings_of([(one, NOISE) for one in cells]))
    assert inside / 800 > 0.92


@pytest.mark.parametrize(("sessions", "blocks"), [(1, 2), (2, 4), (3, 5)])
@pytest.mark.parametrize(("busier", "off"), [(15.0, 0.003), (1.0, 0.1), (0.2, 0.0)])
def test_equal_code_is_called_neither_faster_nor_slower(sessions: int, blocks: int, busier: float, off: float) -> None:
    rng = np.random.default_rng(11)
    for _ in range(100):
        cells = [equal_code(rng, sessions=sessions, blocks=blocks, sigma=0.01 * busier, off=off) for _ in range(8)]
        claims = {timing.claim for timing in timings_of([(one, NOISE) for one in cells])}
        assert not claims & {"faster", "slower"}


def test_a_quiet_machine_tells_five_percent() -> None:
    rng, claimed = np.random.default_rng(13), 0
    for _ in range(50):
        cells = [equal_code(rng, blocks=3, sigma=0.002, off=0.001) for _ in range(8)]
        faster = [replace(one, candidate_ns=tuple(t / 1.05 for t in one.candidate_ns)) for one in cells]
        noise = Noise(spread=0.002, between=0.003)
        claimed += sum(timing.claim == "faster" for timing in timings_of([(one, noise) for one in faster]))
    assert claimed >= 0.95 * 400


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [3, 4])
def test_a_candidate_that_scatters_alone_is_seldom_called_faster(blocks: int) -> None:
    """Its windows are close together by chance now and then, and equal code of seven other cells is steady. By the
    scatter of equal code alone 12 and 10 of these 600 were called faster or slower."""
    rng, claimed = np.random.default_rng(1), 0
    for _ in range(600):
        cells = [equal_code(rng, blocks=blocks, sigma=0.002) for _ in range(8)]
        factors = np.exp(np.repeat(rng.normal(0, 0.05, blocks), 2))
        own = replace(cells[0], candidate_ns=tuple(np.asarray(cells[0].candidate_ns) * factors))
        noise = Noise(spread=0.002, between=0.003)
        claimed += timings_of([(one, noise) for one in (own, *cells[1:])])[0].claim in ("faster", "slower")
    assert claimed <= 5


def test_the_error_between_sessions_does_not_shrink_with_blocks() -> None:
    noise = Noise(spread=0.0, between=0.01)
    few, many = (_samples([1e6] * n, [1e6] * n) for n in (10, 1000))
    assert error_of(few, noise, 1.0, KNOWN) == error_of(many, noise, 1.0, KNOWN)
    assert error_of(few, noise, 1.0, KNOWN).variance == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("half", "surer", "log_speedup", "noise", "claim"),
    [
        (0.05, 0.08, 0.10, 0.02, "faster"),
        (0.05, 0.12, 0.10, 0.02, "inconclusive"),
        (0.005, 0.01, 0.01, 0.02, "equal"),
        (0.01, 0.012, 0.018, 0.02, "inconclusive"),
        (0.05, 0.08, -0.10, 0.02, "slower"),
        (0.10, 0.20, 0.0, 0.02, "inconclusive"),
        (0.10, 0.20, 0.0, 0.50, "inconclusive"),
    ],
)
def test_claims(half: float, surer: float, log_speedup: float, noise: float, claim: str) -> None:
    assert claim_of(half, surer, log_speedup, noise) == claim


def test_one_disturbed_block_moves_nothing():
    """Seen on an H200: 2 of 16 blocks of a launch-bound kernel off by 30 %, the others by 3 % at most."""
    rng = np.random.default_rng(1)
    quiet = equal_code(rng, blocks=16, sigma=0.003)
    disturbed = replace(
        quiet, candidate_ns=tuple(t * (1.3 if 6 <= i < 10 else 1.0) for i, t in enumerate(quiet.candidate_ns))
    )
    (before,), (after,) = (timings_of([(one, NOISE)]) for one in (quiet, disturbed))
    assert abs(math.log(after.speedup / before.speedup)) < 0.002
    assert after.low <= 1 <= after.high


@pytest.mark.parametrize("what", ["sessions", "blocks", "windows"])
def test_a_cell_that_scatters_more_than_equal_code_rests_on_its_own(what: str) -> None:
    """The baseline is steady in all cells; the candidate of one is not, and looks a fifth faster by chance."""
    rng = np.random.default_rng(17)
    shape = {"sessions": (3, 2), "blocks": (1, 4), "windows": (1, 2)}[what]
    cells = [equal_code(rng, sessions=shape[0], blocks=shape[1], sigma=0.002) for _ in range(8)]
    count = len(cells[0].candidate_ns)
    part = {"sessions": count // 3, "blocks": count // 4, "windows": 2}[what]
    times = (1.0,) * part + (0.7,) * (count - 2 * part) + (1.0,) * part if what == "blocks" else None
    times = times or tuple(0.6 if i // part % 2 else 1.0 for i in range(count))
    own = replace(cells[0], candidate_ns=tuple(t * f for t, f in zip(cells[0].candidate_ns, times, strict=True)))
    noise = Noise(spread=0.002, between=0.002)
    found = timings_of([(own, noise), *((one, noise) for one in cells[1:])])
    assert found[0].speedup > 1.1 and found[0].claim == "inconclusive"
    assert found[0].freedom < found[1].freedom


def test_how_sure_follows_student():
    assert sure(2, "device") == pytest.approx(stats.t.ppf(1 - SURE["device"] / 2, 2) / 4.303, rel=1e-3)
    assert sure(12, "device") < sure(4, "device") < sure(2, "device")
    assert sure(12, "device") < sure(12, "call")


def test_a_busier_machine_shows_in_the_processes_of_a_verdict() -> None:
    """Cells of one block each, on the machine as it was when its noise was measured, and three times as busy."""
    rng = np.random.default_rng(3)
    noise = Noise(spread=0.01, between=0.0)
    steady, busy = (
        scatter_now([(equal_code(rng, blocks=1, sigma=sigma), noise) for _ in range(400)]) for sigma in (0.01, 0.03)
    )
    assert steady == (pytest.approx(1.0, abs=0.2), KNOWN + 400)
    assert busy == (pytest.approx(9.0, rel=0.2), 400)


@pytest.mark.parametrize(("sessions", "known"), [(1, KNOWN), (2, KNOWN - 1), (3, KNOWN - 1), (4, KNOWN)])
def test_the_noise_figures_count_less_beside_two_or_three_sessions(sessions: int, known: int) -> None:
    cell = _samples([1.0] * 2 * sessions, [1.0] * 2 * sessions, processes=(0, 1) * sessions)
    numbers = tuple(session for session in range(sessions) for _ in range(2))
    assert scatter_now([(replace(cell, sessions=numbers), NOISE)]) == (1.0, known + sessions)


def test_one_disturbed_block_makes_no_busy_machine() -> None:
    steady = [(_samples([1.0] * 2, [1.0, 1.01], processes=(0, 1)), NOISE) for _ in range(8)]
    disturbed = [*steady[1:], (_samples([1.0] * 2, [1.0, 1.5], processes=(0, 1)), NOISE)]
    assert scatter_now(steady)[0] == 1.0
    assert scatter_now(disturbed)[0] < 6.0
    assert scatter_now([]) == (1.0, KNOWN)


def test_cells_without_any_scatter_have_a_claim() -> None:
    (timing,) = timings_of([(_samples([1e5] * 6, [1e5] * 6), Noise(spread=0.0, between=0.0))])
    summary = _summary([CellResult(case=case_of("gelu", {"M": 4, "N": 8}), outcome=Passed(timing=timing))])
    assert (summary.value, summary.low, summary.high, summary.claim) == (1.0, 1.0, 1.0, "equal")


def test_a_verdict_claims_no_more_than_its_only_cell():
    """Three sessions 5 % faster that scatter by 1 %: too few to be sure, as the cell says."""
    ratios = [1.04, 1.05, 1.06]
    samples = _samples(
        [1e5 / r for r in ratios for _ in range(8)],
        [1e5] * 24,
        calls=100,
        sessions=tuple(session for session in range(3) for _ in range(8)),
    )
    (timing,) = timings_of([(samples, Noise(spread=0.003, between=0.003))])
    summary = _summary([CellResult(case=case_of("gelu", {"M": 4, "N": 8}), outcome=Passed(timing=timing))])
    assert timing.low > 1.015 and timing.claim == "inconclusive"
    assert summary.claim == timing.claim
    assert (summary.low, summary.high) == pytest.approx((timing.low, timing.high))
