"""Fourier transforms. Gradients are PyTorch's, of a real loss.

``flops`` counts a complex transform of N numbers as 5 N log2(N), a real one as half of that, as is usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kerneleval.records import Arg, Plain, Task, product_text
from kerneleval.tasks.define import data, fixed, operator, plain, size
from kerneleval.tasks.relations import additivity, homogeneity, resampling

__all__ = ["transform"]

Tensor = torch.Tensor
_BATCH = resampling("batch_resampling", {0: 0}, {0: 0})
_LINEAR: Any = {"relations": (_BATCH, additivity(0))}


def transform(
    name: str,
    summary: str,
    reference: Callable[..., Any],
    args: tuple[Arg | Plain, ...],
    out: str,
    over: str = "N",
    part: float = 1.0,
    each: int = 0,
    **more: Any,
) -> Task:
    """A task on M signals over the dims ``over``.

    Args:
        name: unique slug.
        summary: one line with the formula.
        reference: the operator in plain PyTorch.
        args: the arguments, in the order of the call.
        out: shape of the output.
        over: names of the dims transformed.
        part: complex transforms that it takes.
        each: operations for an element beside.
        more: as ``define.operator`` takes it.
    """
    axes = over.split()
    dims = (size("M", high=4096), size("N")) if len(axes) == 1 else (fixed("M", high=16), *(size(a) for a in axes))

    count = product_text(over)
    settings: dict[str, Any] = {
        "relations": (_BATCH, homogeneity({0: -2.0}, {0: -2.0})),
        "flops": f"max(1, round(M * {count} * (5 * {part} * log2(max({count}, 2)) + {each})))",
        "reduction": count,
        "nonfinite": False,
        "complexity": 2,
        "dtypes": ("complex64", "complex128"),
        **more,
    }
    return operator(
        name,
        "reduction",
        summary,
        dims=(*dims, *settings.pop("widths", ())),
        args=args,
        out=(out,),
        reference=reference,
        normwise=True,  # stable in the norm of the signal
        group="Math",
        **settings,
    )


def _fft(x: Tensor) -> Any:
    return torch.fft.fft(x)


def _ifft(x: Tensor) -> Any:
    return torch.fft.ifft(x)


def _fft_ortho(x: Tensor) -> Any:
    return torch.fft.fft(x, norm="ortho")


def _fft2(x: Tensor) -> Any:
    return torch.fft.fft2(x)


def _ifft2(x: Tensor) -> Any:
    return torch.fft.ifft2(x)


def _fftn(x: Tensor) -> Any:
    return torch.fft.fftn(x, dim=(1, 2, 3))


def _rfft(x: Tensor) -> Any:
    return torch.fft.rfft(x)


def _rfft2(x: Tensor) -> Any:
    return torch.fft.rfft2(x)


def _hfft(x: Tensor, n: int) -> Any:
    return torch.fft.hfft(x, n)


def _ihfft(x: Tensor) -> Any:
    return torch.fft.ihfft(x)


def _irfft(x: Tensor, n: int) -> Any:
    return torch.fft.irfft(x, n)


def _fftshift(x: Tensor) -> Any:
    return torch.fft.fftshift(x, dim=(1, 2))


def _ifftshift(x: Tensor) -> Any:
    return torch.fft.ifftshift(x, dim=(1, 2))


_MOVED: Any = {
    "dtypes": ("float32", "float16", "bfloat16", "complex64"),
    "exact": True,
    "nonfinite": True,
    "empty": True,
    "flops": "M * N * K",
    "complexity": 1,
}
_ROW, _IMAGE = data("x", "M N"), data("x", "M N K")
_HALF: Any = {"derive": {"half": "N // 2 + 1"}}
_HALF_IMAGE: Any = {"derive": {"half": "K // 2 + 1"}}

TASKS = (
    transform("fft", "out[m, k] = sum_n x[m, n] * exp(-2 pi i k n / N)", _fft, (_ROW,), "M N"),
    transform("ifft", "out[m, k] = sum_n x[m, n] * exp(2 pi i k n / N) / N", _ifft, (_ROW,), "M N"),
    transform("fft_ortho", "out[m, k] = sum_n x[m, n] * exp(-2 pi i k n / N) / sqrt(N)", _fft_ortho, (_ROW,), "M N"),
    transform(
        "fft2",
        "out[m, p, q] = sum_{n, k} x[m, n, k] * exp(-2 pi i (p n / N + q k / K))",
        _fft2,
        (_IMAGE,),
        "M N K",
        "N K",
    ),
    transform(
        "ifft2",
        "out[m, p, q] = sum_{n, k} x[m, n, k] * exp(2 pi i (p n / N + q k / K)) / (N K)",
        _ifft2,
        (_IMAGE,),
        "M N K",
        "N K",
    ),
    transform(
        "fftn",
        "out[m] = the Fourier transform of x[m] over its three dims",
        _fftn,
        (data("x", "M N K L"),),
        "M N K L",
        "N K L",
    ),
    transform(
        "rfft",
        "out[m, k] = sum_n x[m, n] * exp(-2 pi i k n / N), x real, k up to N / 2",
        _rfft,
        (_ROW,),
        "M half: complex64",
        part=0.5,
        dtypes=("float32",),
        **_HALF,
        **_LINEAR,
    ),
    transform(
        "rfft2",
        "out[m, p, q] = sum_{n, k} x[m, n, k] * exp(-2 pi i (p n / N + q k / K)), x real, q up to K / 2",
        _rfft2,
        (_IMAGE,),
        "M N half: complex64",
        "N K",
        part=0.5,
        dtypes=("float32",),
        **_HALF_IMAGE,
        **_LINEAR,
    ),
    transform(
        "irfft",
        "out[m, n] = the real signal of n numbers with the spectrum x[m]; imaginary parts that it has not are ignored",
        _irfft,
        (data("x", "M half"), plain("n", formula="N")),
        "M N: float32",
        part=0.5,
        dtypes=("complex64",),
        **_HALF,
    ),
    transform(
        "hfft",
        "out[m, k] = sum over n of a Hermitian signal, of which x[m] is the half, times exp(-2 pi i k n / N)",
        _hfft,
        (data("x", "M half"), plain("n", formula="N")),
        "M N: float32",
        part=0.5,
        dtypes=("complex64",),
        **_HALF,
    ),
    transform(
        "ihfft",
        "out[m, k] = sum_n x[m, n] * exp(2 pi i k n / N) / N, x real, k up to N / 2",
        _ihfft,
        (_ROW,),
        "M half: complex64",
        part=0.5,
        dtypes=("float32",),
        **_HALF,
        **_LINEAR,
    ),
    transform(
        "fftshift",
        "out[m, (n + N // 2) % N, (k + K // 2) % K] = x[m, n, k]",
        _fftshift,
        (_IMAGE,),
        "M N K",
        "N K",
        **_MOVED,
    ),
    transform(
        "ifftshift",
        "out[m, n, k] = x[m, (n + N // 2) % N, (k + K // 2) % K]",
        _ifftshift,
        (_IMAGE,),
        "M N K",
        "N K",
        **_MOVED,
    ),
)
