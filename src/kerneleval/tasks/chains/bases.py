"""What a chain may begin with: plain data, a matrix product, a convolution."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.records import Dim
from kerneleval.tasks.chains.chain import Base
from kerneleval.tasks.define import bias, data, fixed, size, weight


def _conv_transpose3d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    return F.conv_transpose3d(x, weight, bias, stride=2, padding=1)


def _same(x: torch.Tensor) -> torch.Tensor:
    return x


def _pooled_conv_transpose3d(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return _conv_transpose3d(F.avg_pool3d(x, 2), weight, bias)


_CHANNELS = (fixed("B", high=4), size("C", high=1024), size("O", low=4, high=512, multiple_of=4))
_FACES = ("H", "W")
_BLOCKS = ("D", "H", "W")


def _plain(*dims: Dim) -> Base:
    """Data as it is given."""
    names = tuple(dim.name for dim in dims)
    return Base(text="x", dims=dims, args=(data("x", " ".join(names)),), shape=names, run=_same, flops="0")


def _unbiased(base: Base) -> Base:
    """The base without its bias, which a normalisation behind it would take off again."""
    return replace(base, text=base.text.replace(", bias", "").replace(" + bias", ""), args=base.args[:2])


def _convolution(name: str, run: Any, space: tuple[str, ...], side: int) -> Base:
    taps = 3 ** len(space)
    return Base(
        text=f"{name}(x, weight, bias), kernel 3, padding 1",
        dims=(*_CHANNELS, *(fixed(s, low=4, high=side) for s in space)),
        args=(
            data("x", " ".join(("B", "C", *space))),
            weight("weight", " ".join(("O", "C", *(["three"] * len(space)))), fan_in=" ".join(("C", "taps"))),
            bias("O"),
        ),
        derive={"three": 3, "taps": f"{taps}"},
        shape=("B", "O", *space),
        run=run,
        flops=f"{_of('B', 'O', *space)} * (2 * C * {taps} + 1)",
        reduction=f"C * {taps}",
        gathered=_of("B", *space),
        normwise=True,
        complexity=3,
    )


def _transposed(name: str, run: Any, space: tuple[str, ...], side: int) -> Base:
    taps, wide = 4 ** len(space), tuple(f"{s}_twice" for s in space)
    return Base(
        text=f"{name}(x, weight, bias), kernel 4, stride 2, padding 1",
        dims=(*_CHANNELS, *(fixed(s, low=3, high=side) for s in space)),
        args=(
            data("x", " ".join(("B", "C", *space))),
            weight("weight", " ".join(("C", "O", *(["four"] * len(space)))), fan_in=" ".join(("C", "met"))),
            bias("O"),
        ),
        derive={"four": 4, "met": f"2 ** {len(space)}", **{f"{s}_twice": f"2 * {s}" for s in space}},
        shape=("B", "O", *wide),
        run=run,
        flops=f"2 * {_of('B', 'C', 'O', *space)} * {taps} + {_of('B', 'O', *wide)}",
        reduction=f"C * 2 ** {len(space)}",
        gathered=_of("B", *space),
        normwise=True,
        complexity=3,
    )


def _batch(base: Base) -> Base:
    """The base for more than one item: of one alone, a batch norm and a mean behind it leave the shift."""
    return replace(base, dims=tuple(fixed("B", low=2, high=4) if dim.name == "B" else dim for dim in base.dims))


def _pooled(base: Base) -> Base:
    """The base behind an average of pairs along all dims: what goes out is as large as what comes in."""
    return replace(
        base,
        text=base.text.replace("(x,", "(avg_pool(x, 2),"),
        args=(data("x", " ".join(("B", "C", *base.shape[2:]))), *base.args[1:]),
        run=_pooled_conv_transpose3d,
        flops=f"{base.flops} + {_of('B', 'C', *base.shape[2:])}",
        reduction="C * 64",
    )


def _of(*names: str) -> str:
    return " * ".join(names)


BASES: dict[str, Base] = {
    "rows": _plain(size("M"), size("N")),
    "short_rows": _plain(size("M"), fixed("N", low=2, high=8)),
    "image": _plain(
        fixed("B", high=4), size("O", low=4, multiple_of=4), fixed("H", low=4, high=24), fixed("W", low=4, high=24)
    ),
    "linear": Base(
        text="(x weight^T + bias)",
        dims=(size("M"), size("O", low=4, multiple_of=4), size("K", low=4)),
        args=(data("x", "M K"), weight("weight", "O K", fan_in="K"), bias("O")),
        shape=("M", "O"),
        run=F.linear,
        flops="2 * M * O * K + M * O",
        reduction="K",
        normwise=True,
        complexity=3,
    ),
    "matmul": Base(
        text="(a b)",
        dims=(size("M"), size("N"), size("K", low=4)),
        args=(data("a", "M K"), data("b", "K N", fan_in="K")),
        shape=("M", "N"),
        run=torch.matmul,
        flops="2 * M * N * K",
        reduction="K",
        normwise=True,
        complexity=3,
    ),
    "bmm": Base(
        text="(a b)",
        dims=(fixed("B", high=8), size("M"), size("N"), size("K", low=4)),
        args=(data("a", "B M K"), data("b", "B K N", fan_in="K")),
        shape=("B", "M", "N"),
        run=torch.bmm,
        flops="2 * B * M * N * K",
        reduction="K",
        normwise=True,
        complexity=3,
    ),
    "mv": Base(
        text="(a x)",
        dims=(size("M"), size("N")),
        args=(data("a", "M N"), data("x", "N", fan_in="N")),
        shape=("M",),
        run=torch.mv,
        flops="2 * M * N",
        reduction="N",
        complexity=3,
    ),
    "conv2d": _convolution("conv2d", partial(F.conv2d, padding=1), _FACES, 16),
    "conv3d": _convolution("conv3d", partial(F.conv3d, padding=1), _BLOCKS, 8),
    "conv_transpose2d": _transposed("conv_transpose2d", partial(F.conv_transpose2d, stride=2, padding=1), _FACES, 12),
    "conv_transpose3d": _transposed("conv_transpose3d", _conv_transpose3d, _BLOCKS, 5),
}
BASES |= {
    f"{name}_no_bias": _unbiased(BASES[name])
    for name in ("linear", "conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d")
}
BASES["pooled_conv_transpose3d"] = _pooled(BASES["conv_transpose3d"])
BASES["conv_transpose3d_batch"] = _batch(BASES["conv_transpose3d_no_bias"])
