"""Elements moved as they are: transposed, joined, split, repeated, cut out; and converted to other types.

Every output is a fresh contiguous copy, also where PyTorch would give a view. ``flops`` counts one for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kerneleval.records import Arg, Plain, Task, product_text
from kerneleval.tasks.define import ROWS, data, fixed, operator, plain, size
from kerneleval.tasks.relations import homogeneity, resampling

Tensor = torch.Tensor
_PLANES = (size("B", high=1024), size("M"), size("N"))
_IMAGES = (fixed("B"), size("C", high=1024), size("H", high=1024), size("W", high=1024))
_HEADS = (fixed("B", high=4), size("L", high=4096), fixed("H", high=16), size("D", high=256))
_SUMS: Any = {"reduction": "1"}  # its gradient adds up copies
_DIAGONAL = plain("diagonal", formula="K - 3", among=("N // 2", "-(M // 2)"))
_NEAR: Any = {"dims": (*ROWS, fixed("K", high=5))}


def _channel_shuffle(x: Tensor, groups: int) -> Any:
    # torch.channel_shuffle takes views on CUDA, of its argument and of the gradient, and raises where they are strided
    return copied(x.unflatten(1, (groups, -1)).transpose(1, 2)).flatten(1, 2)


def copied(x: Tensor) -> Tensor:
    """A contiguous copy, also of what is contiguous already."""
    return x.clone(memory_format=torch.contiguous_format)


def moved(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    over: str | tuple[Arg, ...],
    out: str,
    *plains: Plain,
    each: int = 1,
    batch: bool = False,
    scaling: float = -2.0,
    **more: Any,
) -> Task:
    """A task that moves elements.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        over: the tensor arguments, or the shape of the only one, ``x``.
        out: the shapes of the outputs, with commas between.
        plains: plain arguments, which come last.
        each: operations for an element of an output.
        batch: whether the first dim of all tensors is a batch.
        scaling: a power of two by which all floating arguments, and the outputs with them, may be multiplied; 0: none.
        more: as ``define.operator`` takes it.
    """
    args = (data("x", over),) if isinstance(over, str) else over
    outputs = tuple(part.strip() for part in out.split(","))
    scaled = [i for i, arg in enumerate(args) if arg.role == "data" and arg.values == "normal" and not arg.dtype]
    found = list(more.pop("relations", ()))
    if scaling and scaled:
        found.append(homogeneity(dict.fromkeys(scaled, scaling), dict.fromkeys(range(len(outputs)), scaling)))
    if batch:
        every = dict.fromkeys(range(len(args)), 0)
        found.append(resampling("batch_resampling", every, dict.fromkeys(range(len(outputs)), 0)))
    shapes = [product_text(text.partition(":")[0]) for text in outputs]
    settings: dict[str, Any] = {"dims": ROWS, "empty": True, "nonfinite": True, "exact": True, "group": "Math", **more}
    return operator(
        name,
        "elementwise",
        summary,
        args=(*args, *plains),
        out=outputs,
        reference=reference,
        flops=f"{each} * ({' + '.join(shapes)})",
        common_relations=found,
        **settings,
    )


def _transpose(x: Tensor) -> Tensor:
    return copied(x.t())


def _transpose_last(x: Tensor) -> Tensor:
    return copied(x.transpose(-2, -1))


def _swapaxes(x: Tensor) -> Tensor:
    return copied(torch.swapaxes(x, 0, 2))


def _movedim(x: Tensor) -> Tensor:
    return copied(torch.movedim(x, 0, -1))


def _channels_last(x: Tensor) -> Tensor:
    return copied(x.permute(0, 2, 3, 1))


def _channels_first(x: Tensor) -> Tensor:
    return copied(x.permute(0, 3, 1, 2))


def _permute_0213(x: Tensor) -> Tensor:
    return copied(x.permute(0, 2, 1, 3))


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return copied(x.unflatten(-1, (heads, x.shape[-1] // heads)).transpose(1, 2))


def _merge_heads(x: Tensor) -> Tensor:
    return copied(x.transpose(1, 2)).flatten(2)


def _patchify(x: Tensor, patch: int) -> Tensor:
    h, w = x.shape[2:]
    patches = x.unflatten(3, (w // patch, patch)).unflatten(2, (h // patch, patch))
    return copied(patches.permute(0, 2, 4, 1, 3, 5)).flatten(3).flatten(1, 2)


def _unsqueeze(x: Tensor) -> Tensor:
    return copied(x.unsqueeze(1))


def _squeeze(x: Tensor) -> Tensor:
    return copied(x.squeeze(1))


def _flatten(x: Tensor) -> Tensor:
    return copied(x).flatten(1)


def _flip(x: Tensor) -> Tensor:
    return torch.flip(x, (0, 1))


def _roll(x: Tensor, shift: int) -> Tensor:
    return torch.roll(x, shift, 1)


def _roll_rows_and_columns(x: Tensor, rows: int, columns: int) -> Tensor:
    return torch.roll(x, (rows, columns), (0, 1))


def _rot90(x: Tensor) -> Tensor:
    return torch.rot90(x, 1, (0, 1))


def _diagonal(x: Tensor, offset: int) -> Tensor:
    return copied(torch.diagonal(x, offset, -2, -1))


def _narrow(x: Tensor, start: int, length: int) -> Tensor:
    return copied(x.narrow(1, start, length))


def _slice_step(x: Tensor, start: int, step: int) -> Tensor:
    return copied(x[:, start::step])


def _unfold(x: Tensor, width: int, step: int) -> Tensor:
    return copied(x.unfold(1, width, step))


TASKS = (
    moved("clone", "out = x", copied, "M N", "M N"),
    moved("transpose", "out[n, m] = x[m, n]", _transpose, "M N", "N M"),
    moved("transpose_last", "out[b, n, m] = x[b, m, n]", _transpose_last, "B M N", "B N M", dims=_PLANES, batch=True),
    moved("swapaxes", "out[n, m, b] = x[b, m, n]", _swapaxes, "B M N", "N M B", dims=_PLANES),
    moved("movedim", "out[m, n, b] = x[b, m, n]", _movedim, "B M N", "M N B", dims=_PLANES),
    moved(
        "to_channels_last",
        "out[b, h, w, c] = x[b, c, h, w]",
        _channels_last,
        "B C H W",
        "B H W C",
        dims=_IMAGES,
        batch=True,
    ),
    moved(
        "to_channels_first",
        "out[b, c, h, w] = x[b, h, w, c]",
        _channels_first,
        "B H W C",
        "B C H W",
        dims=_IMAGES,
        batch=True,
    ),
    moved(
        "permute_0213", "out[b, h, l, d] = x[b, l, h, d]", _permute_0213, "B L H D", "B H L D", dims=_HEADS, batch=True
    ),
    moved(
        "split_heads",
        "out[b, h, l, d] = x[b, l, h * D + d] for D = width / heads",
        _split_heads,
        "B L width",
        "B H L D",
        plain("heads", formula="H"),
        dims=_HEADS,
        derive={"width": "H * D"},
        batch=True,
        source="model",
    ),
    moved(
        "merge_heads",
        "out[b, l, h * D + d] = x[b, h, l, d]",
        _merge_heads,
        "B H L D",
        "B L width",
        dims=_HEADS,
        derive={"width": "H * D"},
        batch=True,
        source="model",
    ),
    moved(
        "patchify",
        "out[b, p * Q + q, (c * patch + i) * patch + j] = x[b, c, p * patch + i, q * patch + j]",
        _patchify,
        "B C height width",
        "B patches each",
        plain("patch", formula="K"),
        dims=(fixed("B"), fixed("C", high=4), size("P", high=512), size("Q", high=512), fixed("K", low=2, high=4)),
        derive={
            "height": "P * K",
            "width": "Q * K",
            "patches": "P * Q",
            "each": "C * K * K",
        },
        where="K > 0",
        batch=True,
        source="model",
    ),
    moved("unsqueeze", "out[m, 0, n] = x[m, n]", _unsqueeze, "M N", "M one N", derive={"one": 1}),
    moved("squeeze", "out[m, n] = x[m, 0, n]", _squeeze, "M one N", "M N", derive={"one": 1}),
    moved(
        "flatten",
        "out[b, m * N + n] = x[b, m, n]",
        _flatten,
        "B M N",
        "B width",
        dims=_PLANES,
        derive={"width": "M * N"},
        batch=True,
    ),
    moved("flip", "out[m, n] = x[M - 1 - m, N - 1 - n]", _flip, "M N", "M N"),
    moved("fliplr", "out[m, n] = x[m, N - 1 - n]", torch.fliplr, "M N", "M N", batch=True),
    moved("flipud", "out[m, n] = x[M - 1 - m, n]", torch.flipud, "M N", "M N"),
    moved("rot90", "out[n, m] = x[m, N - 1 - n]: a quarter turn counter-clockwise", _rot90, "M N", "N M"),
    moved(
        "roll",
        "out[m, (n + shift) mod N] = x[m, n]",
        _roll,
        "M N",
        "M N",
        plain("shift", formula="K", among=("-1 - K", "N // 2", "N + K", "3 * N + 2")),
        dims=(*ROWS, fixed("K", high=64)),
        batch=True,
    ),
    moved(
        "roll_2d",
        "out[(m + rows) mod M, (n + columns) mod N] = x[m, n]",
        _roll_rows_and_columns,
        "M N",
        "M N",
        plain("rows", formula="-K", among=("K", "M // 2", "M + K", "-K - 3 * M")),
        plain("columns", formula="L", among=("-L", "-(N // 2)", "N + L", "-L - 3 * N")),
        dims=(*ROWS, fixed("K"), fixed("L")),
    ),
    moved(
        "tril",
        "out[m, n] = x[m, n] where n <= m + diagonal, else 0",
        torch.tril,
        "M N",
        "M N",
        _DIAGONAL,
        where="M + K > 3",
        **_NEAR,
    ),
    moved(
        "triu",
        "out[m, n] = x[m, n] where n >= m + diagonal, else 0",
        torch.triu,
        "M N",
        "M N",
        _DIAGONAL,
        where="N > K - 3",
        **_NEAR,
    ),
    moved(
        "diagonal",
        "out[b, i] = x[b, i, i + offset]",
        _diagonal,
        "B M N",
        "B length",
        plain("offset", formula="K - 4"),
        dims=(*_PLANES, fixed("K", high=7)),
        derive={"length": "min(M - max(0, 4 - K), N - max(0, K - 4))"},
        where="min(M, N, length) > 0",
        batch=True,
    ),
    moved(
        "diag_embed",
        "out[b, n, n] = x[b, n], 0 elsewhere",
        torch.diag_embed,
        "B N",
        "B N N",
        dims=(size("B", high=1024), size("N", high=1024)),
        batch=True,
    ),
    moved(
        "narrow",
        "out[m, n] = x[m, n + start] for n < length",
        _narrow,
        "M N",
        "M length",
        plain("start", formula="K"),
        plain("length", formula="length"),
        dims=(*ROWS, fixed("K", high=16)),
        derive={"length": "(N - K + 1) // 2"},
        where="N > K",
        batch=True,
    ),
    moved(
        "slice_step",
        "out[m, n] = x[m, start + n * step]",
        _slice_step,
        "M N",
        "M length",
        plain("start", formula="K"),
        plain("step", formula="S"),
        dims=(*ROWS, fixed("K"), fixed("S", high=4)),
        derive={"length": "-(-(N - K) // S)"},
        where="N > K and S > 0",
        batch=True,
    ),
    moved(
        "unfold_windows",
        "out[m, p, k] = x[m, p * step + k]",
        _unfold,
        "M N",
        "M P K",
        plain("width", formula="K"),
        plain("step", formula="S"),
        dims=(*ROWS, fixed("K"), fixed("S", high=4)),
        derive={"P": "(N - K) // S + 1"},
        where="N >= K and K * S > 0",
        batch=True,
        gathered="-(-K // S)",
        **_SUMS,
    ),
    moved(
        "channel_shuffle",
        "out[b, i * groups + g] = x[b, g * C + i] for C channels a group",
        _channel_shuffle,
        "B channels H W",
        "B channels H W",
        plain("groups", formula="G"),
        dims=(*_IMAGES, fixed("G", low=2, high=4)),
        derive={"channels": "C * G"},
        where="min(C, G, H, W) > 0",
        batch=True,
    ),
)
