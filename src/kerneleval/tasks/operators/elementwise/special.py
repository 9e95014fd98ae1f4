"""Special functions, over (M, N). PyTorch has most of them in fp32 and fp64 alone, and derivatives of few."""

from __future__ import annotations

from typing import Any

import torch

from kerneleval.tasks.define import data, plain
from kerneleval.tasks.pointwise import EVEN, ODD, pointwise

_WIDE: Any = {"dtypes": ("float32", "float64")}
_PLAIN: Any = {**_WIDE, "no_backward": "PyTorch has no derivative of it"}
_NEAR: Any = {"without": ("large_scale", "outlier")}
"""Numbers of a few hundred and more overflow, or oscillate within one rounding."""


def _polygamma(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.polygamma(n, x)


def _polynomial(function: Any) -> Any:
    def of_degree(x: torch.Tensor, n: int) -> Any:
        return function(x, n)

    return of_degree


def _zeta(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.special.zeta(x, y)


_UNSET = ("chebyshev_polynomial_u", "laguerre_polynomial_l", "legendre_polynomial_p")
"""Polynomials of which PyTorch gives out unset memory where x is NaN."""
_POLYNOMIALS = (
    ("chebyshev_polynomial_t", "T_n(x), Chebyshev's of the first kind", torch.special.chebyshev_polynomial_t, 5),
    ("chebyshev_polynomial_u", "U_n(x), Chebyshev's of the second kind", torch.special.chebyshev_polynomial_u, 4),
    ("hermite_polynomial_h", "H_n(x), Hermite's of the physicists", torch.special.hermite_polynomial_h, 4),
    ("hermite_polynomial_he", "He_n(x), Hermite's of probability", torch.special.hermite_polynomial_he, 5),
    ("laguerre_polynomial_l", "L_n(x), Laguerre's", torch.special.laguerre_polynomial_l, 4),
    ("legendre_polynomial_p", "P_n(x), Legendre's", torch.special.legendre_polynomial_p, 5),
)

TASKS = (
    pointwise(
        "digamma",
        "out = the logarithmic derivative of the gamma function, x > 0",
        torch.digamma,
        16,
        values="positive",
        without=("zeros",),
    ),
    pointwise("gammaln", "out = log |Gamma(x)|, x > 0", torch.lgamma, 16, values="positive", **_WIDE),
    pointwise(
        "polygamma",
        "out = the n-th derivative of digamma, x > 0",
        _polygamma,
        32,
        plain("n", 2, among=(1, 3)),
        values="positive",
        without=("large_scale", "small_scale"),
        **_WIDE,
    ),
    pointwise(
        "i0", "out = I_0(x), the modified Bessel function", torch.special.i0, 30, relations=(EVEN,), **_WIDE, **_NEAR
    ),
    pointwise("i0e", "out = e ** -|x| * I_0(x)", torch.special.i0e, 30, relations=(EVEN,), **_WIDE),
    pointwise(
        "i1", "out = I_1(x), the modified Bessel function", torch.special.i1, 30, relations=(ODD,), **_WIDE, **_NEAR
    ),
    pointwise("i1e", "out = e ** -|x| * I_1(x)", torch.special.i1e, 30, relations=(ODD,), **_WIDE),
    pointwise("bessel_j0", "out = J_0(x)", torch.special.bessel_j0, 30, relations=(EVEN,), **_PLAIN, **_NEAR),
    pointwise("bessel_j1", "out = J_1(x)", torch.special.bessel_j1, 30, relations=(ODD,), **_PLAIN, **_NEAR),
    pointwise("bessel_y0", "out = Y_0(x), x > 0", torch.special.bessel_y0, 30, values="positive", **_PLAIN, **_NEAR),
    pointwise("bessel_y1", "out = Y_1(x), x > 0", torch.special.bessel_y1, 30, values="positive", **_PLAIN, **_NEAR),
    pointwise(
        "modified_bessel_k0",
        "out = K_0(x), x > 0",
        torch.special.modified_bessel_k0,
        30,
        values="positive",
        **_PLAIN,
        **_NEAR,
    ),
    pointwise(
        "modified_bessel_k1",
        "out = K_1(x), x > 0",
        torch.special.modified_bessel_k1,
        30,
        values="positive",
        **_PLAIN,
        **_NEAR,
    ),
    pointwise(
        "spherical_bessel_j0",
        "out = sin(x) / x, 1 at 0",
        torch.special.spherical_bessel_j0,
        8,
        relations=(EVEN,),
        **_PLAIN,
        **_NEAR,
    ),
    pointwise("airy_ai", "out = Ai(x)", torch.special.airy_ai, 40, **_PLAIN, **_NEAR),
    pointwise(
        "zeta",
        "out = the sum over k >= 0 of (k + y) ** -x, x > 1, y > 0",
        _zeta,
        40,
        over=(
            data("x", "M N", values="above_one"),
            data("y", "M N", values="positive"),
        ),
        without=("zeros", "small_scale", "large_scale", "outlier"),
        **_PLAIN,
    ),
    pointwise("entr", "out = -x * log(x), x >= 0; 0 where x is", torch.special.entr, 2, values="nonnegative"),
    pointwise("ndtr", "out = Phi(x), the normal distribution function", torch.special.ndtr, 3),
    pointwise(
        "ndtri",
        "out = the x with Phi(x) = p, 0 < p < 1",
        torch.special.ndtri,
        24,
        values="uniform",
        without=("zeros", "small_scale"),
        **_WIDE,
    ),
    pointwise(
        "log_ndtr",
        "out = log Phi(x), exact far below zero",
        torch.special.log_ndtr,
        6,
        over=(data("x", "M N", common=-40.0),),
        **_WIDE,
        **_NEAR,
    ),
    pointwise("erfcx", "out = e ** (x ** 2) * erfc(x), x > 0", torch.special.erfcx, 30, values="positive", **_WIDE),
    *(
        pointwise(
            name,
            f"out = {text}",
            _polynomial(function),
            each * 5,
            plain("n", 5, among=(2, 3, 4, 6)),
            values="symmetric",
            without=("nonfinite",) if name in _UNSET else (),
            **_PLAIN,
        )
        for name, text, function, each in _POLYNOMIALS
    ),
)
