"""Matrices that are not near the identity. Triangles and positive definite ones in which one end says something of the
other: a fixed number of steps of an iteration, or of terms of a series, is right where all elements beside the diagonal
are small, and nowhere else. Multiples of matrices near the identity, about which series of functions have no sum. And
matrices with known eigenvalues that are not nearly diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from kerneleval.judge.oracle import reference
from kerneleval.judge.oracle.comparison import matches
from kerneleval.records import Case, TensorSpec
from kerneleval.tasks import find

from .conftest import called, case_of, drawn, gradients

Solver = Callable[[Tensor, Tensor], Tensor]
DIMS = {"B": 24, "N": 90, "M": 7}
DRAWS = 8


def by_steps(t: Tensor, b: Tensor) -> Tensor:
    """Twelve Jacobi iterations."""
    diagonal = torch.diagonal(t, dim1=-2, dim2=-1)[..., None]
    x = b / diagonal
    for _ in range(12):
        x = x + (b - t @ x) / diagonal
    return x


def by_terms(t: Tensor, b: Tensor) -> Tensor:
    """The series of the inverse as a product, which is exact for 16 rows."""
    diagonal = torch.diagonal(t, dim1=-2, dim2=-1)[..., None]
    rest, x = -torch.tril(t, -1) / diagonal - torch.triu(t, 1) / diagonal, b / diagonal
    for _ in range(4):
        x = x + rest @ x
        rest = rest @ rest
    return x


def by_inverse(t: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.inv(t) @ b


def by_rows(t: Tensor, b: Tensor) -> Tensor:
    """Substitution for lower triangles and, from the other end, for upper ones."""
    if bool((torch.triu(t, 1) != 0).any()):
        if bool((torch.tril(t, -1) != 0).any()):
            factor = torch.linalg.lu_factor(t)
            return torch.linalg.lu_solve(*factor, b)
        return by_rows(t.flip(-1, -2), b.flip(-2)).flip(-2)
    rows: list[Tensor] = []
    for i in range(t.shape[-1]):
        before = (t[..., i, :i, None] * torch.stack(rows, -2)).sum(-2) if rows else 0
        rows.append((b[..., i, :] - before) / t[..., i, i, None])
    return torch.stack(rows, -2)


def eye(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-1], dtype=a.dtype)


def lower(a: Tensor) -> Tensor:
    return torch.tril(a, -1) + eye(a)


def squared(a: Tensor) -> Tensor:
    return a.mT @ a


def definite(a: Tensor) -> Tensor:
    return (a + a.mT) / 2 + eye(a)


def indefinite(a: Tensor) -> Tensor:
    return (a + a.mT) / 2 + torch.diag(1.0 - 2.0 * (torch.arange(a.shape[-1]) % 2).to(a.dtype))


KERNELS: dict[str, Callable[[Solver], Callable[..., Tensor]]] = {
    "trsv": lambda solve: lambda a, b: solve(lower(a), b[:, None])[:, 0],
    "trsm": lambda solve: lambda a, b, alpha: solve(lower(a), alpha * b),
    "trsm_batched": lambda solve: lambda a, b, alpha: solve(lower(a), alpha * b),
    "trsm_batched_complex": lambda solve: lambda a, b, alpha: solve(lower(a), alpha * b),
    "trsm_right": lambda solve: lambda a, b, alpha: solve(lower(a.mT), alpha * b.mT).mT,
    "solve_triangular": lambda solve: lambda a, b: solve(torch.triu(a) + eye(a), b),
    "solve_and_add_scaled_vector": lambda solve: lambda a, b, y, alpha: solve(torch.triu(a) + eye(a), b) + alpha * y,
    "lu_solve": lambda solve: lambda a, b: solve(torch.triu(a) + eye(a), solve(lower(a), b)),
    "cholesky_solve": lambda solve: lambda a, b: solve((torch.tril(a) + eye(a)).mT, solve(torch.tril(a) + eye(a), b)),
    "cholesky_inverse": lambda solve: lambda a: squared(solve(torch.tril(a) + eye(a), eye(a).expand(a.shape))),
    "solve_positive": lambda solve: lambda a, b: solve(definite(a), b),
    "solve_symmetric": lambda solve: lambda a, b: solve(indefinite(a), b),
}


def right(name: str, solve: Solver, seed: int, *, dtype: str = "", direction: str = "forward") -> bool:
    task = find(name)
    own = {dim.name: DIMS[dim.name] for dim in task.dims}
    case: Case = case_of(name, own, dtype=dtype or task.dtypes[0], direction=direction)
    args, grads = drawn(task, case, seed)
    expectation = reference.expect(task, case, args, grads)
    assert matches(expectation.native, expectation)
    kernel: Any = KERNELS[name](solve)
    found = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
    return matches(found, expectation)


@pytest.mark.parametrize("solve", [by_steps, by_terms])
@pytest.mark.parametrize("name", KERNELS)
def test_solving_by_a_few_steps_is_found(name: str, solve: Solver) -> None:
    """Without a batch, half of the draws have such a matrix; of 24 matrices half."""
    batch = "B" in {dim.name for dim in find(name).dims}
    assert not all(right(name, solve, seed) for seed in range(1 if batch else DRAWS))


@pytest.mark.slow(every=4)
@pytest.mark.parametrize("solve", [by_inverse, by_rows])
@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", KERNELS)
def test_other_ways_to_solve_pass(name: str, direction: str, solve: Solver) -> None:
    task = find(name)
    for dtype in task.dtypes if solve is by_inverse else task.dtypes[:1]:
        assert all(right(name, solve, seed, dtype=dtype, direction=direction) for seed in range(2))


@pytest.mark.slow(every=3)
@pytest.mark.parametrize("name", KERNELS)
def test_matrices_are_well_conditioned(name: str) -> None:
    task = find(name)
    for rows in (1, 2, 3, 33, 256):
        case = case_of(name, {**{dim.name: DIMS[dim.name] for dim in task.dims}, "N": rows}, dtype=task.dtypes[1])
        for seed in range(3 if rows < 256 else 1):
            a = drawn(task, case, seed)[0][0]
            spec = task.arguments(case.dims_map, case.dtype)[0]
            assert isinstance(spec, TensorSpec) and spec.values in ("linked", "half_linked")
            parts = [lower(a), lower(a.mT)] if spec.values == "linked" else [definite(a), indefinite(a)]
            assert all(float(torch.linalg.cond(part).max()) < 40 for part in parts)
            if rows > 2 and spec.values == "half_linked":
                torch.linalg.cholesky(definite(a))


def series(a: Tensor, count: int = 40) -> list[Tensor]:
    """The terms of log(I + s), s symmetric."""
    s = (a + a.mT) / 2
    powers = [s]
    for _ in range(count - 1):
        powers.append(powers[-1] @ s)
    return [power * (1 - 2 * (k % 2)) / (k + 1) for k, power in enumerate(powers)]


def log_by_terms(a: Tensor) -> Tensor:
    return torch.stack(series(a)).sum(0)


def logdet_by_terms(a: Tensor) -> Tensor:
    return torch.diagonal(log_by_terms(a), dim1=-2, dim2=-1).sum(-1)


def logdet_by_factor(a: Tensor) -> Tensor:
    return 2 * torch.diagonal(torch.linalg.cholesky(definite(a)), dim1=-2, dim2=-1).log().sum(-1)


def by_newton(m: Tensor, steps: int) -> Tensor:
    y, z = m, eye(m).expand(m.shape)
    for _ in range(steps):
        t = (3 * eye(m) - z @ y) / 2
        y, z = y @ t, t @ z
    return z


def root_unscaled(a: Tensor) -> Tensor:
    return by_newton(definite(a), 9)


def root_scaled(a: Tensor) -> Tensor:
    size = torch.linalg.matrix_norm(definite(a), keepdim=True)
    return by_newton(definite(a) / size, 14) / size.sqrt()


def of_spectrum(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def by_eigenvectors(a: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(definite(a))
        return (vectors * function(values)[..., None, :]) @ vectors.mT

    return by_eigenvectors


@pytest.mark.parametrize(
    ("name", "defective", "honest"),
    [
        ("matrix_log", log_by_terms, of_spectrum(torch.log)),
        ("inverse_square_root", root_unscaled, of_spectrum(torch.rsqrt)),
        ("inverse_square_root", root_unscaled, root_scaled),
        ("logdet", logdet_by_terms, logdet_by_factor),
    ],
)
@pytest.mark.parametrize("rows", [12, 60])
def test_functions_of_matrices_near_the_identity_alone_are_found(
    name: str, defective: Callable[[Tensor], Tensor], honest: Callable[[Tensor], Tensor], rows: int
) -> None:
    task = find(name)
    for direction in ("forward", "backward"):
        case = case_of(name, {"B": 24, "N": rows}, direction=direction)
        args, grads = drawn(task, case)
        expectation = reference.expect(task, case, args, grads)
        assert matches(expectation.native, expectation)
        for kernel, passes in ((honest, True), (defective, False)):
            found = called(kernel, args) if grads is None else gradients(kernel, task, case, args, grads)
            assert matches(found, expectation) == passes, (direction, kernel)


def rotated(m: Tensor, pairs: Tensor) -> Tensor:
    """The product of the rotations that make the elements at these pairs of places 0."""
    p, q = pairs
    one, other, beside = m[..., p, p], m[..., q, q], m[..., p, q]
    ratio = (other - one) / (2 * torch.where(beside == 0, 1, beside))
    tangent = torch.where(ratio < 0, -1, 1) / (ratio.abs() + (1 + ratio * ratio).sqrt())
    tangent = torch.where(beside == 0, 0, tangent)
    cosine = 1 / (1 + tangent * tangent).sqrt()
    turn = eye(m).repeat(*m.shape[:-2], 1, 1)
    turn[..., p, p] = turn[..., q, q] = cosine
    turn[..., p, q] = tangent * cosine
    turn[..., q, p] = -tangent * cosine
    return turn


def eigenvectors_by_rotations(a: Tensor, sweeps: int) -> tuple[Tensor, Tensor]:
    """Jacobi's method: all pairs of places in each sweep, as many at once as do not meet."""
    count = a.shape[-1]
    m = (a + a.mT) / 2 + torch.diag(torch.arange(1, count + 1, dtype=a.dtype))
    vectors = eye(a).expand(a.shape)
    order = list(range(count + count % 2))
    for _ in range(sweeps * (len(order) - 1)):
        meeting = zip(order[: len(order) // 2], order[::-1], strict=False)
        turn = rotated(m, torch.tensor([sorted(pair) for pair in meeting if max(pair) < count]).mT)
        m, vectors = turn.mT @ m @ turn, vectors @ turn
        order = [order[0], order[-1], *order[1:-1]]
    values = torch.diagonal(m, dim1=-2, dim2=-1)
    places = values.argsort(-1)
    vectors = vectors.gather(-1, places[..., None, :].expand(vectors.shape))
    signs = torch.where(torch.diagonal(vectors, dim1=-2, dim2=-1) < 0, -1, 1).to(a.dtype)
    return values.gather(-1, places), vectors * signs[..., None, :]


@pytest.mark.parametrize("rows", [12, 40, 64, 96])
def test_eigenvectors_by_three_sweeps_are_found(rows: int) -> None:
    """Nine sweeps pass, of larger matrices too."""
    case = case_of("eigh", {"B": 6, "N": rows})
    args, _ = drawn(find("eigh"), case, rows)
    expectation = reference.expect(find("eigh"), case, args)
    assert matches(expectation.native, expectation)
    for sweeps in (3, 9) if rows <= 64 else (9,):
        assert matches(list(eigenvectors_by_rotations(args[0], sweeps)), expectation) == (sweeps > 3)


@pytest.mark.parametrize("name", ["eigh", "eig", "svd"])
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 33, 64])
def test_eigenvectors_have_a_sign_and_gradients(name: str, rows: int) -> None:
    """PyTorch is right in either type, and its vectors' elements on the diagonal are not next to 0."""
    task = find(name)
    own = {dim.name: {"B": 6, "M": 9, "N": rows}[dim.name] for dim in task.dims}
    for dtype in task.dtypes:
        for direction in ("forward", "backward"):
            case = case_of(name, own, dtype=dtype, direction=direction)
            args, grads = drawn(task, case)
            expectation = reference.expect(task, case, args, grads)
            assert matches(expectation.native, expectation)
            if direction == "forward":
                vectors = called(task.reference, args)[-1]
                assert float(torch.diagonal(vectors, dim1=-2, dim2=-1).abs().min()) > 0.5
