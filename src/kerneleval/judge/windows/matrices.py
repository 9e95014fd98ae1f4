"""Matrices that are regular but not near the identity, and large ones of which the exponential is not large."""

from __future__ import annotations

import torch

_DECADES = 1.5
"""Columns of square matrices are longer or shorter by up to ten to this; of others by a third of it."""

_ANGLES = (8.0, 16.0)
"""Norms of skew-symmetric matrices: the largest angle by which their exponential turns."""

LINK, HALF_LINK = 0.9, 0.45
"""Elements beside the diagonal of linked matrices: of a triangle with 1 on its diagonal, whose inverse falls by this
from place to place, and of both triangles of a positive definite one. Conditions of each are about 20, at most 40.
"""
_OCTAVES = (1.5, 2.5)
"""Resized matrices are larger or smaller by two to this."""

_TURNED = range(8, 65)
"""Matrices of so many columns are turned. Of fewer, vectors would have an element next to 0 on the diagonal; of more,
right rotations, one after the other, leave more rounding errors than LAPACK.
"""

_LEAN = (2.5, 3.2)
"""A leaning column is another one and a part of itself of ten to minus this. Conditions are some times the inverse, and
below 1 / sqrt(u) in fp32: Cholesky's factorisation, done twice, is as good as others there."""
_FAINT = 1e-4
"""What half of the columns of faint matrices are multiplied by, and so half of their singular values."""

_REST = 0.1
"""What their other elements are multiplied by."""


def off_eye(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Given a with I + a near I: in half of the matrices an a such that I + a is the same but for its columns, each
    longer or shorter by a factor, and its rows, which have secret signs and changed places. So determinants have either
    sign, series about I diverge, and elimination must exchange rows. The product of the factors is 1.
    """
    *batch, height, width = a.shape
    eye = torch.eye(height, width, dtype=a.dtype, device=a.device)

    def unit(*shape: int) -> torch.Tensor:
        return torch.rand(*batch, *shape, generator=generator, device=a.device, dtype=a.dtype)

    decades = _DECADES if height == width else _DECADES / 3
    exponents = (
        torch.linspace(-decades, decades, width, dtype=a.dtype, device=a.device) if width > 1 else eye[0, :1] - 1
    )
    order = unit(1, width).argsort(-1)
    columns = 10 ** (exponents[order] * unit(1, 1))
    signs = torch.where(unit(height, 1) < 0.5, -1.0, 1.0).to(a.dtype)
    moved = ((eye + a) * columns * signs).gather(-2, unit(height, 1).argsort(-2).expand(a.shape))
    return torch.where(unit(1, 1) < 0.5, a, moved - eye)


def leaning(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Given a with I + a near I: in half of the matrices an a such that of I + a two secret columns are nearly a third.
    Conditions are 600 to 4000, whatever the columns are scaled by. The product of the matrix with its transpose has the
    square of them, and what follows from it half of the digits. So has an orthogonalisation that takes all products
    with a column before it changes it.
    """
    *batch, height, width = a.shape
    if width < 2:
        return a
    matrix = torch.eye(height, width, dtype=a.dtype, device=a.device) + a
    unit = torch.rand(*batch, 2, 1, 1, generator=generator, device=a.device, dtype=a.dtype)
    order = torch.rand(*batch, 1, width, generator=generator, device=a.device).argsort(-1)[..., :3]
    order = order.expand(*batch, height, order.shape[-1])
    part = 10 ** -(_LEAN[0] + (_LEAN[1] - _LEAN[0]) * unit[..., 0, :, :])
    leant = matrix.gather(-1, order[..., :1]) + part * matrix.gather(-1, order[..., 1:])
    leant = a + matrix.scatter(-1, order[..., 1:], leant) - matrix
    return torch.where(unit[..., 1, :, :] < 0.5, off_eye(a, generator), leant)


def faint(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """In half of the matrices a secret half of the columns is next to nothing, and so are as many singular values. By
    the product of the matrix with its transpose, these are nothing but the roots of rounding errors.
    """
    *batch, _, width = a.shape
    order = torch.rand(*batch, 1, width, generator=generator, device=a.device).argsort(-1)
    plain = torch.randint(0, 2, (*batch, 1, 1), generator=generator, device=a.device) == 0
    return torch.where(plain | (order >= width // 2), a, a * _FAINT)


def skew(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the matrices made skew-symmetric, of a norm of 8 to 16 (half of that where N is 2). Their exponentials
    are rotations: as large as those of small matrices, and as well-conditioned. Series without scaling lose all digits.
    """
    found = a - a.mT
    unit = torch.rand(*a.shape[:-2], 2, 1, 1, generator=generator, device=a.device, dtype=a.dtype)
    angles = _ANGLES[0] + (_ANGLES[1] - _ANGLES[0]) * unit[..., 0, :, :]
    # of random ones the largest singular value is about twice the root of the mean square
    size = 2 * torch.linalg.matrix_norm(found, keepdim=True) / a.shape[-1] ** 0.5
    found *= angles / size.clamp_min(torch.finfo(a.dtype).eps)  # of one element only 0 is skew
    return torch.where(unit[..., 1, :, :] < 0.5, a, found)


def linked(a: torch.Tensor, generator: torch.Generator, link: float = LINK) -> torch.Tensor:
    """Half of the matrices with a link of a secret sign between each row and the next, on both sides of the diagonal,
    and less of all other elements. What one end says of the other passes through all rows between: a few steps of an
    iteration, or the terms of a series that are enough for few rows, do not reach it.
    """
    *batch, rows, _ = a.shape
    signs = torch.randint(0, 2, (*batch, rows - 1), generator=generator, device=a.device).mul_(2).sub_(1)
    found = a * _REST
    for side in (-1, 1):
        torch.diagonal(found, side, -2, -1).copy_(signs * link)
    plain = torch.randint(0, 2, (*batch, 1, 1), generator=generator, device=a.device) == 0
    return torch.where(plain, a, found)


def resized(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the matrices such that I + a is three to six times larger or smaller: series about I have no sum there,
    and Newton's steps without scaling do not lead to roots.
    """
    eye = torch.eye(*a.shape[-2:], dtype=a.dtype, device=a.device)
    each = (*a.shape[:-2], 1, 1)
    unit = torch.rand(each, generator=generator, device=a.device, dtype=a.dtype)
    octaves = _OCTAVES[0] + (_OCTAVES[1] - _OCTAVES[0]) * unit
    kind = torch.randint(0, 4, each, generator=generator, device=a.device)
    factor = torch.exp2(torch.where(kind == 0, -octaves, octaves))
    return torch.where(kind < 2, (eye + a) * factor - eye, a)


def turned(a: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Half of the matrices such that diag(1, 2, ...) + a is reflected, at either side, as a whole: its singular values
    (of square ones, its eigenvalues) stay, and it is no longer nearly diagonal. Vectors keep more than half of their
    element on the diagonal, whose sign they go by.
    """
    *batch, height, width = a.shape
    if width not in _TURNED:
        return a
    diagonal = torch.zeros(height, width, dtype=a.dtype, device=a.device)
    torch.diagonal(diagonal).copy_(torch.arange(1, width + 1))

    def reflection(size: int) -> torch.Tensor:
        signs = torch.randint(0, 2, (*batch, size, 1), generator=generator, device=a.device).mul_(2).sub_(1)
        vector = signs.to(a.dtype) * size**-0.5
        return torch.eye(size, dtype=a.dtype, device=a.device).sub(vector * vector.mT, alpha=2)

    right = reflection(width)
    left = right if height == width else reflection(height)
    plain = torch.randint(0, 2, (*batch, 1, 1), generator=generator, device=a.device) == 0
    return torch.where(plain, a, left @ (diagonal + a) @ right - diagonal)
