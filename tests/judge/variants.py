"""Candidates for the comparison's tests: honest ones that compute otherwise, and cheats, as plain functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name

# --------------------------------------------------------------------------------------------------------------------
# Honest: other orders, other formulas, other roundings. All are given and give fp32 unless said otherwise.
# --------------------------------------------------------------------------------------------------------------------


class _Sequential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.shape = x.shape
        if x.shape[-1] == 0:
            return x.sum(-1)
        with np.errstate(invalid="ignore"):
            return torch.from_numpy(np.add.accumulate(x.detach().numpy(), axis=-1, dtype=np.float32)[..., -1].copy())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad[..., None].expand(ctx.shape)


def sequential_sum(x: torch.Tensor) -> torch.Tensor:
    """One running fp32 sum from left to right, as a single thread does it."""
    return _Sequential.apply(x)


def reversed_sum(x: torch.Tensor) -> torch.Tensor:
    return sequential_sum(x.flip(-1))


def strided_sum(x: torch.Tensor, threads: int = 32) -> torch.Tensor:
    """Each of 32 threads sums every 32nd element, then they are added one by one."""
    parts = [sequential_sum(x[..., i::threads].contiguous()) for i in range(max(1, min(threads, x.shape[-1])))]
    return sequential_sum(torch.stack(parts, dim=-1))


def sequential_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One fp32 accumulator over k, without fused multiply-add."""
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = torch.zeros(*batch, a.shape[-2], b.shape[-1])
    for k in range(a.shape[-1]):
        out += a[..., :, k : k + 1] * b[..., k : k + 1, :]
    return out


def split_k(a: torch.Tensor, b: torch.Tensor, pieces: int = 8) -> torch.Tensor:
    parts = [x @ y for x, y in zip(a.chunk(pieces, -1), b.chunk(pieces, -2), strict=True)]
    return sum(parts[1:], parts[0])


def _cut(values: torch.Tensor, bits: int, sizes: torch.Tensor) -> torch.Tensor:
    """fp64 numbers cut towards zero to so many bits of ``sizes``."""
    unit = torch.ldexp(torch.ones_like(sizes), torch.frexp(sizes).exponent - bits)
    return (values / unit).trunc_() * unit


def tensor_core(a: torch.Tensor, b: torch.Tensor, block: int = 8, guard: int = 2) -> torch.Tensor:
    """A product as tensor cores sum it. Exact terms, eight at a time, are aligned to the largest of them and of the
    accumulator, and cut to 24 bits and two more; then the accumulator to 24. (An H200 is as far off with TF32 numbers:
    relative errors of 9.8e-6 at K = 4096 and 1.5e-4 at 65,536, all towards zero.)
    """
    out = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], block):
        products = a[:, k : k + block, None].double() * b[None, k : k + block].double()
        terms = torch.cat([out[:, None], products], 1)
        out = _cut(terms, 24 + guard, terms.abs().amax(1, keepdim=True)).sum(1)
        out = _cut(out, 24, out)
    return out.float()


def three_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Both matrices as sums of two TF32 ones, and three products on tensor cores, as cuBLAS is called for it."""
    (a1, b1), (a2, b2) = (tf32(a), tf32(b)), (tf32(a - tf32(a)), tf32(b - tf32(b)))
    return tensor_core(a2, b1) + tensor_core(a1, b2) + tensor_core(a1, b1)


def strassen(a: torch.Tensor, b: torch.Tensor, levels: int = 2) -> torch.Tensor:
    """Seven products for eight, ``levels`` deep, in fp32; sums of halves are kept in the type of the arguments."""
    (m, k), n = (size // 2 for size in a.shape), b.shape[1] // 2
    if levels == 0 or min(m, k, n) < 8:
        return a.float() @ b.float()
    a11, a12, a21, a22 = a[:m, :k], a[:m, k : 2 * k], a[m : 2 * m, :k], a[m : 2 * m, k : 2 * k]
    b11, b12, b21, b22 = b[:k, :n], b[:k, n : 2 * n], b[k : 2 * k, :n], b[k : 2 * k, n : 2 * n]
    left = (a11 + a22, a21 + a22, a11, a22, a11 + a12, a21 - a11, a12 - a22)
    right = (b11 + b22, b11, b12 - b22, b21 - b11, b22, b11 + b12, b21 + b22)
    p1, p2, p3, p4, p5, p6, p7 = (strassen(x, y, levels - 1) for x, y in zip(left, right, strict=True))
    top = torch.cat([p1 + p4 - p5 + p7, p3 + p5], dim=1)
    bottom = torch.cat([p2 + p4, p1 - p2 + p3 + p6], dim=1)
    inner = torch.cat([top, bottom]) + a[: 2 * m, 2 * k :].float() @ b[2 * k :, : 2 * n].float()
    wide = torch.cat([inner, a[: 2 * m].float() @ b[:, 2 * n :].float()], dim=1)
    return torch.cat([wide, a[2 * m :].float() @ b.float()])


_WINOGRAD = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        [
            [1 / 4, 0, 0],
            [-1 / 6, -1 / 6, -1 / 6],
            [-1 / 6, 1 / 6, -1 / 6],
            [1 / 24, 1 / 12, 1 / 6],
            [1 / 24, -1 / 12, 1 / 6],
            [0, 0, 1],
        ],
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}
"""Tile -> (input, kernel, output) transforms of F(tile x tile, 3 x 3) (Lavin and Gray 2015, arXiv:1509.09308)."""


def winograd(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, padding: int, tile: int) -> torch.Tensor:
    """3 x 3 convolution of stride 1 by Winograd's algorithm in fp32; transformed operands are kept in the type of x."""
    of_input, of_kernel, of_output = (torch.tensor(t, dtype=torch.float32) for t in _WINOGRAD[tile])
    height, width = (size + 2 * padding - 2 for size in x.shape[2:])
    rows, columns = (math.ceil(size / tile) * tile + 2 for size in (height, width))
    low, right = rows - x.shape[2] - padding, columns - x.shape[3] - padding
    patches = F.pad(x.float(), (padding, right, padding, low)).unfold(2, tile + 2, tile).unfold(3, tile + 2, tile)
    inputs = (of_input @ patches @ of_input.T).to(x.dtype).float()
    kernels = (of_kernel @ weight.float() @ of_kernel.T).to(x.dtype).float()
    products = torch.einsum("ocij,bcpqij->bopqij", kernels, inputs)
    out = (of_output @ products @ of_output.T).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    return out[:, :, :height, :width] + bias.float()[:, None, None]


def fast_exp(x: torch.Tensor) -> torch.Tensor:
    """exp2(x * log2 e) as GPUs have it: the product is rounded, and exp2 is right to 2 units."""
    y = torch.exp2(x * np.float32(math.log2(math.e)))
    wiggle = 1 + 2.0**-23 * torch.sin(1e4 * x.detach().clamp(-1e3, 1e3))
    return y * wiggle


def fast_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + fast_exp(-x))


def erf_series(x: torch.Tensor) -> torch.Tensor:
    """Abramowitz and Stegun 7.1.26: absolute error 1.5e-7."""
    t = 1 / (1 + 0.3275911 * x.abs())
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return torch.sign(x) * (1 - poly * fast_exp(-x * x))


def gelu_series(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + erf_series(x * 0.7071067811865476))


def gelu_erfc(x: torch.Tensor) -> torch.Tensor:
    """Without the cancellation that 1 + erf has for negative x."""
    return 0.5 * x * torch.special.erfc(-x * 0.7071067811865476)


def online_logsumexp(x: torch.Tensor, block: int = 16) -> torch.Tensor:
    top = torch.full(x.shape[:-1], -torch.inf)
    total = torch.zeros(x.shape[:-1])
    for part in x.split(block, dim=-1):
        new = torch.maximum(top, part.detach().amax(-1))
        base = new.masked_fill(new == -torch.inf, 0)
        total = total * fast_exp(top - base) + sequential_sum(fast_exp(part - base[..., None]))
        top = new
    return base + torch.log(total)


def shifted_logsumexp(x: torch.Tensor) -> torch.Tensor:
    top = x.detach().amax(-1)
    top = top.masked_fill(top == -torch.inf, 0)
    return torch.log(torch.exp(x - top[:, None]).sum(-1)) + top


def cross_entropy(x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return online_logsumexp(x) - x.gather(-1, targets[:, None])[:, 0]


def one_pass_moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and E[x^2] - E[x]^2, which cancels, as most small kernels do it."""
    n = x.shape[-1]
    mean = sequential_sum(x)[..., None] / n
    return mean, (sequential_sum(x * x)[..., None] / n - mean * mean).clamp_min(0)


def layer_norm_one_pass(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    mean, variance = one_pass_moments(x)
    return (x - mean) * torch.rsqrt(variance + eps) * weight + bias


def layer_norm_folded(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    """x * s + t with s and t of a row computed first."""
    mean, variance = one_pass_moments(x)
    scale = torch.rsqrt(variance + eps)
    return (x * scale - mean * scale) * weight + bias


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(sequential_sum(x * x)[..., None] / x.shape[-1] + eps) * weight


def batch_norm_one_pass(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float) -> torch.Tensor:
    channels = x.transpose(0, 1).reshape(x.shape[1], -1).contiguous()
    mean, variance = one_pass_moments(channels)
    scale = torch.rsqrt(variance + eps)
    return (x - mean[None]) * (scale * weight[:, None])[None] + bias[None, :, None]


def group_norm_one_pass(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int, eps: float
) -> torch.Tensor:
    rows = x.reshape(x.shape[0], groups, -1)
    mean, variance = one_pass_moments(rows.contiguous())
    out = ((rows - mean) * torch.rsqrt(variance + eps)).view_as(x)
    return out * weight[None, :, None] + bias[None, :, None]


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, mask: torch.Tensor | None = None, block: int = 16
) -> torch.Tensor:
    """Online softmax over blocks of keys."""
    top = torch.full(q.shape[:-1], -torch.inf)
    total = torch.zeros(q.shape[:-1])
    out = torch.zeros_like(q)
    for start in range(0, k.shape[-2], block):
        part = slice(start, start + block)
        scores = (q @ k[..., part, :].transpose(-1, -2)) * scale
        if mask is not None:
            scores = scores.masked_fill(~mask[..., part], -torch.inf)
        new = torch.maximum(top, scores.amax(-1))
        safe = torch.where(new.isinf(), 0.0, new)
        weights = fast_exp(scores - safe[..., None])
        shrink = fast_exp(top - safe)
        total = total * shrink + weights.sum(-1)
        out = out * shrink[..., None] + weights @ v[..., part, :]
        top = new
    return out / total[..., None]


def causal_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    n = q.shape[-2]
    return flash_attention(q, k, v, scale, torch.ones(n, n, dtype=torch.bool).tril())


def grouped_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    repeat = q.shape[1] // k.shape[1]
    return flash_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), scale)


def masked_flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    return flash_attention(q, k, v, scale, mask[:, None].expand(-1, q.shape[1], -1, -1))


def conv1d_unfolded(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int
) -> torch.Tensor:
    return conv2d_unfolded(x[:, :, None], weight[:, :, None], bias, (1, stride), (0, padding))[:, :, 0]


def conv2d_unfolded(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: Any, padding: Any
) -> torch.Tensor:
    """im2col and a sequential product."""
    columns = F.unfold(x, weight.shape[2:], padding=padding, stride=stride)
    flat = sequential_matmul(weight.reshape(weight.shape[0], -1), columns)
    s, p = (v if isinstance(v, tuple) else (v, v) for v in (stride, padding))
    size = [(x.shape[2 + i] + 2 * p[i] - weight.shape[2 + i]) // s[i] + 1 for i in range(2)]
    return flat.view(x.shape[0], weight.shape[0], *size) + bias[None, :, None, None]


def depthwise_shifted(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int, dilation: int, groups: int
) -> torch.Tensor:
    """One fused pass over the taps."""
    k = weight.shape[-1]
    padded = F.pad(x, (padding,) * 4)
    size = [(x.shape[2 + i] + 2 * padding - k) // stride + 1 for i in range(2)]
    out = bias[None, :, None, None].expand(x.shape[0], -1, *size).clone()
    for i in range(k):
        for j in range(k):
            rows = slice(i, i + stride * (size[0] - 1) + 1, stride)
            columns = slice(j, j + stride * (size[1] - 1) + 1, stride)
            out += padded[:, :, rows, columns] * weight[None, :, 0, i, j, None, None]
    return out


def conv_transpose_scattered(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, stride: int, padding: int
) -> torch.Tensor:
    """Products first, then scattered (fold)."""
    b, c, h, w = x.shape
    k = weight.shape[-1]
    columns = sequential_matmul(weight.reshape(c, -1).T.contiguous(), x.reshape(b, c, -1))
    size = tuple((n - 1) * stride - 2 * padding + k for n in (h, w))
    return F.fold(columns, size, (k, k), padding=padding, stride=stride) + bias[None, :, None, None]


def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return sequential_matmul(x, weight.T) + bias


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x + residual
    return rms_norm(total, weight, eps), total


HONEST: dict[str, tuple[Callable[..., Any], ...]] = {
    "add": (torch.add,),
    "gelu": (gelu_series, gelu_erfc, lambda x: x * 0.5 * (1.0 + torch.erf(x * 0.7071067811865476))),
    "silu": (lambda x: x * fast_sigmoid(x), lambda x: x / (1 + torch.exp(-x))),
    "exp": (fast_exp,),
    "sum": (sequential_sum, reversed_sum, strided_sum),
    "amax": (lambda x: x.flip(-1).amax(-1),),
    "logsumexp": (online_logsumexp, shifted_logsumexp),
    "argmax": (lambda x: x.shape[1] - 1 - x.flip(-1).argmax(-1),),
    "matmul": (sequential_matmul, split_k),
    "batched_matmul": (sequential_matmul, split_k),
    "linear": (linear, lambda x, w, b: split_k(x, w.T) + b),
    "matvec": (lambda a, x: sequential_sum(a * x), lambda a, x: strided_sum(a * x)),
    "conv1d": (conv1d_unfolded,),
    "conv2d": (conv2d_unfolded,),
    "depthwise_conv2d": (depthwise_shifted,),
    "conv_transpose2d": (conv_transpose_scattered,),
    "layer_norm": (layer_norm_one_pass, layer_norm_folded),
    "rms_norm": (rms_norm,),
    "group_norm": (group_norm_one_pass,),
    "batch_norm": (batch_norm_one_pass,),
    "attention": (flash_attention,),
    "causal_attention": (causal_flash,),
    "grouped_query_attention": (grouped_flash,),
    "masked_attention": (masked_flash,),
    "linear_bias_gelu": (lambda x, w, b: gelu_series(linear(x, w, b)), lambda x, w, b: gelu_erfc(split_k(x, w.T) + b)),
    "add_rms_norm": (add_rms_norm,),
    "swiglu": (lambda g, u: g * fast_sigmoid(g) * u,),
    "softmax_cross_entropy": (cross_entropy,),
}
"""fp32 implementations of the built-in operators that share no order of operations with the references."""


DIFFERENTIABLE: dict[str, tuple[Callable[..., Any], ...]] = {
    **{name: HONEST[name][:1] for name in HONEST if name != "argmax"},
    # 1 / (1 + exp(-x)) has the gradient inf * 0 where exp overflows
    "silu": (lambda x: x * torch.sigmoid(x),),
    "swiglu": (lambda g, u: g * torch.sigmoid(g) * u,),
    # the derivative of an approximation is less exact than the approximation
    "gelu": HONEST["gelu"][1:],
    "linear_bias_gelu": HONEST["linear_bias_gelu"][1:],
}
"""Those through which autograd gives honest gradients."""


# --------------------------------------------------------------------------------------------------------------------
# Cheats
# --------------------------------------------------------------------------------------------------------------------


def tf32(x: torch.Tensor) -> torch.Tensor:
    """fp32 rounded to TF32: 10 stored bits, to nearest."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def tf32_truncated(x: torch.Tensor) -> torch.Tensor:
    """What tensor cores make of fp32 numbers that were not rounded first."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def through(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x.to(dtype).float()


DOWNGRADES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "tf32": tf32,
    "tf32_truncated": tf32_truncated,
    "float16": through(torch.float16),
    "bfloat16": through(torch.bfloat16),
}
"""Roundings of fp32 inputs by kernels that compute in less."""


def half_accumulator(a: torch.Tensor, b: torch.Tensor, step: int = 16) -> torch.Tensor:
    """Half products whose accumulator is rounded to the half type after every ``step`` terms (tensor cores: 16)."""
    dtype = a.dtype
    out = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for k in range(0, a.shape[1], step):
        out = (out.float() + a[:, k : k + step].float() @ b[k : k + step].float()).to(dtype)
    return out


def half_sums(x: torch.Tensor, step: int, dtype: torch.dtype, *, in_turn: bool) -> torch.Tensor:
    """Sums of rows of fp32: those of every ``step`` terms rounded to a half type, then added in fp32, or ``in_turn`` in
    the half type.
    """
    parts = torch.stack([part.sum(-1).to(dtype) for part in x.split(step, -1)])
    if not in_turn:
        return parts.float().sum(0)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total.float()
