from __future__ import annotations

import math

import pytest

from kerneleval.analysis.hardware import hardware
from kerneleval.analysis.sources import by_generators, measure
from kerneleval.records import Candidate, Case, Failed, Passed, Result, Samples, Timing

PYTHON = '''
import triton

@triton.jit
def kernel(x, n):
    if n > 3:
        return x
    for i in range(n):
        x += i if i % 2 else -i
    return x

def run(x):
    """Runs it."""
    return kernel[(1,)](x)
'''

CUDA = """
// if (this) counted && that
__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 0) { y[i] = x[i]; } else if (i < n) { y[i] = 0; }
}
void run(float* x, float* y, int n) { k<<<n / 128 + 1, 128>>>(x, y, n); }
"""


def candidate(*files: tuple[str, str], language: str = "triton") -> Candidate:
    return Candidate(files=files, language=language)


def test_python_is_read_by_radon() -> None:
    found = measure(candidate(("kernel.py", PYTHON)))
    assert (found.functions, found.kernels, found.complexity_max, found.complexity_sum) == (2, 1, 4, 5)
    assert found.complexity_mean == pytest.approx(2.5)
    assert 40 < found.maintainability < 100
    assert found.note == ""


def test_cuda_is_read_by_lizard_and_has_no_maintainability_index() -> None:
    found = measure(candidate(("kernel.cu", CUDA), language="cuda"))
    assert (found.functions, found.kernels, found.complexity_max) == (2, 1, 4)
    assert math.isnan(found.maintainability)
    assert "Python alone" in found.note


@pytest.mark.parametrize("text", ["def f(:", "\0", "(" * 5000, "x" * 300_000])
def test_what_does_not_parse_has_no_figures_and_says_why(text: str) -> None:
    found = measure(candidate(("bad.py", text), ("kernel.py", PYTHON)))
    assert math.isnan(found.complexity_mean)
    assert found.note.startswith("bad.py: ")


def test_medians_over_attempts() -> None:
    made = [candidate(("kernel.py", PYTHON + f"\n\ndef f{i}(): return {i}\n" * i)) for i in range(6)]
    results = [result("m", 1.0, task=f"t{i}", candidate_=c.hash) for i, c in enumerate(made)]
    found = by_generators({c.hash: measure(c) for c in made}, results)["g"]
    assert found["complexity_max"].value == 4.0
    assert found["functions"].n == 6
    assert found["functions"].low <= found["functions"].value <= found["functions"].high
    assert math.isnan(by_generators({}, results)["g"]["functions"].value)


# --------------------------------------------------------------------------------------------------------------------
# Machines
# --------------------------------------------------------------------------------------------------------------------


def result(
    machine: str, speedup: float | None, size: int = 4, candidate_: str = "c", task: str = "t", half: float = 0.01
) -> Result:
    value = speedup or 1.0
    timing = Timing(
        samples=Samples(), speedup=value, low=value * (1 - half), high=value * (1 + half), noise=0.01, claim="equal"
    )
    outcome = Failed(stage="correctness", reason="wrong_output") if speedup is None else Passed(timing=timing)
    return Result(
        run="r",
        generator="g",
        sample=0,
        candidate=candidate_,
        task=task,
        category="gemm",
        level=1,
        device=machine,
        machine=machine,
        case=Case(task=task, direction="forward", dims=(("M", size),), dtype="float32"),
        outcome=outcome,
    )


def test_spread_over_common_cells_alone() -> None:
    rows = [result("a", 2.0), result("b", 1.0), result("a", 8.0, 5), result("b", None, 5)]
    (kernel,) = hardware(rows).kernels
    assert kernel.speedups == {"a": pytest.approx(2.0), "b": pytest.approx(1.0)}
    assert (kernel.cells, kernel.left_out, kernel.ratio.value) == (1, 1, pytest.approx(2.0))
    assert kernel.cv == pytest.approx(math.sqrt(0.5) / 1.5)
    assert (kernel.best, kernel.worst, kernel.beyond_noise) == ("a", "b", True)
    (blurred,) = hardware([result("a", 2.0, half=0.6), result("b", 1.9, half=0.6)]).kernels
    assert not blurred.beyond_noise


def test_one_machine_has_no_spread() -> None:
    found = hardware([result("a", 2.0), result("a", 3.0, 5)])
    assert found.agreements == ()
    assert math.isnan(found.kernels[0].cv)
    assert math.isnan(found.cv.value)


def test_machines_that_rank_kernels_alike_or_otherwise() -> None:
    speeds = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
    rows = []
    for i, speedup in enumerate(speeds):
        rows += [result("a", speedup, candidate_=f"c{i}", task=f"t{i}")]
        rows += [result("b", 2 * speedup, candidate_=f"c{i}", task=f"t{i}")]
        rows += [result("c", 1 / speedup, candidate_=f"c{i}", task=f"t{i}")]
    found = {(one.first, one.second): one.tau for one in hardware(rows).agreements}
    assert found == {("a", "b"): pytest.approx(1.0), ("a", "c"): pytest.approx(-1.0), ("b", "c"): pytest.approx(-1.0)}
