"""Functions of matrices by their eigenvectors and singular vectors: each decomposition rounds otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.judge.oracle.reference_call import ReferenceCall
from kerneleval.tasks import find

from .conftest import case_of, drawn

_EIGH, _SVD = torch.linalg.eigh, torch.linalg.svd


def order_of(count: int) -> Tensor:
    return torch.randperm(count, generator=torch.Generator().manual_seed(7))


def eigh(m: Tensor, UPLO: str = "L") -> tuple[Tensor, Tensor]:
    """Of the matrix with its rows and columns in another order."""
    order = order_of(m.shape[-1])
    values, vectors = _EIGH(m[..., order, :][..., order])
    return values, vectors[..., order.argsort(), :]


def svd(m: Tensor, full_matrices: bool = True) -> tuple[Tensor, ...]:
    order = order_of(m.shape[-1])
    u, s, v = _SVD(m[..., order], full_matrices=full_matrices)
    return u, s, v[..., order.argsort()]


def gradient(call: ReferenceCall, change: Callable[[Tensor], Tensor] = lambda x: x) -> list[Tensor]:
    return [*replace(call, args=[change(a) if isinstance(a, Tensor) else a for a in call.args]).run("float32")]


@pytest.mark.parametrize(
    ("name", "dims", "seeds"),
    [
        ("matrix_log", {"B": 3, "N": 18}, (5, 13)),
        ("matrix_power_eig", {"B": 4, "N": 40}, (4, 13, 25)),
        ("polar", {"B": 1, "N": 16, "M": 2}, (4, 16, 20, 33)),
    ],
)
def test_gradients_by_another_decomposition_pass(
    monkeypatch: pytest.MonkeyPatch, name: str, dims: dict[str, int], seeds: Sequence[int]
) -> None:
    """They divide by what is between eigenvalues, and native may be right by luck: all of these were refused."""
    task, case = find(name), case_of(name, dims, direction="backward")
    for seed in seeds:
        args, grads = drawn(task, case, seed)
        expectation = reference.expect(task, case, args, grads)
        call = ReferenceCall(task=task, case=case, args=args, grads=grads)
        assert not matches(gradient(call, lambda x: x.bfloat16().float()), expectation)
        with monkeypatch.context() as patch:
            patch.setattr(torch.linalg, "eigh", eigh)
            patch.setattr(torch.linalg, "svd", svd)
            found = gradient(call)
        assert matches(found, expectation)
