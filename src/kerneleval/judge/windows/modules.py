"""Module problems: the judge's side of a candidate that is an ``nn.Module`` with weights of its own.

The weights of the reference are revealed into the candidate's state before a window and changed between windows, so a
kernel that folded or packed them once is wrong the next time.
"""

from __future__ import annotations

import secrets
from collections.abc import Container, Mapping
from typing import Any

import torch

from kerneleval.judge.windows import inputs
from kerneleval.judge.windows.buffers import dense, offsets
from kerneleval.judge.windows.worker_pool import Loaded, LoadFailed
from kerneleval.worker.host import ANSWER_S

_COPIED_BYTES_S = 1 << 27
"""Bytes of weights that a worker copies in a second at least."""

State = list[tuple[str, tuple[int, ...], str]]


def match_state(weights: Mapping[str, torch.Tensor], state: State) -> list[tuple[str, str]]:
    """(candidate's name, reference's name) for every tensor of the candidate's state that takes a reference weight: by
    name where name and shape agree; what is left, in order among equal shapes (KernelBench itself relies on equal order
    of construction). A second name of a weight that was found by its first one needs no counterpart.

    Raises:
        LoadFailed: some reference weight has no counterpart: the candidate would run on weights of its own.
    """
    theirs = {name: shape for name, shape, _ in state}
    pairs = [(name, name) for name, w in weights.items() if theirs.get(name) == tuple(w.shape)]
    taken = {name for name, _ in pairs}
    left = [(name, shape) for name, shape, _ in state if name not in taken]
    missing = []
    for name, weight in weights.items():
        if name in taken:
            continue
        match = next((entry for entry in left if entry[1] == tuple(weight.shape)), None)
        if match is None:
            tied = any(weights[one].shape == weight.shape and torch.equal(weights[one], weight) for _, one in pairs)
            if (weight.is_floating_point() or weight.is_complex()) and weight.numel() > 0 and not tied:
                missing.append(f"{name} {list(weight.shape)}")
            continue
        left.remove(match)
        pairs.append((match[0], name))
    if missing:
        have = ", ".join(f"{n} {list(s)}" for n, s, _ in state) or "nothing"
        raise LoadFailed(
            "weights_mismatch",
            f"ModelNew has no parameter or buffer for {', '.join(missing[:4])} of the reference; it has {have[:600]}",
            {},
        )
    return pairs


def moved(weights: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The weights with half of their elements in secret other places, ends and sums as they were; equal ones, which may
    be tied, stay equal. Rows of zeros stay where they are (padding of a table). Those with fewer than four elements,
    and integers, are left out.
    """
    found: dict[str, torch.Tensor] = {}
    for group in alike(weights):
        weight = weights[group[0]]
        if (weight.is_floating_point() or weight.is_complex()) and weight.numel() >= 4:
            generator = inputs.stream(seed, group[0], str(weight.device))
            rows = (weight != 0).reshape(len(weight), -1).any(1)
            found |= dict.fromkeys(group, weight.clone())
            found[group[0]][rows] = inputs.exchanged(weight[rows], 0.5, generator)
    return found


def split(weights: Mapping[str, torch.Tensor]) -> tuple[frozenset[str], ...]:
    """The weights' names in two secret halves, in either of which equal tensors are together: they may be tied. One
    half where there is nothing to part.
    """
    groups = alike(weights)
    secrets.SystemRandom().shuffle(groups)
    middle = (len(groups) + 1) // 2
    halves = (groups[:middle], groups[middle:])
    return tuple(frozenset(name for group in half for name in group) for half in halves if half) or (frozenset(),)


def alike(weights: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names of equal tensors together."""
    groups: list[list[str]] = []
    for name, weight in weights.items():
        for group in groups:
            other = weights[group[0]]
            if other.shape == weight.shape and other.dtype == weight.dtype and torch.equal(other, weight):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def reveal_weights(loaded: Loaded, weights: Mapping[str, torch.Tensor], only: Container[str] | None = None) -> None:
    """Copy the weights, all or some, through shared memory into the candidate's module.

    Raises:
        LoadFailed: the candidate's state has no place for one of them.
        WorkerError, WorkerFailure: the worker refused or died.
    """
    pairs = [pair for pair in match_state(weights, loaded.state) if only is None or pair[1] in only]
    if not pairs:
        return
    runner = loaded.runner
    (places,), end = offsets([[weights[name].numel() * weights[name].element_size() for _, name in pairs]])
    runner.reserve(end, 1)
    tensors: list[list[Any]] = []
    for (theirs, ours), place in zip(pairs, places, strict=True):
        weight = weights[ours].detach().contiguous()
        slot = dense(tuple(weight.shape), str(weight.dtype)[6:])
        runner.write_input(place, weight)
        tensors.append([theirs, [place, slot.nbytes, slot.dtype, list(slot.shape), list(slot.strides), 0]])
    runner.device.synchronize()
    runner.worker.request("weights", {"tensors": tensors}, "weighted", timeout_s=ANSWER_S + end / _COPIED_BYTES_S)
    runner.clear_inputs(end)
