"""Recurrences over more steps than any planned case has."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kerneleval.devices.cpu import threads
from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.records import Case
from kerneleval.tasks import find
from kerneleval.tasks.secret_sizes import secret_cases
from kerneleval.tasks.shapes import Budget

from .conftest import called, drawn, gradients, planned
from .test_special_numbers import gated as in_chunks

CPU = Budget(memory_bytes=4 << 20, flops=300_000_000 * threads())
NAMES = ("gated_linear_attention", "gated_delta_rule", "delta_rule", "rwkv6_wkv")


def long_cases(name: str) -> dict[str, Case]:
    task = find(name)
    cases = secret_cases(task, planned(task, CPU, tier="quick"), CPU)
    return {c.direction: c for c in cases if c.dims_map["L"] > 512}


def gated(q: Tensor, k: Tensor, v: Tensor, gate: Tensor, *, kept: int = 0) -> Tensor:
    """The state is lost every so many steps: ``kept``."""
    keep, state, outs = torch.sigmoid(gate), q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for step in range(q.shape[2]):
        if kept and step % kept == 0:
            state = torch.zeros_like(state)
        state = keep[:, :, step, :, None] * state + k[:, :, step, :, None] * v[:, :, step, None]
        outs.append((q[:, :, step, None] @ state)[:, :, 0])
    return torch.stack(outs, 2)


@pytest.mark.parametrize("name", NAMES)
def test_more_steps_come_in_secret_cases_of_little_else(name: str) -> None:
    cases = long_cases(name)
    assert set(cases) == set(find(name).directions)
    assert all(c.dims_map["L"] <= 2048 and c.dtype == "float32" for c in cases.values())


def test_chunks_of_16_steps_pass() -> None:
    task = find("gated_linear_attention")
    for direction, case in long_cases(task.name).items():
        args, grads = drawn(task, case)
        found = called(in_chunks, args) if grads is None else gradients(in_chunks, task, case, args, grads)
        assert matches(found, reference.expect(task, case, args, grads)), direction


def test_a_state_that_is_lost_from_step_512_on_is_found() -> None:
    task = find("gated_linear_attention")
    for direction, case in long_cases(task.name).items():
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads)
        for kept in (0, 512):

            def kernel(*given: Tensor, kept: int = kept) -> Tensor:
                return gated(*given, kept=kept)

            found = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
            assert matches(found, expectation) == (kept == 0), direction
