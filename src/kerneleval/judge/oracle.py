"""The expectation of a call: the fp64 oracle beside what the native reference makes of the same inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kerneleval.records import Case, Task, TensorSpec

__all__ = ["Expectation", "expect", "output_specs"]


@dataclass(frozen=True, kw_only=True)
class Expectation:
    oracle: tuple[torch.Tensor, ...]
    native: tuple[torch.Tensor, ...]
    task: Task
    case: Case
    args: list[Any]
    timed_relative_rms: float
    timed_worst: float


@contextlib.contextmanager
def precision(tf32: bool) -> Iterator[None]:
    matmul, conv = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, conv.allow_tf32
    matmul.allow_tf32, conv.allow_tf32 = tf32, tf32
    try:
        yield
    finally:
        matmul.allow_tf32, conv.allow_tf32 = before


def _tuple(x: Any) -> tuple[torch.Tensor, ...]:
    return (x,) if isinstance(x, torch.Tensor) else tuple(x)


def _double(a: Any) -> Any:
    return a.double() if isinstance(a, torch.Tensor) and a.is_floating_point() else a


def _run(task: Task, case: Case, args: Sequence[Any], grads: Sequence[torch.Tensor] | None) -> tuple[torch.Tensor, ...]:
    if grads is None:
        with torch.no_grad():
            return tuple(t.detach() for t in _tuple(task.reference(*args)))
    specs = task.arguments(case.dims_map, case.dtype)
    args = list(args)
    leaves = []
    for i, s in enumerate(specs):
        if isinstance(s, TensorSpec) and s.differentiable:
            args[i] = args[i].detach().requires_grad_()
            leaves.append(args[i])
    with torch.enable_grad():
        outs = [o for o in _tuple(task.reference(*args)) if o.is_floating_point()]
        return tuple(torch.autograd.grad(outs, leaves, list(grads)))


def output_specs(task: Task, case: Case, args: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    with torch.no_grad():
        outs = _tuple(task.reference(*args))
    return [(tuple(o.shape), str(o.dtype)[6:]) for o in outs if o.is_floating_point()]


def expect(task, case, args, grads=None, *, problem=None, weights=None, tf32=False) -> Expectation:
    with precision(tf32):
        native = problem.reference(args, weights) if problem is not None else _run(task, case, args, grads)
    with precision(False):
        oracle = (
            problem.oracle(args, weights)
            if problem is not None
            else _run(task, case, [_double(a) for a in args], None if grads is None else [g.double() for g in grads])
        )
    eps = {"float32": 6e-8, "float16": 4.9e-4, "bfloat16": 3.9e-3}.get(case.dtype, 6e-8)
    rms = 64 * eps
    for n, o in zip(native, oracle, strict=True):
        if n.is_floating_point() and n.numel():
            e = (n.double() - o).nan_to_num().square().mean().sqrt() / o.nan_to_num().square().mean().sqrt().clamp_min(1e-30)
            rms = max(rms, 6 * float(e))
    return Expectation(oracle=oracle, native=native, task=task, case=case, args=list(args), timed_relative_rms=rms, timed_worst=rms * 50)
