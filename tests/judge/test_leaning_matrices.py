"""Matrices with columns that nearly agree, and with columns next to nothing: what follows from the product of a matrix
with its transpose has half of the digits there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.tasks import find

from .conftest import called, case_of, drawn

DIMS = {"B": 24, "N": 20, "M": 6}


def near_eye(a: Tensor) -> Tensor:
    return a + torch.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)


def by_gram(a: Tensor) -> tuple[Tensor, Tensor]:
    m = near_eye(a)
    upper = torch.linalg.cholesky_ex(m.mT @ m).L.mT
    return torch.linalg.solve_triangular(upper, m, upper=True, left=False), upper.contiguous()


def gram_schmidt(a: Tensor, *, modified: bool) -> tuple[Tensor, Tensor]:
    """``modified``: products are taken with what is left of a column, not with the column."""
    m = near_eye(a).clone()
    q, upper = torch.zeros_like(m), m.new_zeros(*m.shape[:-2], m.shape[-1], m.shape[-1])
    for j in range(m.shape[-1]):
        column = m[..., j : j + 1]
        if not modified:
            upper[..., :j, j : j + 1] = q[..., :j].mT @ column
            column = column - q[..., :j] @ upper[..., :j, j : j + 1]
        size = column.norm(dim=-2, keepdim=True)
        q[..., j : j + 1], upper[..., j : j + 1, j : j + 1] = column / size, size
        if modified:
            upper[..., j : j + 1, j + 1 :] = q[..., j : j + 1].mT @ m[..., j + 1 :]
            m[..., j + 1 :] -= q[..., j : j + 1] @ upper[..., j : j + 1, j + 1 :]
    return q, upper


def pinv_by_gram(a: Tensor) -> Any:
    m = near_eye(a)
    return torch.linalg.solve_ex(m.mT @ m, m.mT)[0]


def pinv_by_qr(a: Tensor) -> Any:
    q, r = torch.linalg.qr(near_eye(a))
    return torch.linalg.solve_triangular(r, q.mT.contiguous(), upper=True)


def values_by_gram(a: Tensor) -> Any:
    return torch.linalg.eigvalsh(a.mT @ a).clamp(min=0).sqrt().flip(-1)


def values_by_qr(a: Tensor) -> Any:
    return torch.linalg.svdvals(torch.linalg.qr(a)[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("qr", by_gram, lambda a: gram_schmidt(a, modified=True)),
        ("qr", lambda a: gram_schmidt(a, modified=False), find("qr").reference),
        ("pinv", pinv_by_gram, pinv_by_qr),
        ("svdvals", values_by_gram, values_by_qr),
        ("nuclear_norm", lambda a: values_by_gram(a).sum(-1), lambda a: values_by_qr(a).sum(-1)),
    ],
)
def test_what_comes_by_the_product_with_the_transpose_is_found(
    name: str, wrong: Callable[..., Any], right: Callable[..., Any], dtype: str
) -> None:
    case = case_of(name, DIMS, dtype=dtype)
    for seed in range(5):
        args, _ = drawn(find(name), case, seed)
        expectation = reference.expect(find(name), case, args)
        assert not matches(called(wrong, args), expectation), seed
        assert matches(called(right, args), expectation), seed
