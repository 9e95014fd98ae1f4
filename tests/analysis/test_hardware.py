"""Hardware: variation over machines worked by hand, agreement as SciPy has it, and no number from one machine."""

from __future__ import annotations

import dataclasses
import math
import statistics

import pytest
from scipy import stats
from tests.scores.score_builders import rows, timing

from kerneleval.analysis.hardware import hardware

DEVICES = ("cpu", "cuda", "rocm")


def kernel(name, speeds, **more):
    """One candidate with (speedup, ...) by device, a cell each."""
    found = []
    for device, of in speeds.items():
        task = more.get("task", "t")
        found += [dataclasses.replace(r, candidate=name) for r in rows(task, of, device=device)]
    return found


def test_one_kernel_worked_by_hand():
    found = hardware(kernel("k", {"cpu": (1.0, 4.0), "cuda": (4.0, 4.0), "rocm": (8.0, 2.0)}))
    one = found.kernels[0]
    assert one.speedups == pytest.approx({"cpu": 2.0, "cuda": 4.0, "rocm": 4.0})
    mean, deviation = 10 / 3, math.sqrt(((2 - 10 / 3) ** 2 + 2 * (4 - 10 / 3) ** 2) / 2)
    assert one.cv == pytest.approx(deviation / mean)
    assert (one.worst, one.cells, one.left_out, one.beyond_noise) == ("cpu", 2, 0, True)
    half = math.log(1.01 / 0.99) / 2
    assert one.ratio.value == pytest.approx(2.0)
    assert one.ratio.high / one.ratio.value == pytest.approx(math.exp(math.sqrt(4 * half**2) / 2))
    assert one.ratio.low == pytest.approx(one.ratio.value**2 / one.ratio.high)
    assert found.cv.value == pytest.approx(one.cv) and "1 task" in found.cv.note


def test_only_common_cells_count():
    data = kernel("k", {"cpu": (1.0, 9.0, 9.0), "cuda": (1.0, "wrong_output", None)})
    one = hardware(data).kernels[0]
    assert (one.cells, one.left_out, one.cv) == (1, 2, 0)
    assert one.speedups == {"cpu": 1.0, "cuda": 1.0} and not one.beyond_noise


def test_common_is_common_to_all():
    one = hardware(kernel("k", {"cpu": (1.0, 9.0), "cuda": (1.0, 9.0), "rocm": (1.0, None)})).kernels[0]
    assert (one.cells, one.left_out, one.cv) == (1, 1, 0)


def test_a_difference_within_noise_is_none():
    one = hardware(kernel("k", {"cpu": (1.0,), "cuda": (1.012,)})).kernels[0]
    assert one.ratio.low < 1 < one.ratio.high and not one.beyond_noise


def test_a_difference_within_the_noise_floor_is_none():
    """The interval excludes 1, the machines' noise floors do not."""
    noisy = dataclasses.replace(timing(1.2, half=0.001), noise=0.3)
    one = hardware(kernel("k", {"cpu": (timing(1.0, half=0.001),), "cuda": (noisy,)})).kernels[0]
    assert one.ratio.low > 1 and not one.beyond_noise


def test_timings_without_an_interval_give_none():
    bare = dataclasses.replace(timing(3.0), low=math.nan, high=math.nan)
    one = hardware(kernel("k", {"cpu": (bare,), "cuda": (1.0,)})).kernels[0]
    assert one.ratio.value == pytest.approx(3) and math.isnan(one.ratio.low) and not one.beyond_noise
    assert one.ratio.note == "timings without an interval"


def many(order):
    """Ten kernels, the i-th with speedup 1 + i on the CPU and 1 + order[i] on CUDA."""
    data = []
    for i, j in enumerate(order):
        data += kernel(f"k{i}", {"cpu": (1.0 + i,), "cuda": (1.0 + j,)}, task=f"t{i}")
    return data


@pytest.mark.parametrize("order", [range(10), range(9, -1, -1), (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)])
def test_agreement_is_kendalls_tau(order):
    found = hardware(many(order)).agreements
    expected = stats.kendalltau(range(10), list(order))
    assert len(found) == 1 and (found[0].first, found[0].second, found[0].kernels) == ("cpu", "cuda", 10)
    assert (found[0].tau, found[0].p) == (pytest.approx(expected.statistic), pytest.approx(expected.pvalue))


def test_the_most_variable_kernel_is_first_and_the_median_is_over_kernels():
    found = hardware(many((9, 1, 2, 3, 4, 5, 6, 7, 8, 0)))
    assert {found.kernels[0].task, found.kernels[1].task} == {"t0", "t9"}
    assert found.cv.value == statistics.median(k.cv for k in found.kernels) == 0
    assert found.cv.low <= 0 <= found.cv.high and found.cv.n == 10


def test_the_same_source_by_two_generators_is_one_kernel():
    data = kernel("k", {"cpu": (1.0,), "cuda": (2.0,)})
    twice = data + [dataclasses.replace(r, generator="other") for r in data]
    found = hardware(twice)
    assert len(found.kernels) == 1 and found.kernels[0].generators == ("g", "other")


def test_two_machines_of_one_kind_have_names_of_their_own():
    data = kernel("k", {"cpu": (1.0,)})
    other = [
        dataclasses.replace(r, machine="another machine", outcome=q.outcome)
        for r, q in zip(data, kernel("k", {"cpu": (2.0,)}), strict=True)
    ]
    assert set(hardware(data + other).kernels[0].speedups) == {"cpu machine ", "cpu another "}


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "no results"),
        (kernel("k", {"cpu": (1.0, 2.0)}), "one machine says nothing of others"),
        (kernel("k", {"cpu": (1.0, None), "cuda": (None, 1.0)}), "no kernel has a cell that is right and timed on two"),
    ],
)
def test_too_little_data_is_no_number(data, why):
    found = hardware(data)
    assert math.isnan(found.cv.value) and found.cv.note.startswith(why)
    for one in found.kernels:
        assert math.isnan(one.cv) and math.isnan(one.ratio.value) and one.ratio.note and not one.best
    for one in found.agreements:
        assert math.isnan(one.tau) and one.note


def test_ranks_without_order_and_too_few_kernels():
    found = hardware(many((5,) * 10)).agreements[0]
    assert math.isnan(found.tau) and "as fast as every other" in found.note
    few = hardware(many((1, 0))).agreements[0]
    assert math.isnan(few.tau) and few.note == "2 kernels in common; 3 are needed"


def test_variance_of_a_task_over_machines_worked_by_hand():
    data = kernel("k", {"cpu": (1.0, 4.0), "cuda": (4.0, 4.0), "rocm": (8.0, 2.0)})
    (one,) = hardware(data).spreads
    assert one.speedups == pytest.approx({"cpu": 2.0, "cuda": 4.0, "rocm": 4.0})
    assert one.variance == pytest.approx(statistics.variance([2.0, 4.0, 4.0])) == pytest.approx(4 / 3)
    assert one.cv == pytest.approx(math.sqrt(4 / 3) / (10 / 3))
    assert (one.ratio, one.same_cells, one.same_source, one.note) == (pytest.approx(2.0), True, True, "")


def test_variance_over_sources_and_shapes_of_each_machine():
    """C++ at small shapes for one, Triton at large ones for the other: no kernel and no cell in common."""
    cpu = kernel("cpp", {"cpu": (2.0, 2.0)})
    gpu = [
        dataclasses.replace(r, case=dataclasses.replace(r.case, dims=(("M", 4096),)))
        for r in kernel("triton", {"cuda": (0.5,)})
    ]
    found = hardware([*cpu, *gpu])
    assert math.isnan(found.cv.value)
    (one,) = found.spreads
    assert (one.same_cells, one.same_source) == (False, False)
    assert one.cells == {"cpu": 2, "cuda": 1}
    assert (one.ratio, one.variance) == (pytest.approx(4.0), pytest.approx(1.5**2 / 2))


def test_variance_names_machines_without_a_right_timed_cell():
    data = kernel("k", {"cpu": (2.0,), "cuda": ("wrong_output",)})
    (one,) = hardware(data).spreads
    assert math.isnan(one.variance) and math.isnan(one.ratio)
    assert one.note == "nothing right and timed on cuda"
