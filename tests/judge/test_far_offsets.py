"""Offsets beyond 31 bits: what the cases are, and who is wrong there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.attacks.specimens import Specimen, collect, got_its_due, judged

from kerneleval.devices import cpu
from kerneleval.devices import find as find_device
from kerneleval.judge import Judge
from kerneleval.judge.probes import far
from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import CallLayout, WindowBuffer, WindowLayout, dense
from kerneleval.pipeline import check
from kerneleval.records import FAR, Case, Protocol, TensorSpec, UsageError
from kerneleval.tasks import all_tasks, far_offsets, find, shapes
from kerneleval.tasks.case_keys import read_case

BUDGET = shapes.Budget(memory_bytes=16 << 20, flops=600_000_000)
ROOM = 7 << 30
"""Free memory that the largest case on processors needs, with what else lies there."""


def drawn_for(name: str) -> list[Case]:
    return list(far_offsets.far_cases(find(name), shapes.plan(find(name), Protocol(), BUDGET)))


@pytest.mark.parametrize("name", ["gelu", "sum", "layer_norm", "index_select", "transpose", "matmul"])
def test_offsets_of_some_cases_exceed_31_bits(name: str) -> None:
    task = find(name)
    apart, *many = drawn_for(name)
    assert apart.layout == FAR and apart.dtype in ("float16", "bfloat16")
    (first, *_) = task.arguments(apart.dims_map, apart.dtype)
    assert isinstance(first, TensorSpec)
    extent, strides = far_offsets.far_apart(first.shape)
    last = sum((size - 1) * step for size, step in zip(first.shape, strides, strict=True))
    assert last >= 1 << 31 and extent == last + 1 < (1 << 31) + (1 << 20)
    assert len(many) == (name in ("gelu", "sum", "layer_norm"))
    for case in many:
        (first, *_) = task.arguments(case.dims_map, case.dtype)
        rows = far_offsets.repeated_rows(case, "M")
        assert isinstance(first, TensorSpec) and first.numel > 1 << 31
        assert 16 <= rows <= 48 and case.dims_map["M"] % rows == 0
    for case in (apart, *many):
        assert far_offsets.is_far(task, case)
        assert read_case(case.key, task, Protocol(), shapes.plan(task, Protocol(), BUDGET), 80 << 27) == case
        with pytest.raises(UsageError, match="at most 0 GiB can be judged here"):
            read_case(case.key, task, Protocol(), shapes.plan(task, Protocol(), BUDGET), 1 << 20)


def test_sizes_beyond_the_limits_that_need_no_64_bits_are_none() -> None:
    planned = shapes.plan(find("gelu"), Protocol(), BUDGET)
    with pytest.raises(UsageError, match="M must be an integer from 1 to 69630"):
        read_case("gelu/forward/M=100000,N=64/float16/contiguous/standard", find("gelu"), Protocol(), planned, 80 << 27)
    with pytest.raises(UsageError, match="forward, on standard contiguous data"):
        read_case("gelu/forward/M=9,N=9/float16/far/outlier", find("gelu"), Protocol(), planned, 80 << 27)


ALONE = sorted(name for name, task in all_tasks().items() if task.table.folded and far_offsets.rows_alone(task))


@pytest.mark.parametrize("name", ALONE)
def test_rows_that_come_again_have_the_same_outputs(name: str) -> None:
    """Of many rows only a few are given to the reference."""
    task = find(name)
    dims = {dim.name: max(dim.least, min(dim.high // dim.multiple_of * dim.multiple_of, 6)) for dim in task.dims}
    dims["M"] = 3
    if not task.allows(dims):
        pytest.skip("no such small case")
    case = Case(task=name, direction="forward", dims=tuple(dims.items()), dtype=task.dtypes[0])
    few = inputs.draw(task.arguments(dims, case.dtype), case, 7, "cpu")
    specs = task.arguments(dims | {"M": 12}, case.dtype)
    slots = tuple(dense(s.shape, s.dtype) if isinstance(s, TensorSpec) else s for s in specs)
    layout = WindowLayout([CallLayout(args=slots, grads=(), outputs=(), wanted=(), dims={})], "forward")
    given = [one for one in few if isinstance(one, torch.Tensor)]
    buffer = WindowBuffer(layout, find_device("cpu"), [given])
    tensors = iter([buffer.tensor(0, i) for i in range(len(given))])
    many = [next(tensors) if isinstance(one, torch.Tensor) else one for one in few]
    one, other = task.reference(*few), task.reference(*many)
    both = zip(*(r if isinstance(r, tuple) else (r,) for r in (one, other)), strict=True)
    for (small, large), out in zip(both, task.table.outputs, strict=True):
        dim = out.shape.split().index("M")
        for part in large.split(3, dim):
            torch.testing.assert_close(part, small, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_a_device_without_the_memory_says_so(judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu.Cpu, "largest_case_bytes", lambda self: 100 << 20)
    path = tmp_path / "bitwise_not.py"
    path.write_text("def bitwise_not(x):\n    return ~x\n")
    options: dict[str, Any] = {"dtypes": ("int8",), "categories": ("tiny", "small"), "allow": ("library",)}
    verdict = check(path, "bitwise_not", judge=judge, timed=False, tier="standard", **options)
    said = [finding.message for finding in verdict.findings if finding.check == "far_offsets"]
    assert verdict.verdict == "passed" and len(said) == 2
    assert all("were not evaluated" in one and "GiB are needed, and 0 GiB may be taken here" in one for one in said)
    quick = check(path, "bitwise_not", judge=judge, timed=False, tier="quick", **options)
    assert not [finding for finding in quick.findings if finding.check == "far_offsets"]


@pytest.mark.slow(every=5)
@pytest.mark.serial
@pytest.mark.parametrize("specimen", collect("cpu", "far"), ids=lambda one: one.name)
def test_who_is_wrong_beyond_31_bits(judge: Judge, specimen: Specimen) -> None:
    if far.room_bytes(judge.device) < ROOM:
        pytest.skip(f"not run: needs {ROOM >> 30} GiB of memory for one case")
    verdict = judged(judge, specimen)
    said = [finding for finding in verdict.findings if finding.check == "far_offsets"]
    assert got_its_due(specimen, verdict), f"{verdict.verdict} {verdict.stage} {verdict.reason}: {verdict.message}"
    assert any(finding.level == "fail" or finding.message.startswith("right at") for finding in said), said
    if verdict.verdict == "failed":
        assert verdict.message.startswith("where offsets exceed 31 bits")
        assert "--case" in verdict.replay
