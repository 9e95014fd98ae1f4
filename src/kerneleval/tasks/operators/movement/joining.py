"""Tensors joined, split and repeated. Every output is a fresh contiguous copy."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import ROWS, data, fixed, plain, size
from kerneleval.tasks.operators.movement.movement import copied, moved

Tensor = torch.Tensor
_SUMS: Any = {"reduction": "1"}  # its gradient adds up copies
_TWO = (data("x", "M N"), data("y", "M N"))
_THREE = (*_TWO, data("z", "M N"))
_TRIPLE: Any = {"two": 2, "three": 3}


def _cat(x: Tensor, y: Tensor) -> Tensor:
    return torch.cat((x, y), 1)


def _vstack(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.vstack((x, y, z))


def _dstack(x: Tensor, y: Tensor) -> Tensor:
    return torch.dstack((x, y))


def _stack(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    return torch.stack((x, y, z))


def _interleave(x: Tensor, y: Tensor) -> Tensor:
    return torch.stack((x, y), -1).flatten(-2)


def _block_diag(x: Tensor, y: Tensor) -> Tensor:
    out: Tensor = torch.block_diag(x, y)
    return out


def _split(x: Tensor, first: int) -> tuple[Tensor, ...]:
    return tuple(copied(part) for part in torch.split(x, [first, x.shape[1] - first], 1))


def _chunk(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(copied(part) for part in torch.chunk(x, 2, 1))


def _unbind(x: Tensor) -> tuple[Tensor, ...]:
    return tuple(copied(part) for part in torch.unbind(x, 1))


def _tile(x: Tensor, rows: int, columns: int) -> Tensor:
    return torch.tile(x, (rows, columns))


def _repeat(x: Tensor, times: int) -> Tensor:
    return x.repeat(times, 1, 1)


def _repeat_interleave(x: Tensor, times: int) -> Tensor:
    return torch.repeat_interleave(x, times, 0)


def _expand(x: Tensor, columns: int) -> Tensor:
    return copied(x.expand(-1, columns))


def _broadcast_to(x: Tensor, rows: int) -> Tensor:
    return copied(torch.broadcast_to(x, (rows, x.shape[0])))


def _meshgrid(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return tuple(map(copied, torch.meshgrid(x, y, indexing="ij")))


TASKS = (
    moved(
        "cat",
        "out[m] = x[m] followed by y[m]",
        _cat,
        (data("x", "M N"), data("y", "M K")),
        "M total",
        dims=(*ROWS, size("K")),
        derive={"total": "N + K"},
        batch=True,
    ),
    moved(
        "vstack",
        "out = the rows of x, then of y, then of z",
        _vstack,
        _THREE,
        "total N",
        derive={"total": "3 * M"},
    ),
    moved("dstack", "out[m, n] = (x[m, n], y[m, n])", _dstack, _TWO, "M N two", derive=_TRIPLE),
    moved("stack", "out = (x, y, z) along a new first dim", _stack, _THREE, "three M N", derive=_TRIPLE),
    moved(
        "interleave",
        "out[m, 2 * n] = x[m, n], out[m, 2 * n + 1] = y[m, n]",
        _interleave,
        _TWO,
        "M width",
        derive={"width": "2 * N"},
        batch=True,
        source="model",
    ),
    moved(
        "block_diag",
        "out = [[x, 0], [0, y]]",
        _block_diag,
        (data("x", "M N"), data("y", "K L")),
        "rows columns",
        dims=(*ROWS, size("K"), size("L")),
        derive={"rows": "M + K", "columns": "N + L"},
    ),
    moved(
        "split",
        "out0 = x[:, :first], out1 = x[:, first:]",
        _split,
        "M total",
        "M N, M K",
        plain("first", formula="N"),
        dims=(*ROWS, size("K")),
        derive={"total": "N + K"},
        batch=True,
    ),
    moved(
        "chunk",
        "out0 = the left half of x, out1 = the right half",
        _chunk,
        "M width",
        "M N, M N",
        derive={"width": "2 * N"},
        batch=True,
    ),
    moved(
        "unbind",
        "out0[b] = x[b, 0], out1[b] = x[b, 1], out2[b] = x[b, 2]",
        _unbind,
        "M three N",
        "M N, M N, M N",
        derive=_TRIPLE,
        batch=True,
    ),
    moved(
        "tile",
        "out[m, n] = x[m mod M, n mod N]",
        _tile,
        "M N",
        "rows columns",
        plain("rows", formula="K"),
        plain("columns", formula="L"),
        dims=(*ROWS, fixed("K", high=4), fixed("L", high=4)),
        derive={"rows": "M * K", "columns": "N * L"},
        **_SUMS,
    ),
    moved(
        "repeat",
        "out[k] = x",
        _repeat,
        "M N",
        "K M N",
        plain("times", formula="K"),
        dims=(*ROWS, fixed("K", low=2)),
        **_SUMS,
    ),
    moved(
        "repeat_interleave",
        "out[m] = x[floor(m / times)]",
        _repeat_interleave,
        "M N",
        "rows N",
        plain("times", formula="K"),
        dims=(*ROWS, fixed("K", low=2)),
        derive={"rows": "M * K"},
        **_SUMS,
    ),
    moved(
        "expand",
        "out[m, n] = x[m, 0]",
        _expand,
        "M one",
        "M N",
        plain("columns", formula="N"),
        derive={"one": 1},
        batch=True,
        **_SUMS,
    ),
    moved("broadcast_to", "out[m, n] = x[n]", _broadcast_to, "N", "M N", plain("rows", formula="M"), **_SUMS),
    moved(
        "meshgrid",
        "out0[m, n] = x[m], out1[m, n] = y[n]",
        _meshgrid,
        (data("x", "M"), data("y", "N")),
        "M N, M N",
        **_SUMS,
    ),
    moved(
        "cartesian_prod",
        "out[m * N + n] = (x[m], y[n])",
        torch.cartesian_prod,
        (data("x", "M"), data("y", "N")),
        "pairs two",
        derive={"pairs": "M * N", "two": 2},
        **_SUMS,
    ),
)
