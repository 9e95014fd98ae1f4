"""What is computed by Fourier transforms: spectra, convolutions, filters, a differential equation."""

from __future__ import annotations

import math
from typing import Any

import torch

from kerneleval.tasks.define import data, fixed, plain, size, weight
from kerneleval.tasks.operators.transforms.fft import transform
from kerneleval.tasks.relations import homogeneity, resampling

Tensor = torch.Tensor
_BATCH = resampling("batch_resampling", {0: 0}, {0: 0})
_PAIR = (resampling("batch_resampling", {0: 0, 1: 0}, {0: 0}), homogeneity({0: 2.0, 1: -0.5}, {0: -1.0}))


def _power_spectrum(x: Tensor) -> Any:
    return torch.fft.rfft(x).abs().square()


def _envelope(x: Tensor) -> Any:
    n = x.shape[-1]
    k = torch.arange(n, device=x.device)
    ends = (k == 0) | (2 * k == n)
    weight = torch.where(ends, 1.0, torch.where(2 * k < n, 2.0, 0.0)).to(x.dtype)
    return torch.fft.ifft(torch.fft.fft(x) * weight).abs()


def _circular(x: Tensor, y: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y), x.shape[-1])


def _correlation(x: Tensor, y: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(y).conj(), x.shape[-1])


def _convolution(x: Tensor, y: Tensor) -> Any:
    n = x.shape[-1] + y.shape[-1] - 1
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(y, n), n)


def _causal(x: Tensor, kernel: Tensor) -> Any:
    n = 2 * x.shape[-1]
    return torch.fft.irfft(torch.fft.rfft(x, n) * torch.fft.rfft(kernel, n), n)[..., : x.shape[-1]].contiguous()


def _turned(x: Tensor) -> Tensor:
    """exp(-i pi k / 2 N) for k of the last dim."""
    angle = torch.arange(x.shape[-1], dtype=x.dtype, device=x.device) * (-math.pi / 2 / x.shape[-1])
    return torch.polar(torch.ones_like(angle), angle)


def _dct(x: Tensor) -> Any:
    order = torch.cat((x[..., ::2], x[..., 1::2].flip(-1)), -1)
    return (torch.fft.fft(order) * _turned(x)).real * 2


def _poisson(x: Tensor) -> Any:
    """Eigenvalues of the negative discrete Laplacian, plus 1."""

    def along(n: int) -> Tensor:
        return 2 - 2 * torch.cos(torch.arange(n, dtype=x.dtype, device=x.device) * (2 * math.pi / n))

    rows, columns = along(x.shape[-2]), along(x.shape[-1])[: x.shape[-1] // 2 + 1]
    return torch.fft.irfft2(torch.fft.rfft2(x) / (1 + rows[:, None] + columns), x.shape[-2:])


def _fourier_mix(x: Tensor) -> Any:
    return torch.fft.fft2(x).real.contiguous()


def _spectral_filter(x: Tensor, real: Tensor, imag: Tensor) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x) * torch.complex(real, imag), x.shape[-1])


def _spectrogram(x: Tensor, window: Tensor, hop: int) -> Any:
    # torch.stft takes wrong gradients of expanded inputs, of which as_strided sums the overlaps
    return torch.fft.rfft(x.unfold(-1, window.shape[-1], hop) * window).abs().square()


_FLOAT: Any = {"dtypes": ("float32", "float64")}
_CHAIN: Any = {**_FLOAT, "level": 2, "source": "model"}
_ROW, _IMAGE = data("x", "M N"), data("x", "M N K")
_HALF: Any = {"derive": {"half": "N // 2 + 1"}}

TASKS = (
    transform("dct", "out[m, k] = 2 sum_n x[m, n] * cos(pi k (2 n + 1) / 2 N)", _dct, (_ROW,), "M N", each=6, **_FLOAT),
    transform(
        "power_spectrum",
        "out[m, k] = |sum_n x[m, n] * exp(-2 pi i k n / N)| ** 2, k up to N / 2",
        _power_spectrum,
        (_ROW,),
        "M half",
        part=0.5,
        each=2,
        relations=(_BATCH, homogeneity({0: -2.0}, {0: 4.0})),
        **_HALF,
        **_CHAIN,
    ),
    transform(
        "spectrogram",
        "out[m, n, k] = |sum_w window[w] * x[m, n * hop + w] * exp(-2 pi i k w / W)| ** 2, k up to W / 2",
        _spectrogram,
        (data("x", "M length"), weight("window", "W", values="ones_normal"), plain("hop", formula="S")),
        "M N half",
        widths=(fixed("W", low=8, high=64, multiple_of=4), fixed("S", high=64)),
        derive={"half": "W // 2 + 1", "length": "W + (N - 1) * S + N % S"},  # a few numbers at the end are in no window
        where="min(M, N, W, S) > 0 and S <= W",
        flops="round(M * N * W * (2.5 * log2(W) + 3))",
        reduction="W",
        gathered="M * N",
        relations=(_BATCH, homogeneity({0: -2.0}, {0: 4.0})),
        **_CHAIN,
    ),
    transform(
        "hilbert_envelope",
        "out[m, n] = |x[m, n] + i h[m, n]|, h the Hilbert transform of x: frequencies above 0 twice, those below not",
        _envelope,
        (_ROW,),
        "M N",
        part=2,
        each=3,
        relations=(_BATCH, homogeneity({0: -2.0}, {0: 2.0})),
        **_CHAIN,
    ),
    transform(
        "circular_convolution",
        "out[m, n] = sum_k x[m, k] * y[m, (n - k) % N], by real transforms",
        _circular,
        (_ROW, data("y", "M N", fan_in="N")),
        "M N",
        part=1.5,
        each=3,
        relations=_PAIR,
        **_CHAIN,
    ),
    transform(
        "circular_correlation",
        "out[m, n] = sum_k x[m, (n + k) % N] * y[m, k], by real transforms",
        _correlation,
        (_ROW, data("y", "M N", fan_in="N")),
        "M N",
        part=1.5,
        each=3,
        relations=_PAIR,
        **_CHAIN,
    ),
    transform(
        "fft_convolution",
        "out[m, n] = sum_k x[m, n - k] * y[m, k], of N + K - 1 numbers, by real transforms",
        _convolution,
        (_ROW, data("y", "M K", fan_in="K")),
        "M full",
        widths=(size("K", high=1024),),
        derive={"full": "N + K - 1"},
        flops="round(M * full * (7.5 * log2(full + 1) + 3))",
        relations=_PAIR,
        **_CHAIN,
    ),
    transform(
        "long_convolution",
        "out[m, n] = sum_{k <= n} x[m, n - k] * kernel[m, k], by real transforms of twice the length",
        _causal,
        (_ROW, data("kernel", "M N", fan_in="N")),
        "M N",
        part=3,
        each=9,
        relations=_PAIR,
        **_CHAIN,
    ),
    transform(
        "spectral_filter",
        "out[m] = the real signal with the spectrum rfft(x[m]) * (real + i imag)",
        _spectral_filter,
        (_ROW, data("real", "half"), data("imag", "half")),
        "M N",
        each=3,
        gathered="M * N",
        relations=(_BATCH, homogeneity({0: -2.0}, {0: -2.0})),
        **_HALF,
        **_CHAIN,
    ),
    transform("fourier_mix", "out[m] = the real part of fft2(x[m])", _fourier_mix, (_IMAGE,), "M N K", "N K", **_CHAIN),
    transform(
        "poisson_fft",
        "out[m] = u such that 5 u[n, k] - u[n - 1, k] - u[n + 1, k] - u[n, k - 1] - u[n, k + 1] = x[m, n, k], periodic",
        _poisson,
        (_IMAGE,),
        "M N K",
        "N K",
        each=2,
        **_CHAIN,
    ),
)
