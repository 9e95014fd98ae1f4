"""Claims from raw samples: what may be said, and what may not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from kerneleval.judge.timing.statistics import (
    KNOWN_QUADS,
    _of_median,
    busier,
    claim_of,
    interval,
    pair_log_ratios,
    sure,
    timing_from,
)
from kerneleval.judge.verdicts import _summary
from kerneleval.records import CellResult, Passed, Samples

from .conftest import case_of


def _samples(candidate: list[float], baseline: list[float], **more: object) -> Samples:
    return Samples(
        candidate_ns=tuple(candidate),
        baseline_ns=tuple(baseline),
        calls=8,
        sessions=tuple(0 for _ in candidate),
        **more,  # type: ignore[arg-type]
    )


def test_quads_average_two_pairs() -> None:
    quads = pair_log_ratios(_samples([1.0, 1.0, 1.0, 1.0], [math.e, 1.0, 1.0, 1.0]))
    assert np.allclose(quads[0], [0.5, 0.0])


def test_a_window_that_sank_below_its_constant_claims_nothing() -> None:
    """Found on an overloaded machine: one pair had nothing left of its window, and 1906x 'faster' came out."""
    timing = timing_from(
        _samples([1.0, 9e5], [1e6, 1.1e6], empty_ns=1e5, empty_spread_ns=2e5),
        spread=0.02, between=0.01, noise=0.02, device_time="none",
    )  # fmt: skip
    assert timing.claim == "inconclusive"
    assert timing.low < 1 < timing.high


def test_scatter_of_the_constant_widens_the_interval() -> None:
    steady = timing_from(_samples([1e6] * 2, [1.1e6] * 2), spread=0.01, between=0.0, noise=0.02, device_time="none")
    shaky = timing_from(
        _samples([1e6] * 2, [1.1e6] * 2, empty_spread_ns=2e6), spread=0.01, between=0.0, noise=0.02, device_time="none"
    )
    assert steady.claim == "faster"
    assert shaky.claim == "inconclusive"


@pytest.mark.parametrize("n", [3, 5, 10])
def test_intervals_cover_the_truth(n: int) -> None:
    """95 % intervals over n quads contain the truth about 95 % of the time (400 draws: within four sigma)."""
    rng = np.random.default_rng(7)
    truth, spread = 0.1, 0.02
    hits = 0
    for _ in range(400):
        _, low, high = interval([rng.normal(truth, spread, n)], spread, 0.0)
        hits += low <= truth <= high
    assert hits / 400 > 0.95 - 4 * math.sqrt(0.95 * 0.05 / 400)


def test_the_error_of_a_median_is_that_of_maritz_and_jarrett() -> None:
    for quads in (np.random.default_rng(n).normal(0.1, 0.2, n) for n in (3, 4, 16, 31)):
        assert _of_median(quads) == pytest.approx(float(stats.mstats.mjci(quads, prob=[0.5])[0]), rel=1e-9)
    assert _of_median(np.full(5, 0.3)) == pytest.approx(0, abs=1e-8)


def test_spread_between_sessions_does_not_shrink_with_quads() -> None:
    few = interval([np.zeros(5)], 0.0, 0.01)
    many = interval([np.zeros(500)], 0.0, 0.01)
    assert many[2] == pytest.approx(few[2]) == pytest.approx(1.96 * 0.01)


@pytest.mark.parametrize(
    ("low", "high", "estimate", "noise", "claim"),
    [
        (1.05, 1.15, 1.10, 0.02, "faster"),
        (1.005, 1.015, 1.01, 0.02, "equal"),
        (1.001, 1.05, 1.018, 0.02, "inconclusive"),
        (0.85, 0.95, 0.90, 0.02, "slower"),
        (0.90, 1.10, 1.00, 0.02, "inconclusive"),
        (0.90, 1.10, 1.00, 0.50, "inconclusive"),
    ],
)
def test_claims(low: float, high: float, estimate: float, noise: float, claim: str) -> None:
    assert claim_of(low, high, estimate, noise) == claim


def test_one_disturbed_quad_moves_nothing():
    """Seen on an H200: 2 of 16 quads of a launch-bound kernel off by 30 %, the others by 3 % at most."""
    rng = np.random.default_rng(1)
    quiet = [0.003 * rng.standard_normal(16), 0.003 * rng.standard_normal(8)]
    estimate, low, high = interval(quiet, 0.003, 0.003)
    disturbed = [quiet[0].copy(), quiet[1].copy()]
    disturbed[0][3:5] = 0.3
    moved, low_moved, high_moved = interval(disturbed, 0.003, 0.003)
    assert abs(moved - estimate) < 0.002
    assert low_moved <= 0 <= high_moved
    assert (high_moved - low_moved) < 2 * (high - low)


@pytest.mark.parametrize("quads", [4, 8, 16])
@pytest.mark.parametrize("heavy", [False, True])
def test_intervals_of_sessions_cover(quads: int, heavy: bool):
    rng = np.random.default_rng(quads)
    inside = 0
    for _ in range(400):
        draws = rng.standard_t(2, (2, quads)) if heavy else rng.standard_normal((2, quads))
        _, low, high = interval([0.01 * d for d in draws], 0.001, 0.0)
        inside += low <= 0 <= high
    assert inside >= 0.94 * 400


@pytest.mark.parametrize("quads", [3, 5])
@pytest.mark.parametrize("sigma", [0.02, 0.05, 0.3])
def test_a_machine_busier_than_its_noise_figures_makes_no_claims(quads: int, sigma: float):
    """Equal code whose quads scatter by up to 15 times what was measured: at most one claim in a thousand is promised,
    and 3 of 1,000 draws allowed. With 1.68 for Student's t three quads gave 5 to 10.
    """
    rng = np.random.default_rng(quads)
    noise, claimed = 0.038, 0
    for _ in range(1000):
        sessions = [rng.normal(0, sigma, quads)]
        estimate, low, high = np.exp(interval(sessions, 0.02, 0.003))
        claimed += claim_of(low, high, estimate, noise, sure(sessions)) in ("faster", "slower")
    assert claimed <= 3


@pytest.mark.parametrize("sigma", [0.02, 0.1])
def test_three_sessions_that_are_off_make_no_claims(sigma: float):
    """Equal code whose three sessions scatter by more than the floor knows. With 1.68 for Student's t 18 and 30 of
    2,000 draws were claimed.
    """
    rng = np.random.default_rng(7)
    claimed = 0
    for _ in range(2000):
        sessions = [rng.normal(off, 0.003, 8) for off in rng.normal(0, sigma, 3)]
        estimate, low, high = np.exp(interval(sessions, 0.003, 0.003))
        claimed += claim_of(low, high, estimate, 0.015, sure(sessions)) in ("faster", "slower")
    assert claimed <= 5


def test_how_sure_follows_student():
    assert sure([np.zeros(3)]) == pytest.approx(31.6 / 4.303, rel=1e-3)
    assert sure([np.zeros(16), np.zeros(16)]) == pytest.approx(3.646 / 2.042, rel=1e-3)
    assert sure([np.zeros(4)] * 3) == sure([np.zeros(1)] * 3) == sure([np.zeros(3)])
    assert sure([np.zeros(1)], 12) == pytest.approx(4.318 / 2.179, rel=1e-3)


def test_a_busier_machine_shows_in_the_pairs_of_a_verdict() -> None:
    """Cells of one quad each, on the machine as it was when its noise was measured, and three times as busy."""
    rng = np.random.default_rng(3)
    found = []
    for sigma in (0.01, 0.03):
        cells = [
            (_samples(np.exp(rng.normal(0, sigma, 2)).tolist(), np.exp(rng.normal(0, sigma, 2)).tolist()), 0.01)
            for _ in range(400)
        ]
        times, freedom = busier(cells)
        assert freedom == KNOWN_QUADS + 400
        found.append(times)
    assert found == [pytest.approx(1.0, abs=0.1), pytest.approx(3.0, rel=0.2)]


def test_one_disturbed_quad_makes_no_busy_machine() -> None:
    steady = [(_samples([1.0, 1.01], [1.0, 1.0]), 0.01) for _ in range(8)]
    disturbed = [*steady[1:], (_samples([1.0, 1.5], [1.0, 1.0]), 0.01)]
    assert busier(steady)[0] == 1.0
    assert busier(disturbed)[0] < 1.5
    assert busier([]) == (1.0, KNOWN_QUADS)


@pytest.mark.parametrize("cells", [1, 8])
def test_single_quads_on_a_busier_machine_make_few_claims(cells: int) -> None:
    """The quick tier: by the machine's figures alone, 5.5 % of 4,000 such cells were called faster or slower."""
    rng = np.random.default_rng(cells)
    claimed = 0
    for _ in range(2000 // cells):
        verdict = [
            _samples(np.exp(rng.normal(0, 0.03, 2)).tolist(), np.exp(rng.normal(0, 0.03, 2)).tolist())
            for _ in range(cells)
        ]
        times, freedom = busier([(samples, 0.01) for samples in verdict])
        for samples in verdict:
            timing = timing_from(
                samples, spread=0.01 * times, between=0.003, freedom=freedom, noise=0.04, device_time="none"
            )
            claimed += timing.claim in ("faster", "slower")
    assert claimed <= (60 if cells == 1 else 15)


def test_cells_without_any_scatter_have_a_claim() -> None:
    samples = _samples([1e5] * 6, [1e5] * 6)
    timing = timing_from(samples, spread=0.0, between=0.0, noise=0.015, device_time="none")
    summary = _summary([CellResult(case=case_of("gelu", {"M": 4, "N": 8}), outcome=Passed(timing=timing))])
    assert (summary.value, summary.low, summary.high, summary.claim) == (1.0, 1.0, 1.0, "equal")


def test_a_verdict_claims_no_more_than_its_only_cell():
    """Three sessions 5 % faster that scatter by 1 %: too few for 99.9 %, as the cell says."""
    ratios = [1.04, 1.05, 1.06]
    samples = Samples(
        candidate_ns=tuple(1e5 / r for r in ratios for _ in range(8)),
        baseline_ns=(1e5,) * 24,
        calls=100,
        sessions=tuple(session for session in range(3) for _ in range(8)),
    )
    timing = timing_from(samples, spread=0.003, between=0.003, noise=0.015, device_time="none")
    summary = _summary([CellResult(case=case_of("gelu", {"M": 4, "N": 8}), outcome=Passed(timing=timing))])
    assert timing.low > 1.015 and timing.claim == "inconclusive"
    assert summary.claim == timing.claim
    assert (summary.low, summary.high) == pytest.approx((timing.low, timing.high))
