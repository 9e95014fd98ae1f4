"""The benchmark of published libraries, as far as it goes without them: its table, and its look without the judge."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from benchmarks.libraries import LEFT_OUT, compare

from kerneleval import tasks
from kerneleval.generators.library.kernels import KERNELS, MODULES, Kernel
from kerneleval.records import Case


@dataclass(frozen=True, kw_only=True)
class Own(Kernel):
    """A wrapper that needs no library."""

    @property
    def source(self) -> str:
        return f"import torch\n\n{self.body}\n"


def own(body: str, task: str = "silu") -> Own:
    return Own(library="liger", name="own", task=task, body=body)


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    from kerneleval import languages

    monkeypatch.setattr(type(languages.find("triton")), "prepare", lambda self, device: None)


def test_the_table_names_tasks_and_directions_that_exist() -> None:
    assert len({(k.library, k.task, k.name) for k in KERNELS}) == len(KERNELS)
    for kernel in KERNELS:
        task = tasks.find(kernel.task)
        assert set(kernel.directions) <= set(task.directions), kernel
        names = compile(kernel.source, kernel.name, "exec").co_names
        assert "run" in names
        assert kernel.library in MODULES
    covered = {k.task for k in KERNELS}
    assert set(tasks.CORE) - covered == {"logsumexp", "conv_transpose2d"}  # in neither library
    assert {library for library, _, _ in LEFT_OUT} <= set(MODULES)


def _case(direction: str, task: str = "silu") -> Case:
    dims = (("M", 3), ("N", 5))
    return Case(task=task, shape_category="tiny", direction=direction, dims=dims, dtype="float32",
                layout="transposed", distribution="standard")  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_right_wrapper_is_as_near_as_pytorch(direction: str) -> None:
    lines = compare(own("def run(x):\n    return torch.nn.functional.silu(x)"), _case(direction), "cpu")
    assert len(lines) == 1
    figures = lines[0].split("relative rms error ")[1]
    theirs, native = figures.split(",")[0], figures.split("PyTorch's ")[1].split(";")[0]
    assert theirs == native
    assert float(theirs) < 1e-6


def test_a_wrong_one_is_told_with_its_numbers() -> None:
    (line,) = compare(own("def run(x):\n    return torch.relu(x)"), _case("forward"), "cpu")
    assert float(line.split("relative rms error ")[1].split(",")[0]) > 1e-2
    assert "worst at [" in line


def test_what_happens_to_inputs_and_upstream_gradients_is_told() -> None:
    body = "def run(x):\n    return x.clone()\n\n\ndef backward(grad, x):\n    x.zero_()\n    return grad.mul_(2)"
    lines = compare(own(body), _case("backward"), "cpu")
    assert any(line.startswith("x was changed by the call, in 15 of 15") for line in lines)
    assert any(line.startswith("upstream 0 was changed by the call, in 15 of 15") for line in lines)


def test_an_exception_is_the_answer() -> None:
    assert compare(own("def run(x):\n    raise ValueError('no')"), _case("forward"), "cpu") == ["raises ValueError: no"]


def test_a_missing_value_is_not_near() -> None:
    (line,) = compare(own("def run(x):\n    y = x.clone()\n    y[1, 2] = float('nan')\n    return y"),
                      _case("forward"), "cpu")  # fmt: skip
    assert "worst at [1, 2]: nan" in line
