"""Every score worked by hand."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics

import pytest
from score_builders import rows, timing

from kerneleval.records import Machine, Score, UsageError
from kerneleval.scores import Setting, by_generator, find, score_all
from kerneleval.scores.common.cells import checked, devices_of
from kerneleval.scores.composite import product

exact = functools.partial(rows, half=1e-4)
"""Results without noise to speak of."""


def value(name, results, **setting):
    return find(name)(results, Setting(**setting))


# ------------------------------------------------------------------------------------------- the paper


@pytest.mark.parametrize(
    ("speed", "cv", "coverage", "portability", "printed", "by_equation_1"),
    [
        (1.05, 0.15, 0.85, 0.75, 0.420, 0.569),
        (1.40, 0.65, 0.70, 0.50, 0.240, 0.172),
        (1.20, 0.10, 0.90, 0.75, 0.520, 0.729),
    ],
    ids=["baseline", "fragile", "robust"],
)
def test_table_1_of_the_paper_by_its_own_equation(speed, cv, coverage, portability, printed, by_equation_1):
    s = product(speed, cv, coverage, portability)
    assert float(s) == pytest.approx(by_equation_1, abs=6e-4)
    assert float(s) != pytest.approx(printed, abs=0.05)  # the printed composite doesn't follow from its own factors


def test_product_clips_the_cv_and_lets_zero_win():
    assert product(2.0, 1.7, 1.0, 1.0) == 0
    assert product(2.0, 0.0, 1.0, 1.0) == 2
    assert product(math.nan, math.nan, 0.0, 1.0) == 0
    assert product(math.nan, math.nan, 1.0, 0.0) == 0
    assert math.isnan(product(2.0, math.nan, 1.0, 1.0))
    assert math.isnan(product(2.0, 0.1, 0.5, math.nan))


# -------------------------------------------------------------------------------------------- speedups


def test_speedup_is_a_table_of_the_timed_cells():
    results = rows("a", [1.5, None, "wrong_output", 0.5]) + rows("a", [2.0], sample=1)
    table = value("speedup", results)
    assert {k: v.value for k, v in table.items()} == {
        "cpu a/forward/M=3/float32/contiguous/standard tiny": 1.5,
        "cpu a/forward/M=6/float32/contiguous/standard large": 0.5,
        "cpu a/forward/M=3/float32/contiguous/standard tiny #1": 2.0,
    }
    first = timing(1.5)
    assert next(iter(table.values())) == Score(value=1.5, low=first.low, high=first.high, n=4, note="faster")


def test_speedup_med_is_over_all_correct_cells_of_the_primary_device():
    results = rows("a", [1.0, 3.0]) + rows("b", [2.0, "wrong_output", None, 5.0], direction="backward")
    results += rows("a", [100.0] * 5, device="cuda")
    found = value("speedup_med", results)
    assert found.value == statistics.median([1, 3, 2, 5])
    assert found.n == 4
    assert found.low <= found.value <= found.high
    assert found.note == "on cpu; 2 tasks: the interval is too narrow"
    assert value("speedup_med", results, primary="cuda").value == 100
    assert value("speedup_med", results, primary="machine of cuda").value == 100
    with pytest.raises(UsageError, match="primary device 'rocm' was not evaluated; evaluated are cpu, cuda"):
        value("speedup_med", results, primary="rocm")


def test_speeds_by_direction_by_hand():
    results = rows("a", [1.0, 3.0, 2.0]) + rows("b", [0.5, "wrong_output", 1.5, 0.7], direction="backward")
    results += rows("a", [4.0], device="cuda", direction="backward")
    table = value("speedup_by_direction", results)
    assert {d: (of.value, of.n) for d, of in table.items()} == {"forward": (2.0, 3), "backward": (0.7, 3)}
    assert value("speedup_med", results).value == statistics.median([1, 3, 2, 0.5, 1.5, 0.7])
    found = {key: (of.value, of.n) for key, of in value("device_speedup_by_direction", results).items()}
    assert found == {"cpu/forward": (2.0, 1), "cpu/backward": (0.0, 1), "cuda/backward": (4.0, 1)}
    untimed = value("speedup_by_direction", rows("a", [1.0]) + rows("a", [None], direction="backward"))
    assert math.isnan(untimed["backward"].value) and untimed["backward"].note == "no correct cell was timed"


def test_speedup_by_shape_and_peak():
    results = [r for i in range(6) for r in rows(f"t{i}", [1.0, 1.0, 1.0, 1.0, 1.8 + i / 100, 0.7])]
    table = value("speedup_by_shape", results)
    assert list(table) == ["tiny", "small", "medium", "large", "power_of_two", "non_power_of_two"]
    assert table["power_of_two"].value == pytest.approx(1.825)
    assert table["non_power_of_two"].value == 0.7
    assert table["power_of_two"].n == 6
    best = value("peak", results)
    assert best.value == pytest.approx(1.825)
    assert (best.n, best.note) == (6, "over power_of_two shapes")


def test_tiny_shapes_are_no_peak_unless_there_is_nothing_else():
    results = [r for i in range(6) for r in rows(f"t{i}", [9.0, 1.0, 1.5])]
    assert value("peak", results).note == "over medium shapes"
    alone = [r for i in range(6) for r in rows(f"t{i}", [9.0])]
    assert value("peak", alone).value == 9.0


# -------------------------------------------------------------------------------------------- CV_shape


def test_cv_shape_is_the_mean_over_groups_with_three_shapes():
    one = exact("a", [1.0, 2.0, 3.0])  # sd 1, mean 2: 0.5
    two = exact("a", [1.0, 1.0, 1.0, 1.0], direction="backward")  # 0
    three = exact("a", [2.0, 4.0, 6.0, "wrong_output"], dtype="float16")  # 0.5
    short = exact("b", [1.0, 100.0])
    found = value("cv_shape", one + two + three + short)
    assert found.value == pytest.approx(1 / 3)
    assert found.n == 3
    assert "1 groups with fewer than 3 timed shapes left out" in found.note
    table = value("cv_by_category", one + two + three + [dataclasses.replace(r, category="fused") for r in short])
    assert table["gemm"].value == pytest.approx(1 / 3)
    assert math.isnan(table["fused"].value)


def test_cv_shape_needs_distinct_shapes_not_cells():
    first = rows("a", [1.0, 2.0])
    again = [dataclasses.replace(r, case=dataclasses.replace(r.case, distribution="outlier")) for r in first]
    assert math.isnan(value("cv_shape", first + again).value)


def test_samples_are_groups_of_their_own():
    results = rows("a", [1.0] * 4) + rows("a", [3.0] * 4, sample=1)
    assert value("cv_shape", results).value == 0


# -------------------------------------------------------------------------------------------- coverage


def test_c_op_counts_pairs_right_everywhere_and_not_regressing():
    results = rows("right", [1.5, None, None])
    results += rows("right", [1.5, "wrong_output"], direction="backward")
    results += rows("slow", [0.9, 0.8])
    results += rows("one_slow_shape", [1.5, 0.9])
    results += rows("equal", [1.0, timing(0.9, "inconclusive", half=0.2)])
    results += rows("absent", ["generate/missing"] * 2)
    results += rows("refused", ["call/unsupported"] * 2)
    found = value("c_op", results)
    assert found.value == pytest.approx(3 / 7)
    assert found.n == 7
    assert found.note == "1 wrong, 1 regressing, 2 not tried"
    assert 0 < found.low < found.value < found.high < 1


def test_unsupported_cases_count_against_coverage_and_not_against_correctness():
    results = rows("a", [1.5, "call/unsupported", None, "call/unsupported"])
    found = value("c_op", results)
    assert (found.value, found.note) == (0.5, "1 supported in part")
    assert value("fast_p", results)["1"].value == 1
    assert value("pass_at_k", results)["1"].value == 1
    assert value("p_hw", results).value == 1


def test_c_op_is_over_the_whole_suite():
    results = rows("a", [1.5])
    suite = (("a", "gemm", "forward"), ("a", "gemm", "backward"), ("b", "fused", "forward"), ("b", "fused", "backward"))
    found = value("c_op", results, suite=suite)
    assert (found.value, found.n, found.note) == (0.25, 4, "3 not tried")
    assert value("fast_p", results, suite=suite)["0"].value == 0.5


def test_c_op_by_category_and_direction():
    results = rows("a", [1.5]) + rows("a", ["crash"], direction="backward") + rows("b", [1.5], category="fused")
    table = {k: (v.value, v.n) for k, v in value("c_op_by_category", results).items()}
    assert table == {
        "gemm/forward": (1.0, 1),
        "gemm/backward": (0.0, 1),
        "gemm/all": (0.5, 2),
        "fused/forward": (1.0, 1),
        "fused/all": (1.0, 1),
        "all/forward": (1.0, 2),
        "all/backward": (0.0, 1),
        "all/all": (pytest.approx(2 / 3), 3),
    }


def test_c_op_of_samples_is_their_mean():
    results = rows("a", [1.5]) + rows("a", ["crash"], sample=1) + rows("b", [1.5]) + rows("b", [1.5], sample=1)
    found = value("c_op", results)
    assert (found.value, found.n) == (0.75, 2)


# ----------------------------------------------------------------------------------------- portability


def test_p_hw_counts_devices_right_and_fast_enough():
    results = rows("a", [0.8, 0.8]) + rows("b", [1.5, 1.5], direction="backward")
    results += rows("a", [0.79, 0.79], device="cuda")
    results += rows("a", ["generate/missing"], device="rocm")
    found = value("p_hw", results, not_evaluated={"metal": "no such device", "cuda": "stale"})
    assert found.value == pytest.approx(1 / 3)
    assert found.n == 3
    assert found.note == ("not evaluated: metal (no such device); on a part of the tasks: cuda (1 of 2), rocm (1 of 2)")
    assert value("c_op", results[4:] + results[:4]).note == "on cuda, 1 of 2 tasks; 1 regressing"


def _machine(name="H200", units=132, **more):
    fields = {"device": "cuda", "name": name, "arch": "sm_90", "units": units, "memory_bytes": 1, "cache_bytes": 1}
    return Machine(**fields | {"driver": "1", "torch": "2"} | more)


def test_machines_of_one_product_are_one_device():
    cpu, first, second = _machine(device="cpu", name="EPYC"), _machine(host="a"), _machine(host="b", driver="2")
    assert set(devices_of([cpu, first, second]).items()) == {
        (cpu.fingerprint, "cpu"),
        (first.fingerprint, "cuda"),
        (second.fingerprint, "cuda"),
    }
    other = _machine("H100")
    assert list(devices_of([first, second, other]).values()) == ["cuda H200", "cuda H200", "cuda H100"]
    part = _machine(units=16)  # a slice of a GPU is another device
    assert list(devices_of([first, part]).values()) == ["cuda H200 (sm_90, 132 units)", "cuda H200 (sm_90, 16 units)"]
    assert devices_of([]) == {}


def test_p_hw_counts_products_not_machines():
    """Three hosts of one GPU and a CPU: two devices, not four."""
    machines = {
        "cpu": _machine(device="cpu"),
        "a": _machine(host="a"),
        "b": _machine(host="b"),
        "c": _machine(host="c"),
    }
    results = [
        dataclasses.replace(r, machine=of.fingerprint, device=of.device)
        for of in machines.values()
        for r in rows("t", [0.5 if of.device == "cpu" else 2.0] * 3)
    ]
    assert value("p_hw", results).value == 0.75  # nothing is known of the machines
    found = value("p_hw", results, devices=devices_of(machines.values()))
    assert (found.value, found.n, found.note) == (0.5, 2, "several machines as one device: cuda")
    table = value("device_speedup", results, devices=devices_of(machines.values()))
    assert {name: (one.value, one.n, one.note) for name, one in table.items()} == {
        "cpu": (0.5, 1, ""),
        "cuda": (2.0, 3, "3 machines as one"),
    }
    absent = value("p_hw", results, devices=devices_of([*machines.values(), _machine(device="rocm")]))
    assert absent.n == 2
    assert "not evaluated: rocm (no attempt)" in absent.note


def test_a_pair_wrong_on_most_machines_of_a_device_fails_it():
    machines = [_machine(host=name) for name in "abc"]
    results = [
        dataclasses.replace(r, machine=of.fingerprint, device="cuda")
        for of, wrong in zip(machines, (True, True, False), strict=True)
        for r in rows("t", [2.0, "wrong_output" if wrong else 2.0])
    ]
    assert value("p_hw", results, devices=devices_of(machines)).value == 0
    assert value("p_hw", results[2:], devices=devices_of(machines)).value == 1


def test_p_hw_names_devices_that_saw_a_part_of_the_tasks():
    results = rows("a", [2.0]) + rows("b", [2.0]) + rows("c", [2.0], device="cuda")
    found = value("p_hw", results)
    assert (found.value, found.n) == (1, 2)
    assert found.note == "on a part of the tasks: cpu (2 of 3), cuda (1 of 3)"


def test_p_hw_counts_a_wrong_pair_as_speed_zero():
    good = rows("a", [1.0, 1.0]) + rows("b", [1.0, 1.0])
    assert value("p_hw", good + rows("c", [2.0, "wrong_output"])).value == 1
    # two right, two wrong: the median is (0 + 1) / 2
    found = value("p_hw", good + rows("c", [2.0, "wrong_output"]) + rows("d", ["build/compile_error"] * 2))
    assert found.value == 0
    table = value("device_speedup", good + rows("c", [9.0, "wrong_output"]) + rows("d", ["build/compile_error"] * 2))
    assert (table["cpu"].value, table["cpu"].n) == (0.5, 4)


def test_p_hw_leaves_to_coverage_what_was_not_tried():
    results = rows("a", [1.0]) + rows("b", ["generate/missing"]) + rows("c", ["call/unsupported"])
    assert value("p_hw", results).value == 1


def test_a_device_on_which_nothing_is_timed_is_not_evaluated():
    timed = rows("a", [1.5])
    untimed = rows("a", [None, None], device="cpu-interpreter")
    found = value("p_hw", timed + untimed)
    assert (found.value, found.n) == (1, 1)
    assert found.note == "not evaluated: cpu-interpreter (nothing was timed)"
    alone = value("p_hw", untimed)
    assert math.isnan(alone.value)
    assert alone.n == 0


def test_several_machines_of_one_kind_are_several_devices():
    second = [dataclasses.replace(r, machine="0123456789abcdef") for r in rows("a", [0.5])]
    found = value("device_speedup", rows("a", [1.5]) + second)
    assert list(found) == ["cpu machine ", "cpu 01234567"]
    assert value("p_hw", rows("a", [1.5]) + second).value == 0.5


# ------------------------------------------------------------------------------------------- composite


def test_composite_by_hand():
    results = []
    for task in "abcd":
        results += exact(task, [1.0, 2.0, 3.0, 2.0])  # sd sqrt(2/3), mean 2
        results += exact(task, ["wrong_output"] * 4, direction="backward")
    results += exact("e", [2.0, 2.0, 2.0])
    results += exact("a", [0.5] * 3, device="cuda")
    cv = (4 * math.sqrt(2 / 3) / 2 + 0) / 5
    found = value("composite", results, not_evaluated={"rocm": ""})
    # on cpu five pairs have a median of 2 and four count as 0: the device is portable, cuda is not
    assert found.value == pytest.approx(2.0 * (1 - cv) * (5 / 9) * 0.5)
    assert found.n == 5
    assert "on cpu" in found.note
    assert "not evaluated: rocm" in found.note
    assert found.low <= found.value <= found.high


def test_composite_of_nothing_right_is_zero_and_of_too_little_is_nan():
    wrong = rows("a", ["wrong_output"] * 4)
    assert value("composite", wrong).value == 0
    few = value("composite", rows("a", [1.5, 1.5]))
    assert math.isnan(few.value)
    assert math.isnan(few.low)
    assert few.note == "no CV_shape: no (task, direction, dtype) has 3 timed shapes"
    untimed = value("composite", rows("a", [None] * 4))
    assert math.isnan(untimed.value)
    assert "no Speedup_med: no correct cell was timed" in untimed.note
    assert math.isnan(value("composite", []).value)


def test_a_point_on_each_axis_by_hand():
    results = []
    for task in "abcd":
        results += exact(task, [1.0, 2.0, 3.0, 2.0])
        results += exact(task, ["wrong_output"] * 4, direction="backward")
    results += exact("a", [0.5] * 3, device="cuda")
    evenness, coverage, portability = 1 - math.sqrt(2 / 3) / 2, 4 / 8, 1 / 2
    found = value("worth", results)
    assert list(found) == ["speedup_med", "cv_shape", "c_op", "p_hw"]
    assert found["speedup_med"].value == pytest.approx(0.01 * evenness * coverage * portability)
    assert found["cv_shape"].value == pytest.approx(2.0 * 0.01 * coverage * portability)
    assert found["c_op"].value == pytest.approx(2.0 * evenness * 0.01 * portability)
    assert found["p_hw"].value == pytest.approx(2.0 * evenness * coverage * 0.01)
    assert all(of.low <= of.value <= of.high and of.n == 4 for of in found.values())
    assert "4 tasks" in found["p_hw"].note


def test_what_cannot_be_better_is_worth_nothing():
    found = value("worth", rows("a", [2.0] * 4) + rows("b", [2.0] * 4))
    assert [found[axis].value for axis in ("cv_shape", "c_op", "p_hw")] == [0.0, 0.0, 0.0]
    assert found["speedup_med"].value == pytest.approx(0.01)
    assert math.isnan(value("worth", rows("a", [1.5, 1.5]))["c_op"].value)
    assert math.isnan(value("worth", [])["c_op"].value)


def test_the_gap_between_powers_of_two_and_others_by_hand():
    one = [1.0, 1.0, 1.0, 1.0, 3.0, 1.5, 1.0, 1.0]  # in the order of the categories
    results = [r for task in "abcde" for r in rows(task, one)]
    found = value("shape_gap", results)
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high, found.n) == (pytest.approx(2.0), pytest.approx(2.0), 10)
    uneven = [
        r
        for task, at in zip("abcde", (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)
        for r in rows(task, [1.0] * 4 + [at, 1.0])
    ]
    assert value("shape_gap", uneven).value == pytest.approx(3.0)
    assert value("shape_gap", uneven).low < 3.0 < value("shape_gap", uneven).high
    nothing = value("shape_gap", rows("a", [1.0] * 4))
    assert math.isnan(nothing.value)
    assert "power_of_two" in nothing.note


# ---------------------------------------------------------------------------------------------- fast_p


def test_fast_p_is_strict_and_over_all_tasks():
    results = rows("one", [1.0, 1.0]) + rows("two", [4.0, 1.0]) + rows("three", [9.0, "wrong_output"])
    results += rows("four", ["generate/missing"])
    table = {k: v.value for k, v in value("fast_p", results).items()}
    assert table == {"0": 0.5, "0.5": 0.5, "0.8": 0.5, "1": 0.25, "1.5": 0.25, "2": 0.0}
    assert list(table) == ["0", "0.5", "0.8", "1", "1.5", "2"]
    assert value("fast_p", results, thresholds=(1.99,))["1.99"].value == 0.25
    assert value("fast_p", results)["1"].n == 4


def test_fast_p_takes_forward_times_and_correctness_of_both_directions():
    results = rows("a", [2.0]) + rows("a", [0.1], direction="backward")
    assert value("fast_p", results)["1.5"].value == 1
    results = rows("a", [2.0]) + rows("a", ["wrong_output"], direction="backward")
    assert value("fast_p", results)["0"].value == 0
    results = rows("a", [None]) + rows("a", [3.0], direction="backward")
    assert value("fast_p", results)["2"].value == 1


def test_fast_p_without_times():
    untimed = value("fast_p", rows("a", [None]) + rows("b", ["crash"]))
    assert untimed["0"].value == 0.5
    assert math.isnan(untimed["1"].value)
    assert untimed["1"].note == "no correct task was timed"
    some = value("fast_p", rows("a", [None]) + rows("b", [2.0]))["1"]
    assert (some.value, some.note) == (0.5, "1 correct and not timed, counted as not faster")


def test_geometric_mean_is_over_correct_tasks():
    results = rows("a", [4.0, 1.0]) + rows("b", [8.0]) + rows("c", [100.0, "wrong_output"]) + rows("d", [1.0])
    found = value("geometric_mean", results)
    assert found.value == pytest.approx((2 * 8 * 1) ** (1 / 3))
    assert (found.n, found.note) == (3, "over 3 of 4 tasks")
    assert found.low < found.value < found.high
    two = value("geometric_mean", rows("a", [4.0]) + rows("b", [1.0]))
    assert two.value == 2
    assert math.isnan(two.low)
    assert "no interval" in two.note
    assert math.isnan(value("geometric_mean", rows("a", ["crash"])).value)
    same = value("geometric_mean", [r for t in "abcd" for r in rows(t, [1.25])])
    assert (same.low, same.value, same.high) == (pytest.approx(1.25),) * 3


def test_pass_at_k_by_hand():
    results = []
    for sample, (a, b) in enumerate(zip([1.5, 0.5, "crash", "crash"], ["crash"] * 3 + [2.0], strict=True)):
        results += rows("a", [a], sample=sample) + rows("b", [b], sample=sample)
    table = value("pass_at_k", results, ks=(1, 2, 4, 5))
    assert table["1"].value == pytest.approx((2 / 4 + 1 / 4) / 2)
    assert table["2"].value == pytest.approx((1 - 1 / 6 + 1 - 3 / 6) / 2)
    assert table["4"].value == 1
    assert math.isnan(table["5"].value)
    assert table["5"].note == "a and 1 more tasks have fewer than 5 samples"
    fast = value("fast_p_at_k", results, ks=(1, 2))
    assert fast["1"].value == pytest.approx(1 / 4)
    assert fast["2"].value == pytest.approx(1 / 2)


# ----------------------------------------------------------------------------------------- regressions


def test_regressions_by_shape_category():
    results = rows("a", [1.0, 0.5, 0.9]) + rows("b", [1.0, timing(0.7, "inconclusive"), "wrong_output"])
    table = value("regressions", results)
    assert {k: (v.value, v.n) for k, v in table.items()} == {
        "tiny": (0, 2),
        "small": (0.5, 2),
        "medium": (1, 1),
        "all": (0.4, 5),
    }
    assert table["all"].note == "2 cells, worst 0.5x at a/forward/M=4/float32/contiguous/standard"


def test_failures_by_reason():
    results = rows("a", [1.0, "wrong_output", "wrong_output"]) + rows("b", ["build/compile_error"])
    table = value("failures", results)
    assert {k: (v.value, v.n, v.note) for k, v in table.items()} == {
        "correctness/wrong_output": (0.5, 2, "a"),
        "build/compile_error": (0.25, 1, "b"),
    }


# ----------------------------------------------------------------------------------------- all of them


def test_score_all_scores_each_generator_on_the_same_primary_device():
    results = rows("a", [1.5] * 3, generator="x")
    results += rows("a", [9.0] * 3, generator="y", device="cuda") + rows("a", [2.0] * 3, generator="y")
    results += rows("a", [3.0] * 3, generator="z", device="cuda")
    found = score_all(results, Setting(not_evaluated={"metal": ""}))
    assert {g: s["speedup_med"].value for g, s in found.items()} == {"x": 1.5, "y": 2.0, "z": 3.0}
    assert found["x"]["p_hw"].note == "not evaluated: metal"
    assert list(by_generator(results)) == ["x", "y", "z"]
    assert score_all([]) == {}


def test_results_that_can_not_be_scored_together():
    with pytest.raises(UsageError, match="a score is of one generator, got g, h"):
        value("composite", rows("a", [1.0]) + rows("a", [1.0], generator="h"))
    with pytest.raises(UsageError, match=r"comes twice \(runs r and s\); score one run at a time"):
        value("c_op", rows("a", [1.0]) + rows("a", [1.0], run="s"))


def test_cells_that_come_twice_are_found_after_a_first_look():
    results = rows("t", [1.0, 2.0])
    assert list(checked(checked(results))) == results
    twice = checked(results)
    twice = [*twice, twice[0]]
    with pytest.raises(UsageError, match="comes twice"):
        checked(twice)
    with pytest.raises(UsageError, match="comes twice"):
        find("speedup_med")(twice, Setting())


def test_shape_cv_is_made_of_its_categories():
    """Two tasks of eight shapes: squares by category, whose mean over all cells is the square of the CV."""
    results = exact("a", [1.0, 1.2, 0.9, 1.1, 1.6, 0.7, 1.0, 1.3]) + exact(
        "b", [2.0, 2.1, 1.9, 2.0, 3.0, 1.0, 2.2, 2.4]
    )
    found = find("cv_by_shape")(results, Setting())
    assert list(found) == [r.case.shape_category for r in results[:8]]
    assert all(s.n == 2 and s.low <= s.value <= s.high for s in found.values())
    squares = []
    for task in ("a", "b"):
        speeds = [r.outcome.timing.speedup for r in results if r.task == task]
        squares.append((statistics.stdev(speeds) / statistics.fmean(speeds)) ** 2)
    assert statistics.fmean(s.value**2 for s in found.values()) == pytest.approx(statistics.fmean(squares))
    mean = statistics.fmean([1.0, 1.2, 0.9, 1.1, 1.6, 0.7, 1.0, 1.3])
    alone = find("cv_by_shape")(results[:8], Setting())
    assert alone["power_of_two"].value == pytest.approx(abs(1.6 / mean - 1) * math.sqrt(8 / 7))
    many = [r for i in range(6) for r in exact(f"t{i}", [1.0, 1.1, 0.9, 1 + i / 10])]
    assert all(s.low <= s.value <= s.high for s in find("cv_by_shape")(many, Setting()).values())
    assert find("cv_by_shape")(exact("a", [1.0, 2.0]), Setting()) == {}  # two shapes say nothing
