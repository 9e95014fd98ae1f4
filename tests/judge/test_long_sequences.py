"""Recurrences over more steps than any planned case has."""

from __future__ import annotations

import functools

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

from .conftest import called, case_of, drawn, gradients, planned
from .test_special_numbers import gated as in_chunks

CPU = Budget(memory_bytes=4 << 20, flops=300_000_000 * threads())
NAMES = ("gated_linear_attention", "gated_delta_rule", "delta_rule", "rwkv6_wkv", "rwkv4_wkv")


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


def rwkv4(k: Tensor, v: Tensor, decay: Tensor, bonus: Tensor, *, kept: int = 0, in_type: bool = False) -> Tensor:
    """Step by step, with the largest exponent so far as the unit of the sums, which are lost every ``kept`` steps; the
    gradient of the bonus may be added up in its type.
    """
    keep, extra, outs = -torch.exp(decay.float()), bonus if in_type else bonus.float(), []
    top = total = weights = torch.empty(0)
    for step, (key, value) in enumerate(zip(k.float().unbind(1), v.float().unbind(1), strict=True)):
        if step % (kept or k.shape[1]) == 0:
            top, total, weights = torch.full_like(key, -torch.inf), torch.zeros_like(key), torch.zeros_like(key)
        most = torch.maximum(top, key + extra).detach()
        old, own = torch.exp(top - most), torch.exp(key + extra - most)
        outs.append((old * total + own * value) / (old * weights + own))
        most = torch.maximum(top + keep, key).detach()
        old, own = torch.exp(top + keep - most), torch.exp(key - most)
        total, weights, top = old * total + own * value, old * weights + own, most
    return torch.stack(outs, 1).to(v.dtype)


@pytest.mark.slow
def test_sums_of_rwkv4_that_are_lost_every_128_or_512_steps_are_found() -> None:
    task = find("rwkv4_wkv")
    for direction, case in long_cases(task.name).items():
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads)
        for kept in (0, 128, 512):
            kernel = functools.partial(rwkv4, kept=kept)
            found = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
            assert matches(found, expectation) == (kept == 0), (direction, kept)


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("in_type", [False, True])
def test_rwkv4_step_by_step_passes_in_every_type_and_distribution(direction: str, in_type: bool) -> None:
    """The reference takes pairs of steps at once, and the unit of its sums is rounded otherwise."""
    task, kernel = find("rwkv4_wkv"), functools.partial(rwkv4, in_type=in_type)
    for case in planned(task, tier="quick", directions=(direction,)):
        if case.shape_category in ("small", "medium", "rectangular") or case.distribution == "long_memory":
            args, grads = drawn(task, case)
            found = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
            assert matches(found, reference.expect(task, case, args, grads)), case


def test_the_expectation_of_rwkv4_takes_few_operators() -> None:
    """Step by step it took 30 a step, and twelve seconds of a verdict."""
    task = find("rwkv4_wkv")
    args, _ = drawn(task, case_of(task.name, {"B": 2, "L": 512, "D": 3}, direction="backward"))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        given = [x.detach().requires_grad_() for x in args]
        torch.autograd.grad(task.reference(*given).sum(), given)
    assert len(profile.events()) < 5_000


def alibi(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, scale: float, *, window: int = 0) -> Tensor:
    """Attention with linear biases, of the last ``window`` keys alone where it is given."""
    behind = torch.arange(k.shape[2])[:, None] - torch.arange(k.shape[2])
    scores = q @ k.mT * scale - slopes[:, None, None] * behind
    hidden = (behind < 0) | (behind >= (window or len(behind)))
    return torch.softmax(scores.masked_fill(hidden, -torch.inf), -1) @ v


@pytest.mark.slow
def test_linear_biases_that_grow_along_the_keys_pass() -> None:
    """BLOOM's form leaves out what all scores of a row share. It was wrong in half of such cases."""
    task = find("alibi_attention")
    case = case_of(task.name, {"B": 1, "H": 4, "L": 2048, "D": 8}, distribution="outlier")
    for seed in range(2):
        args, _ = drawn(task, case, seed)
        q, k, v, slopes, scale = args
        scores = q @ k.mT * scale + slopes[:, None, None] * torch.arange(k.shape[2])
        unseen = torch.ones(k.shape[2], k.shape[2], dtype=torch.bool).triu(1)
        found = torch.softmax(scores.masked_fill(unseen, -torch.inf), -1) @ v
        expectation = reference.expect(task, case, args)
        assert matches([found], expectation)
        assert not matches([alibi(*args, window=1024)], expectation)


def test_linear_biases_that_grow_along_the_pages_pass() -> None:
    task = find("paged_attention_v2")
    dims = {"B": 2, "R": 2, "G": 2, "W": 2, "S": 16, "V": 200, "N": 96}
    case = case_of(task.name, dims, distribution="outlier")
    for seed in (0, 2, 4, 10):  # all four were wrong
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args).widest
        by_columns = task.unfused[1]
        assert matches([by_columns(*args)], expectation)
        slopes = next(i for i, arg in enumerate(args) if isinstance(arg, Tensor) and arg.shape == (4,))
        assert not matches([by_columns(*[0.99 * a if i == slopes else a for i, a in enumerate(args)])], expectation)


def test_keys_far_away_have_weight_beside_linear_biases() -> None:
    """Slopes were up to 1: attention of the last 512 keys passed, as slopes of models (from 1 / 256) do not let it."""
    task = find("alibi_attention")
    case = case_of(task.name, {"B": 1, "H": 4, "L": 1300, "D": 8})
    for seed in range(3):
        args, _ = drawn(task, case, seed)
        expectation = reference.expect(task, case, args)
        assert matches([alibi(*args)], expectation)
        assert not matches([alibi(*args, window=512)], expectation)
