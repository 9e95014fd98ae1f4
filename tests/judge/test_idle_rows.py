"""Rows that nothing has moved yet: parameters, gradients and state are 0, and an epsilon alone keeps 0 / 0 away."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.records import Arg, Case
from kerneleval.tasks import all_tasks, find

from .conftest import called, case_of, drawn

IDLE = [name for name, task in all_tasks().items() if any(isinstance(a, Arg) and a.idle for a in task.table.args)]
DIMS = {"M": 60, "N": 40, "steps": 3}


def ordinary(name: str, dtype: str = "float32") -> Case:
    return case_of(name, {dim.name: DIMS[dim.name] for dim in find(name).dims}, dtype=dtype)


def adamw(param: Tensor, grads: Tensor, m: Tensor, v: Tensor, *plains: Any, by_root: bool) -> tuple[Tensor, ...]:
    """``by_root``: the quotient by the reciprocal of the root, without the epsilon."""
    lr, beta1, beta2, eps, weight_decay, step = plains
    for t, grad in enumerate(grads, step + 1):
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
        root = (v / (1 - beta2**t)).sqrt()
        change = m / (1 - beta1**t) * (1 / root if by_root else 1 / (root + eps))
        param = param * (1 - lr * weight_decay) - lr * change
    return param, m, v


def with_its_epsilon(param: Tensor, grads: Tensor, m: Tensor, v: Tensor, *plains: Any, at: str) -> tuple[Tensor, ...]:
    """Adam, its epsilon in the root, or added before the correction of the root."""
    lr, beta1, beta2, eps, weight_decay, step = plains
    for t, each in enumerate(grads, step + 1):
        grad, correction = each + weight_decay * param, (1 - beta2**t) ** 0.5
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad * grad
        inside, early, late = (eps if at == place else 0.0 for place in ("inside", "early", "late"))
        root = ((v + inside).sqrt() + early) / correction + late
        param = param - lr / (1 - beta1**t) * m / root
    return param, m, v


def test_where_an_epsilon_is_added_shows_beside_faint_gradients() -> None:
    for seed in range(4):
        args, _ = drawn(find("adam"), ordinary("adam"), seed)
        expectation = reference.expect(find("adam"), ordinary("adam"), args)
        for at in ("late", "inside", "early"):
            assert matches(list(with_its_epsilon(*args, at=at)), expectation) == (at == "late")


def adagrad(param: Tensor, grads: Tensor, total: Tensor, *plains: Any, by_root: bool) -> tuple[Tensor, Tensor]:
    lr, lr_decay, weight_decay, eps, step = plains
    for t, each in enumerate(grads, step):
        grad = each + weight_decay * param
        total = total + grad * grad
        param = param - lr / (1 + t * lr_decay) * grad / (total.sqrt() + (0 if by_root else eps))
    return param, total


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("name", "kernel"), [("adamw", adamw), ("adagrad", adagrad)])
def test_a_step_without_its_epsilon_is_found(name: str, kernel: Any, dtype: str) -> None:
    args, _ = drawn(find(name), ordinary(name, dtype))
    expectation = reference.expect(find(name), ordinary(name, dtype), args)
    wide = [a.float() if isinstance(a, Tensor) else a for a in args]
    for by_root in (False, True):
        found = [out.to(args[0].dtype) for out in called(lambda *a: kernel(*a, by_root=by_root), wide)]  # noqa: B023
        assert matches(found, expectation) != by_root


@pytest.mark.parametrize("name", IDLE)
def test_pytorch_leaves_such_rows_as_they_are(name: str) -> None:
    task = find(name)
    for dtype in task.dtypes:
        args, _ = drawn(task, ordinary(name, dtype))
        own = [a for a in args if isinstance(a, Tensor)]
        still = (own[0] == 0).all(-1)
        for a in own[1:]:
            still &= (a == 0).all(-1).reshape(-1, *still.shape).all(0)
        assert bool(still.any()) != (dtype == "float16")
        assert all(bool((a[..., still, :] == 0).all()) for a in own)
        expectation = reference.expect(task, ordinary(name, dtype), args)
        assert matches(expectation.native, expectation)
        for outs in (expectation.native, called(task.reference, args)):
            assert bool((outs[0][still] == 0).all())
        in_fp32 = called(task.reference, [a.float() if isinstance(a, Tensor) else a for a in args])
        assert matches([out.to(own[0].dtype) for out in in_fp32], expectation)
