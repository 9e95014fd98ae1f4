"""A case given by its key: what the planner plans and what the task defines is read, all else is told what is wrong."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from kerneleval.records import Case, Protocol, Task, UsageError
from kerneleval.tasks import CORE, find, open_task, shapes
from kerneleval.tasks.case_keys import read_case

BUDGET = shapes.Budget(memory_bytes=16 << 20, flops=600_000_000)
LARGEST = 1 << 30

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

rows = 48
columns = 96

def get_inputs():
    return [torch.rand(rows, columns)]

def get_init_inputs():
    return []
"""


def given(key: str, task: Task | None = None, protocol: Protocol | None = None, largest: int = LARGEST) -> Case:
    task, protocol = task or find(key.partition("/")[0]), protocol or Protocol()
    return read_case(key, task, protocol, shapes.plan(task, protocol, BUDGET), largest)


def said(key: str, task: Task | None = None, protocol: Protocol | None = None, largest: int = LARGEST) -> str:
    with pytest.raises(UsageError) as caught:
        given(key, task, protocol, largest)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("name", CORE)
def test_every_planned_case_is_read_even_where_another_plan_is_meant(name: str) -> None:
    task = find(name)
    planned = shapes.plan(task, Protocol(), BUDGET)
    few = planned[:1]
    for case in planned:
        found = read_case(case.key, task, Protocol(), planned, LARGEST)
        assert found == next(one for one in planned if one.key == case.key)
        assert found == case or case.shape_category == "edge"  # the smallest case may be the tiny one, which is timed
        elsewhere = read_case(case.key, task, Protocol(), few, LARGEST)
        assert dataclasses.replace(elsewhere, shape_category=case.shape_category) == case


def test_every_case_of_a_swept_problem_is_read_and_only_those_sizes(tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM)
    task = open_task(str(file), sweep=True)
    planned = shapes.plan(task, Protocol(shapes="sweep"), BUDGET)
    assert len({case.dims for case in planned}) > 3
    for case in planned:
        assert read_case(case.key, task, Protocol(), planned[:1], LARGEST).key == case.key
    key = planned[0].key
    message = said(key.replace("rows=48", "rows=47"), task)
    assert "judged at sizes of its own only: " in message
    assert "rows=48,columns=96" in message
    own = open_task(str(file))
    assert said(next(c.key for c in planned if c.dims != planned[0].dims), own).endswith(": rows=48,columns=96")


def test_a_problem_without_sizes_has_a_case(tmp_path: Path) -> None:
    file = tmp_path / "problem.py"
    file.write_text(PROBLEM.replace("rows, columns)", "48, 96)").replace("rows = 48\ncolumns = 96\n", ""))
    task = open_task(str(file))
    case, *others = shapes.plan(task, Protocol(), BUDGET)
    assert case.dims == ()
    assert all(other.dims == () and other.distribution != "standard" for other in others)
    assert given(case.key, task) == case
    assert "are given as nothing, not as 'M=3'" in said(case.key.replace("forward//", "forward/M=3/"), task)


@pytest.mark.parametrize(
    "key",
    [
        "gelu/forward/M=3,N=5/float16/transposed/outlier",
        "gelu/backward/M=8192,N=1/bfloat16/contiguous/zeros",
        "gelu/forward/M=66000,N=2/float32/contiguous/standard",
        "gelu/forward/M=0,N=5/float32/contiguous/standard",
        "attention/forward/B=1,H=2,L=3,S=8,D=16/float32/contiguous/standard",
    ],
)
def test_another_case_that_the_task_defines_is_read(key: str) -> None:
    case = given(key)
    assert case.key == key
    assert case.shape_category == "given"


RANGE = "must be an integer from 1 to 8192 or 0, not "


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("gelu/forward/M=8,N=-1/float32/contiguous/standard", f"N {RANGE}'-1'"),
        (
            "gelu/forward/M=100000,N=1000000/float32/contiguous/standard",
            "M must be an integer from 1 to 69630 or 0, not ",
        ),
        (f"gelu/forward/M=8,N={'9' * 40}/float32/contiguous/standard", f"N {RANGE}'{'9' * 20}...'"),
        (f"gelu/forward/M=8,N={'9' * 9000}/float32/contiguous/standard", f"N {RANGE}'{'9' * 20}...'"),
        ("gelu/forward/M=8,N=1.5/float32/contiguous/standard", f"N {RANGE}'1.5'"),
        ("gelu/forward/M=8,N=1_0/float32/contiguous/standard", f"N {RANGE}'1_0'"),
        ("gelu/forward/M=8,N=/float32/contiguous/standard", f"N {RANGE}''"),
        ("layer_norm/backward/M=2,N=0/float32/contiguous/standard", "does not allow M=2,N=0 together; it allows M="),
        ("gelu/forward/M=8/float32/contiguous/standard", "dims of task gelu are given as M=...,N=..., not as 'M=8'"),
        ("gelu/forward/N=8,M=8/float32/contiguous/standard", "are given as M=...,N=..., not as 'N=8,M=8'"),
        ("gelu/forward/M=8,N=8/float64/contiguous/standard", "task gelu has no dtype 'float64'; it has float32, "),
        ("gelu/forward/M=8,N=8/int8/contiguous/standard", "task gelu has no dtype 'int8'; it has float32, "),
        ("gelu/forward/M=8,N=8/float32/diagonal/standard", "no layout 'diagonal'; it has contiguous, transposed, "),
        ("gelu/forward/M=8,N=8/float32/contiguous/cauchy", "no distribution 'cauchy'; it has standard, outlier, "),
        ("gelu/sideways/M=8,N=8/float32/contiguous/standard", "no direction 'sideways'; it has forward, backward"),
        ("argmax/backward/M=8,N=8/float32/contiguous/standard", "task argmax has no direction 'backward' ("),
        ("exp/backward/M=8,N=8/float32/contiguous/nonfinite", "infinities and NaN are given forward only"),
        ("attention/forward/B=1,H=2,L=3,S=0,D=16/float32/contiguous/standard", "S must be an integer from 4 to "),
        ("attention/forward/B=1,H=2,L=3,S=8,D=17/float32/contiguous/standard", "D must be a multiple of 16 from 16 to"),
        (
            "attention/forward/B=4,H=16,L=8192,S=8192,D=16/float32/contiguous/standard",
            "task attention does not allow B=4,H=16,L=8192,S=8192,D=16 together; it allows B=",
        ),
        ("layer_norm/forward/M=3,N=0/float32/contiguous/standard", "does not allow M=3,N=0 together; it allows M="),
    ],
)
def test_a_part_that_is_wrong_is_named_with_what_would_be_right(key: str, message: str) -> None:
    told = said(key)
    assert message in told
    assert told.startswith(f"case {key[:160]!r}"[:160])


def test_text_that_is_no_key_is_told_the_form_and_a_few_keys() -> None:
    for text in ("garbage", "gelu", "x" * 10_000, "gelu/forward/M=1"):
        message = said(text, find("gelu"))
        assert "is none: the form is TASK/DIRECTION/DIMS/DTYPE/LAYOUT/DISTRIBUTION, such as gelu/" in message
        assert message.count("/contiguous/") + message.count("float") <= 6


def test_a_case_of_another_task_is_told_so() -> None:
    key = "gelu/forward/M=8,N=8/float32/contiguous/standard"
    assert said(key, find("silu")).endswith("is one of task 'gelu', but the task is 'silu'")


def test_a_case_that_contradicts_the_protocol_is_refused() -> None:
    key = "gelu/forward/M=8,N=8/float32/contiguous/standard"
    for protocol, message in (
        (Protocol(dtypes=("float16",)), "its dtype float32 is not among those chosen: float16"),
        (Protocol(directions=("backward",)), "its direction forward is not among those chosen: backward"),
        (Protocol(distributions=("zeros",)), "its distribution standard is not among those chosen: zeros"),
    ):
        assert said(key, find("gelu"), protocol).endswith(message)


def test_a_case_too_large_for_the_machine_is_refused() -> None:
    key = "gelu/forward/M=8192,N=8192/float32/contiguous/standard"
    assert said(key, largest=1 << 20).endswith("takes 512.0 MiB of tensors; at most 1.0 MiB can be judged here")
    assert given(key, largest=1 << 29).dims == (("M", 8192), ("N", 8192))
