"""Pooling to a size that is given, of lines (B, C, L), images (B, C, H, W) and volumes (B, C, T, H, W).

Window p of P covers positions floor(p * L / P) to ceil((p + 1) * L / P) - 1, but of fractional pooling. NaN is the
largest number; the first of equal maxima takes the gradient, unless another rule is named.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import data, fixed, plain, size, whole
from kerneleval.tasks.operators.reduction.pooling import CHANNELS, EXTREME, LINEAR, pooled, positions
from kerneleval.tasks.relations import homogeneity, permutation

Tensor = torch.Tensor


def _avg2(x: Tensor, height: int, width: int) -> Tensor:
    return F.adaptive_avg_pool2d(x, (height, width))


def _avg3(x: Tensor, depth: int, height: int, width: int) -> Tensor:
    return F.adaptive_avg_pool3d(x, (depth, height, width))


def _max2(x: Tensor, height: int, width: int) -> Tensor:
    return F.adaptive_max_pool2d(x, (height, width))


def _max3(x: Tensor, depth: int, height: int, width: int) -> Tensor:
    return F.adaptive_max_pool3d(x, (depth, height, width))


def _global_avg_1d(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool1d(x, 1)


def _global_avg(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, 1)


def _global_max(x: Tensor) -> Tensor:
    return x.amax((2, 3), keepdim=True)


def _global_max_1d(x: Tensor) -> Tensor:
    return x.amax(2, keepdim=True)


def _avg_max(x: Tensor) -> Tensor:
    return torch.stack((x.mean((2, 3)), x.amax((2, 3))), -1)


def _gem(x: Tensor, p: float, eps: float) -> Tensor:
    return F.adaptive_avg_pool2d(x.clamp(min=eps).pow(p), 1).pow(1 / p)


def _fractional(x: Tensor, samples: Tensor, kernel: int, height: int, width: int) -> Tensor:
    given = samples.to(x.dtype) / 8
    return F.fractional_max_pool2d(x, kernel, (height, width), _random_samples=given)


def _fractional_relu(x: Tensor, samples: Tensor, kernel: int, height: int, width: int) -> Tensor:
    return F.relu(_fractional(x, samples, kernel, height, width))


def _window(*pairs: tuple[str, str]) -> str:
    """Formula of the most positions in a window."""
    return " * ".join(f"(-(-{own} // {out}) + 1)" for own, out in pairs)


def _given(own: str, out: str, *names: str) -> dict[str, Any]:
    """Positions, their number in the output (1 to 8 along each dim), and what is summed."""
    pairs = list(zip(own.split(), out.split(), strict=True))
    return {
        "own": own,
        "out": out,
        "dims": positions(own, *(fixed(o, high=8) for o in out.split())),
        "reduction": _window(*pairs),
        "plains": tuple(plain(name, formula=f"{o}") for name, o in zip(names, out.split(), strict=True)),
    }


def _pool(name: str, summary: str, reference: Any, own: Any, **more: Any) -> Any:
    settings = {**own, **more}
    plains = settings.pop("plains", ())
    return pooled(name, summary, reference, settings.pop("own"), settings.pop("out"), *plains, **settings)


_LINE = _given("L", "P", "length")
_IMAGE = _given("H W", "P Q", "height", "width")
_VOLUME = _given("T H W", "O P Q", "depth", "height", "width")
_MEANS: Any = {"relations": LINEAR, "nonfinite": "channels"}
"""Means by matrix products, and differences of running sums, spread a NaN."""
_ALL: Any = {
    "own": "H W",
    "out": "one one",
    "dims": positions("H W"),
    "derive": {"one": 1},
    "reduction": "H * W",
}
_ALL_1D: Any = {**_ALL, "own": "L", "out": "one", "dims": positions("L"), "reduction": "L"}
_SHARED: Any = {**EXTREME, "backward_dtypes": (), "forward_only": ()}
_ANY_ORDER = (permutation("position_permutation", {0: 2}, {}),)
_FRACTION: Any = {
    # Starts are (n + sample) * S / 4 rounded down, which is exact in every type: no rounding moves a window.
    "dims": (
        *CHANNELS,
        size("U", high=128),
        size("V", high=128),
        fixed("K", low=2, high=3),
        fixed("S", low=5, high=7),
    ),
    "derive": {
        "two": 2,
        "P": "4 * U + 1",
        "Q": "4 * V + 1",
        "H": "S * U + K",
        "W": "S * V + K",
    },
    "over": (data("x", "B C H W", along="H W"), whole("samples", "B C two", 0, 8, dtype="int64")),
    **EXTREME,
    "dtypes": ("float32", "float64"),
    "nonfinite": "infinite",
}
_FRACTION_ARGS = (plain("kernel", formula="K"), plain("height", formula="P"), plain("width", formula="Q"))

TASKS = (
    _pool(
        "adaptive_avg_pool1d",
        "out[b, c, p] = the mean of window p of x[b, c]",
        F.adaptive_avg_pool1d,
        _LINE,
        **_MEANS,
    ),
    _pool("adaptive_avg_pool2d", "out[b, c, p, q] = the mean of window (p, q) of x[b, c]", _avg2, _IMAGE, **_MEANS),
    _pool(
        "adaptive_avg_pool3d",
        "out[b, c, o, p, q] = the mean of window (o, p, q) of x[b, c]",
        _avg3,
        _VOLUME,
        **_MEANS,
    ),
    _pool(
        "adaptive_max_pool1d",
        "out[b, c, p] = the maximum of window p of x[b, c]",
        F.adaptive_max_pool1d,
        _LINE,
        **EXTREME,
    ),
    _pool("adaptive_max_pool2d", "out[b, c, p, q] = the maximum of window (p, q) of x[b, c]", _max2, _IMAGE, **EXTREME),
    _pool(
        "adaptive_max_pool3d",
        "out[b, c, o, p, q] = the maximum of window (o, p, q) of x[b, c]",
        _max3,
        _VOLUME,
        **EXTREME,
    ),
    _pool(
        "global_avg_pool1d",
        "out[b, c, 0] = the mean of x[b, c]",
        _global_avg_1d,
        _ALL_1D,
        relations=(*LINEAR, *_ANY_ORDER),
    ),
    _pool(
        "global_avg_pool", "out[b, c, 0, 0] = the mean of x[b, c]", _global_avg, _ALL, relations=(*LINEAR, *_ANY_ORDER)
    ),
    _pool(
        "global_max_pool1d",
        "out[b, c, 0] = the maximum of x[b, c]; equal ones share the gradient equally",
        _global_max_1d,
        _ALL_1D,
        **_SHARED,
    ),
    _pool(
        "global_max_pool",
        "out[b, c, 0, 0] = the maximum of x[b, c]; equal ones share the gradient equally",
        _global_max,
        _ALL,
        **_SHARED,
    ),
    _pool(
        "global_avg_max_pool",
        "out[b, c] = (the mean of x[b, c], its maximum); equal ones share the gradient equally",
        _avg_max,
        {**_ALL, "over": (data("x", "B C H W", extreme="rows"),)},
        outputs=("B C two",),
        derive={**_ALL["derive"], "two": 2},
        level=2,
        source="model",
        relations=(homogeneity({0: 2.0}, {0: 2.0}), *_ANY_ORDER),
    ),
    _pool(
        "gem_pool",
        "out[b, c, 0, 0] = mean(max(x[b, c], eps) ** p) ** (1 / p)",
        _gem,
        {**_ALL, "plains": (plain("p", 3.0), plain("eps", 1e-3)), "over": (data("x", "B C H W", large_half=4.0),)},
        # longer sums of positive numbers hide the errors of narrow inputs
        dims=(*CHANNELS, size("H", high=32), size("W", high=32)),
        level=2,
        source="model",
        relations=_ANY_ORDER,
    ),
    pooled(
        "fractional_max_pool2d",
        "out[b, c, p, q] = max_{i, j} x[b, c, r(p, 1, height, H) + i, r(q, 0, width, W) + j]; r(n, k, N, L) = "
        "floor((n + u) * a) - floor(u * a) for u = samples[b, c, k] / 8, a = (L - kernel) / (N - 1); r = L - kernel "
        "for n = N - 1",
        _fractional,
        "H W",
        "P Q",
        *_FRACTION_ARGS,
        **_FRACTION,
    ),
    pooled(
        "fractional_max_pool2d_relu",
        "out = max(0, fractional_max_pool2d(x, samples, kernel, height, width))",
        _fractional_relu,
        "H W",
        "P Q",
        *_FRACTION_ARGS,
        level=2,
        **_FRACTION,
    ),
)
