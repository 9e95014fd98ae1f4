"""Short chains of operators that a good kernel computes in one pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

from kerneleval.tasks.define import FAR_BELOW, MOST_NAMED, ROWS, bias, data, gain, index, operator, plain, size, weight
from kerneleval.tasks.relations import permutation, resampling, shift


def _linear_bias_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, weight, bias))


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return F.rms_norm(total, total.shape[-1:], weight, eps), total


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up


def _softmax_cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits, targets, reduction="none")


def _by_log_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """As kernels do that keep one number a row for the backward: its gradients hold the rounding of a large one."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (torch.logsumexp(wide, -1) - wide.gather(1, targets[:, None]).squeeze(1)).to(logits.dtype)


TASKS = (
    operator(
        "linear_bias_gelu",
        "fused",
        "out = gelu(x weight^T + bias), exact (erf)",
        level=2,
        source="model",
        dims=(size("M"), size("N"), size("K")),
        args=(data("x", "M K"), weight("weight", "N K", fan_in="K"), bias("N")),
        out=("M N",),
        reference=_linear_bias_gelu,
        nonfinite=False,  # as matmul
        flops="2 * M * N * K + 6 * M * N",
        reduction="K",
        normwise=True,
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0}, {0: 0}),
            permutation("feature_permutation", {1: 0, 2: 0}, {0: 1}),
            permutation("contraction_order", {0: 1, 1: 1}, {}),
            resampling("row_resampling", {0: 0}, {0: 0}),
        ),
    ),
    operator(
        "add_rms_norm",
        "fused",
        "s = x + residual; out = (s / sqrt(mean(s ** 2) + eps) * weight, s), mean over the last dim",
        level=2,
        source="vllm",
        dims=ROWS,
        args=(
            data("x", "M N", large_half=1024.0),
            data("residual", "M N", large_half=1024.0),
            gain("weight", "N"),
            plain("eps", 1e-6),
        ),
        out=("M N", "M N"),
        folded="M",
        reference=_add_rms_norm,
        flops="5 * M * N",
        reduction="N",
        where="N >= 4",  # as in tasks/operators/normalization/normalization.py
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0, 1: 0}, {0: 0, 1: 0}),
            permutation("feature_permutation", {0: 1, 1: 1, 2: 0}, {0: 1, 1: 1}),
            resampling("row_resampling", {0: 0, 1: 0}, {0: 0, 1: 0}),
        ),
    ),
    operator(
        "swiglu",
        "fused",
        "out = silu(gate) * up = gate * sigmoid(gate) * up",
        level=2,
        source="vllm",
        dims=ROWS,
        args=(data("gate", "M N"), data("up", "M N")),
        out=("M N",),
        folded="M",
        reference=_swiglu,
        flops="5 * M * N",
        nonfinite="nan",
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),
            permutation("column_permutation", {0: 1, 1: 1}, {0: 1}),
            resampling("row_resampling", {0: 0, 1: 0}, {0: 0}),
        ),
    ),
    operator(
        "softmax_cross_entropy",
        "fused",
        "out[m] = log sum_n exp(logits[m, n]) - logits[m, targets[m]], one loss a row",
        level=2,
        source="aten",
        dims=(size("M"), size("N", long=MOST_NAMED)),
        args=(
            data("logits", "M N", common=f"{FAR_BELOW}", nonfinite="masked_nan", extreme="rows"),
            index("targets", "M", high="max(1, N)"),
        ),
        out=("M",),
        reference=_softmax_cross_entropy,
        unfused=(_by_log_sum,),
        in_type=False,
        flops="4 * M * N + M",
        reduction="N",
        where="N > 0",
        empty=True,
        relations=(
            permutation("row_permutation", {0: 0, 1: 0}, {0: 0}),
            resampling("row_resampling", {0: 0, 1: 0}, {0: 0}),
            shift("shift_invariance", 0, False),
        ),
    ),
)
