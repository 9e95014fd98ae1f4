"""Fusions of layers that are no chains of one tensor: two products, a step that takes the input again, two outputs."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import (
    FAR_BELOW,
    ROWS,
    bias,
    data,
    fixed,
    index,
    mask,
    operator,
    plain,
    products_below,
    size,
    weight,
    whole,
)
from kerneleval.tasks.operators.gemm.gemm import product
from kerneleval.tasks.pointwise import FLAT
from kerneleval.tasks.relations import permutation, resampling

Tensor = torch.Tensor


def _linear_sub_mean_gelu_add(x: Tensor, weight: Tensor, bias: Tensor, subtract: Tensor) -> Tensor:
    return F.gelu((F.linear(x, weight, bias) - subtract).mean(1, keepdim=True)) + x


def _linear_sigmoid_linear_logsumexp(
    x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor
) -> Tensor:
    return torch.logsumexp(F.linear(torch.sigmoid(F.linear(x, weight1, bias1)), weight2, bias2), 1)


def _cross_entropy_softmax_layer_norm(logits: Tensor, targets: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    shape = logits.shape[-1:]
    return F.cross_entropy(logits, targets, reduction="none"), F.layer_norm(F.softmax(logits, -1), shape, eps=eps)


def _exponentials_off(logits: Tensor, targets: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The same by exponentials that are a unit off in turn up and down, as far as those of GPUs may be: in fp32, in
    which half types are computed too.
    """
    loss, _ = _cross_entropy_softmax_layer_norm(logits, targets, eps)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    turns = 1 - 2 * (torch.arange(logits.shape[-1], device=logits.device) % 2)
    exponentials = torch.exp(wide - wide.amax(-1, keepdim=True).detach()) * (1 + torch.finfo(wide.dtype).eps * turns)
    weights = exponentials / exponentials.sum(-1, keepdim=True)
    return loss, F.layer_norm(weights, logits.shape[-1:], eps=eps).to(logits.dtype)


def _dropped(x: Tensor, keep: Tensor, p: float) -> Tensor:
    return torch.where(keep, x, 0) / (1 - p)


def _mul_add_log_softmax_dropout_bmm(
    x: Tensor, y: Tensor, other: Tensor, keep: Tensor, mat2: Tensor, p: float
) -> Tensor:
    return torch.bmm(_dropped(F.log_softmax(x * y + other, -1), keep, p), mat2)


def _transformer_block(
    x: Tensor, weight1: Tensor, keep: Tensor, weight2: Tensor, residual: Tensor, p: float, eps: float
) -> Tensor:
    found = _dropped(F.softmax(x @ weight1, -1), keep, p) @ weight2
    return F.layer_norm(found + residual, residual.shape[-1:], eps=eps)


def _multiply_symmetric(a: Tensor, b: Tensor, c: Tensor, alpha: float, beta: float) -> Tensor:
    c = torch.addmm(c, a, b, beta=beta, alpha=alpha)
    return torch.addmm(c, c, c.mT, beta=beta, alpha=alpha)


def _distances_in_unit_rows(x: Tensor, y: Tensor, eps: float) -> Tensor:
    return F.normalize(torch.linalg.vector_norm(x - y, dim=-1) + eps)


def _spectral_radius(a: Tensor) -> Tensor:
    first = torch.zeros_like(a[0])
    first[0, 0] = 2.0
    found: Tensor = torch.linalg.eigvals(a + first).abs().amax(-1)
    return found


def _gelu_int8(x: Tensor) -> Tensor:
    return F.gelu(x.float()).to(torch.int8)


_FUSED: Any = {"level": 2, "source": "model", "nonfinite": False, "dtypes": ("float32",)}
"""In half types the outputs hardly depend on some of the arguments."""
_SCALARS = (plain("alpha", -1.25), plain("beta", 0.75))
_EPS = plain("eps", 1e-5)
_FEWER: Any = {"large_half": 8.0, "large_half_backward": 4.0}  # products of products stay within float16
_LINEAR = (data("x", "M K"), weight("weight", "O K", fan_in="K"), bias("O"), weight("subtract", "O"))
_TWO_LINEAR = (
    data("x", "M K"),
    weight("weight1", "H K", fan_in="K"),
    weight("bias1", "H"),
    weight("weight2", "N H", fan_in="H"),
    weight("bias2", "N"),
)
_CLASSES = (data("logits", "M N", common=f"{FAR_BELOW}"), index("targets", "M", high="N"), _EPS)
_PRODUCT = (
    data("x", "B M K"),
    data("y", "B M K"),
    data("other", "B M K", common=FAR_BELOW),
    mask("keep", "B M K"),
    data("mat2", "B K N", fan_in="K"),
    plain("p", 0.3),
)
_BLOCK = (
    *products_below(data("x", "M K"), weight("weight1", "K H", fan_in="K"), over="K"),
    mask("keep", "M H"),
    weight("weight2", "H N"),
    data("residual", "M N", along="N"),
    plain("p", 0.3),
    _EPS,
)

TASKS = (
    operator(
        "linear_sub_mean_gelu_add",
        "fused",
        "out[m] = gelu(mean_o (x weight^T + bias - subtract)[m, o]) + x[m]",
        dims=(size("M"), size("O", low=4), size("K", low=4)),
        args=_LINEAR,
        out=("M K",),
        reference=_linear_sub_mean_gelu_add,
        flops="M * (2 * O * K + 3 * O + K)",
        reduction="K * O",
        normwise=True,
        relations=(permutation("batch_permutation", {0: 0}, {0: 0}), resampling("batch_resampling", {0: 0}, {0: 0})),
        complexity=3,
        **_FUSED,
    ),
    operator(
        "linear_sigmoid_linear_logsumexp",
        "fused",
        "out[m] = log sum_n exp(y[m, n]), y = sigmoid(x weight1^T + bias1) weight2^T + bias2",
        dims=(size("M"), size("N", low=2), size("K", low=4), size("H", low=4)),
        args=_TWO_LINEAR,
        out=("M",),
        reference=_linear_sigmoid_linear_logsumexp,
        flops="M * (H * (2 * K + 4) + N * (2 * H + 5))",
        reduction="max(K, H, N)",
        normwise=True,
        relations=(permutation("batch_permutation", {0: 0}, {0: 0}), resampling("batch_resampling", {0: 0}, {0: 0})),
        complexity=3,
        **_FUSED,
    ),
    operator(
        "cross_entropy_softmax_layer_norm",
        "fused",
        "out0[m] = log(sum_n exp(logits[m, n])) - logits[m, targets[m]], out1[m] = layer_norm(softmax(logits[m]))",
        dims=ROWS,
        args=_CLASSES,
        out=("M", "M N"),
        reference=_cross_entropy_softmax_layer_norm,
        unfused=(_exponentials_off,),  # of weights that are nearly equal the norm leaves what is rounding
        in_type=False,
        flops="14 * M * N",
        reduction="N",
        where="M > 0 and N > 3",
        without=("constant", "zeros"),
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, {0: 0, 1: 0}),),
        complexity=2,
        **_FUSED,
    ),
    operator(
        "mul_add_log_softmax_dropout_bmm",
        "fused",
        "out[b] = d @ mat2[b], d = s / (1 - p) where keep, else 0, s = log_softmax(x[b] * y[b] + other[b])",
        dims=(fixed("B"), size("M"), size("N"), size("K", low=2)),
        args=_PRODUCT,
        out=("B M N",),
        reference=_mul_add_log_softmax_dropout_bmm,
        flops="B * M * K * (2 * N + 9)",
        reduction="K",
        normwise=True,
        relations=(resampling("batch_resampling", dict.fromkeys(range(5), 0), {0: 0}),),
        complexity=3,
        **_FUSED,
    ),
    operator(
        "softmax_dropout_linear_add_layer_norm",
        "fused",
        "out = layer_norm(d @ weight2 + residual), d = s / (1 - p) where keep, else 0, s = softmax(x @ weight1)",
        dims=(size("M"), size("N", low=4), size("K", low=4), size("H", low=4)),
        args=_BLOCK,
        out=("M N",),
        reference=_transformer_block,
        flops="M * (2 * K * H + 7 * H + 2 * H * N + 8 * N)",
        reduction="max(K, H, N)",
        normwise=True,
        without=("constant", "zeros"),
        rows=("far_mean",),
        forward_only=("far_mean",),
        relations=(resampling("batch_resampling", {0: 0, 2: 0, 4: 0}, {0: 0}),),
        complexity=3,
        **{**_FUSED, "level": 3},
    ),
    product(
        "matrix_multiply_symmetric",
        "out = alpha * c' @ c'.T + beta * c', c' = alpha * a @ b + beta * c",
        _multiply_symmetric,
        "N K",
        (
            data("a", "N K", **_FEWER),
            data("b", "K N", fan_in="K N", **_FEWER),
            data("c", "N N", fan_in="N", **_FEWER),
            *_SCALARS,
        ),
        "N N",
        "N K",
        flops="N * N * (2 * K + 2 * N + 6)",
        group="MatrixMultiply",
        level=2,
    ),
    operator(
        "pairwise_distance_in_unit_rows",
        "reduction",
        "out[m, n] = d[m, n] / max(|d[m]|, 1e-12), d[m, n] = |x[m, n] - y[m, n]| + eps, Euclidean norms",
        dims=(size("M"), size("N"), size("K", low=4, high=1024)),
        args=(data("x", "M N K", along="K"), data("y", "M N K", along="K"), plain("eps", 1e-6)),
        rows=("far_mean",),
        out=("M N",),
        reference=_distances_in_unit_rows,
        flops="M * N * (3 * K + 4)",
        reduction="K + N",
        gathered="K * N",
        where="M > 0 and N > 1",
        without=("constant", "zeros"),
        relations=(resampling("batch_resampling", {0: 0, 1: 0}, {0: 0}),),
        group="Normalization",
        complexity=2,
        **_FUSED,
    ),
    operator(
        "spectral_radius",
        "gemm",
        "out[b] = the largest |eigenvalue| of diag(2, 0, ... 0) + a[b]",
        dims=(size("B", high=1024), fixed("N", low=2, high=16)),  # of larger ones others come near it
        args=(data("a", "B N N", fan_in="sixteen", values="symmetric"),),
        out=("B",),
        reference=_spectral_radius,
        flops="10 * B * N ** 3",
        reduction="N",
        normwise=True,
        derive={"sixteen": 16},
        without=("outlier", "large_scale", "constant"),
        relations=(resampling("batch_resampling", {0: 0}, {0: 0}),),
        group="LinearAlgebra",
        dtypes=("float32",),
        nonfinite=False,
    ),
    operator(
        "gelu_int8",
        "elementwise",
        "out = gelu(x), exact (erf), without what is behind the point",
        dims=ROWS,
        args=(whole("x", "M N", -128, 128),),
        out=("M N",),
        reference=_gelu_int8,
        flops="6 * M * N",
        exact=True,
        empty=True,
        dtypes=("int8",),
        no_backward=FLAT,
        group="Activation",
    ),
)
