"""Kernels of published libraries as candidates: which entry solves which task, and the file that calls it.

Entries are those of Liger-Kernel 0.8.5; versions with other signatures fail when they are called.

A wrapper is thin: it hands the task's arguments to the library in the library's own order, and does nothing that a
user of the library would not do. Where the library documents that it works in place, there is a second wrapper that
gives it copies. Sizes that a library refuses by an assertion of its own are declared unsupported.
"""

from __future__ import annotations

from dataclasses import dataclass

MODULES = {"liger": "liger_kernel", "flaggems": "flag_gems"}
"""Libraries by the module that is imported; on the registry liger-kernel and flag-gems."""

_HEADS = {
    "liger": "import torch\nimport triton\nfrom liger_kernel import ops\n",
    # Or it asks nvidia-smi for the vendor, which a sandbox need not have.
    "flaggems": (
        'import os\n\nos.environ["GEMS_VENDOR"] = "nvidia"\n\nimport torch\nimport triton\n'
        "from flag_gems import fused, ops\n"
    ),
}

_UNTUNED = """
import math
import sys


def _size(config):
    numbers = [max(1, int(value)) for value in config.kwargs.values() if isinstance(value, (int, bool))]
    return math.prod(numbers), min(numbers, default=1), config.num_stages, config.num_warps


for _module in [module for name, module in sys.modules.items() if name.startswith("{}.")]:
    for _value in list(vars(_module).values()):
        while isinstance(_value, triton.KernelInterface):
            if isinstance(_value, triton.runtime.Autotuner):
                _value.configs = sorted(_value.configs, key=_size)[:1]
            _value = getattr(_value, "fn", None)
"""
"""FlagGems tunes for every shape: its matrix product takes more than two minutes for the first one."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One entry of a library, and how it solves a task."""

    library: str
    name: str
    """The library's entry, with what is set differently from its defaults."""
    task: str
    body: str
    """The wrapper after its imports: functions ``run`` and, where autograd does not do it, ``backward``."""
    directions: tuple[str, ...] = ("forward", "backward")
    untuned: bool = False
    """Whether each of its Triton kernels has the smallest of its tuning configurations alone."""

    @property
    def source(self) -> str:
        """The candidate's file."""
        head = _HEADS[self.library] + (_UNTUNED.format(MODULES[self.library]) if self.untuned else "")
        return f"{head}\n\n{self.body.strip()}\n"


def _calls(takes: str, forward: str, backward: str = "") -> str:
    """A wrapper that is one call; and one for the gradients, where autograd does not do it."""
    gradients = f"\n\n\ndef backward(grad, {takes}):\n    return {backward}" if backward else ""
    return f"def run({takes}):\n    return {forward}{gradients}"


def _function(takes: str, forward: str, backward: str) -> str:
    """A wrapper with an autograd function, by the lines of its two methods."""
    forward, backward = (lines.strip().replace("\n", "\n        ") for lines in (forward, backward))
    return f"""
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, {takes}):
        {forward}

    @staticmethod
    def backward(ctx, grad):
        {backward}


def run({takes}):
    return Function.apply({takes})
"""


def _liger(task: str, name: str, takes: str, call: str) -> Kernel:
    return Kernel(library="liger", name=name, task=task, body=_calls(takes, f"ops.{call}"))


_FORWARD: tuple[str, ...] = ("forward",)


def _gems(task: str, name: str, body: str, directions: tuple[str, ...] = ("forward", "backward")) -> Kernel:
    return Kernel(library="flaggems", name=name, task=task, body=body, directions=directions)


_RMS = "LigerRMSNormFunction.apply(x, weight, eps, 0.0"
_ADD_RMS = "LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, 0.0"
_NORM = "x, weight, eps"
_ADDED = "x, residual, weight, eps"
_COPY = "LigerCrossEntropyFunction.apply(logits.clone(), targets, "
_PLAIN = "None, -100, 0.0, 0.0, 'none')[0]"

_LIGER = (
    _liger("rms_norm", "rms_norm", _NORM, _RMS + ")"),
    _liger("rms_norm", "rms_norm in_place=False", _NORM, _RMS + ", 'llama', False)"),
    _liger("rms_norm", "rms_norm gemma in_place=False", _NORM, _RMS + ", 'gemma', False)"),
    _liger("rms_norm", "rms_norm none in_place=False", _NORM, _RMS + ", 'none', False)"),
    _liger("layer_norm", "layer_norm", "x, weight, bias, eps", "LigerLayerNormFunction.apply(x, weight, bias, eps)"),
    _liger(
        *("group_norm", "group_norm", "x, weight, bias, groups, eps"),
        "LigerGroupNormFunction.apply(x, weight, bias, x.shape[1], groups, eps)",
    ),
    _liger("add_rms_norm", "fused_add_rms_norm", _ADDED, _ADD_RMS + ")"),
    _liger("add_rms_norm", "fused_add_rms_norm gemma", _ADDED, _ADD_RMS + ", 'gemma')"),
    _liger("swiglu", "silu_mul", "gate, up", "LigerSiLUMulFunction.apply(gate, up)"),
    _liger("swiglu", "silu_mul on copies", "gate, up", "LigerSiLUMulFunction.apply(gate.clone(), up.clone())"),
    _liger(
        *("softmax_cross_entropy", "cross_entropy", "logits, targets"),
        f"LigerCrossEntropyFunction.apply(logits, targets, {_PLAIN}",
    ),
    _liger("softmax_cross_entropy", "cross_entropy on a copy", "logits, targets", _COPY + _PLAIN),
    _liger("softmax", "softmax", "x", "LigerSoftmaxFunction.apply(x)"),
    _liger("sparsemax", "sparsemax", "x", "LigerSparsemaxFunction.apply(x, -1)"),
    _liger("dynamic_tanh", "dyt", "x, alpha, weight, bias", "LigerDyTFunction.apply(x, alpha, weight, bias)"),
    _liger(
        *("gemma_rms_norm", "rms_norm gemma offset=1 in_place=False", _NORM),
        "LigerRMSNormFunction.apply(x, weight, eps, 1.0, 'gemma', False)",
    ),
    _liger("embedding", "embedding", "index, weight", "LigerEmbeddingFunction.apply(weight, index)"),
    *(
        _liger(
            f"kl_div{'_log_target' if log_target else ''}{'_none' if reduction == 'none' else ''}",
            f"kl_div {reduction}{' log_target' if log_target else ''}",
            "x, target",
            f"LigerKLDivLossFunction.apply(x, target, '{reduction}', {log_target})",
        )
        for reduction in ("none", "batchmean")
        for log_target in (False, True)
    ),
    *(
        _liger(
            f"cross_entropy{task}",
            f"cross_entropy {options} on a copy",
            f"logits, targets{', ' if argument else ''}{argument}",
            f"{_COPY}{call})[0]",
        )
        for task, options, argument, call in (
            ("", "mean", "", "None, -100, 0.0, 0.0, 'mean'"),
            (
                *("_label_smoothing", "mean label_smoothing", "label_smoothing"),
                "None, -100, 0.0, label_smoothing, 'mean'",
            ),
            (
                *("_label_smoothing_none", "label_smoothing", "label_smoothing"),
                "None, -100, 0.0, label_smoothing, 'none'",
            ),
            ("_z_loss", "mean lse_square_scale", "factor", "None, -100, factor, 0.0, 'mean'"),
            ("_z_loss_none", "lse_square_scale", "factor", "None, -100, factor, 0.0, 'none'"),
            ("_ignore_index_none", "ignore_index", "ignore_index", "None, ignore_index, 0.0, 0.0, 'none'"),
            ("_weight_none", "weight", "weight", "weight, -100, 0.0, 0.0, 'none'"),
        )
    ),
)

_LAYER_NORM = _function(
    "x, weight, bias, eps",
    """
out, mean, rstd = ops.layer_norm(x, x.shape[-1:], weight, bias, eps)
ctx.save_for_backward(x, weight, bias, mean, rstd)
return out
""",
    """
x, weight, bias, mean, rstd = ctx.saved_tensors
made = ops.layer_norm_backward(grad, x, x.shape[-1:], mean, rstd, weight, bias, [True, True, True])
return (*made, None)
""",
)

_GROUP_NORM = _function(
    "x, weight, bias, groups, eps",
    """
ctx.sizes = (x.shape[0], x.shape[1], x.shape[2:].numel(), groups)
out, mean, rstd = ops.group_norm(x, weight, bias, *ctx.sizes, eps)
ctx.save_for_backward(x, weight, mean, rstd)
return out
""",
    """
x, weight, mean, rstd = ctx.saved_tensors
made = ops.group_norm_backward(grad, x, mean, rstd, weight, *ctx.sizes, [True, True, True])
return (*made, None, None)
""",
)


def _batch_norm(running: str) -> str:
    return _function(
        "x, weight, bias, eps",
        f"""
running = {running}
out, mean, rstd = ops.batch_norm(x, weight, bias, *running, True, 0.1, eps)
ctx.eps = eps
ctx.save_for_backward(x, weight, mean, rstd)
return out
""",
        """
x, weight, mean, rstd = ctx.saved_tensors
made = ops.batch_norm_backward(grad, x, weight, None, None, mean, rstd, True, ctx.eps, [True, True, True])
return (*made, None)
""",
    )


_LINEAR_GELU = _function(
    "x, weight, bias",
    """
before = ops.addmm(bias, x, weight.t())
ctx.save_for_backward(x, weight, before)
return ops.gelu(before)
""",
    """
x, weight, before = ctx.saved_tensors
grad = ops.gelu_backward(grad, before)
return ops.mm(grad, weight), ops.mm(grad.t(), x), ops.sum_dim(grad, [0])
""",
)

_HEADS_OF_A_SIZE = """    if q.shape[-1] not in (16, 32, 64, 128, 256):
        raise NotImplementedError("the library asserts a head of 16, 32, 64, 128 or 256")
"""


def _attention(options: str, takes: str = "q, k, v, scale") -> str:
    called = f"ops.scaled_dot_product_attention(q, k, v, {options}scale=scale)"
    return f"def run({takes}):\n{_HEADS_OF_A_SIZE}    return {called}\n"


def _contiguous_attention(options: str) -> str:
    return f"""
class Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.view_as(out)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


def run(q, k, v, scale):
    # The library's backward asserts contiguous tensors.
{_HEADS_OF_A_SIZE}    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    return Handed.apply(ops.scaled_dot_product_attention(q, k, v, {options}scale=scale))
"""


_MASKED = "q, k, v, mask, scale"
_CONV = "x, weight, bias, stride, padding"

_GEMS = (
    _gems("add", "add", _calls("x, y", "ops.add(x, y)"), _FORWARD),
    *(_gems(name, name, _calls("x", f"ops.{name}(x)", f"ops.{name}_backward(grad, x)")) for name in ("gelu", "silu")),
    _gems("exp", "exp; mul", _calls("x", "ops.exp(x)", "ops.mul(grad, ops.exp(x))")),
    _gems("sum", "sum_dim", _calls("x", "ops.sum_dim(x, [-1])"), _FORWARD),
    _gems("amax", "amax", _calls("x", "ops.amax(x, [-1])"), _FORWARD),
    _gems("argmax", "argmax", _calls("x", "ops.argmax(x, -1)"), _FORWARD),
    _gems("matmul", "mm", _calls("a, b", "ops.mm(a, b)", "ops.mm(grad, b.t()), ops.mm(a.t(), grad)")),
    _gems(
        *("batched_matmul", "bmm"),
        _calls("a, b", "ops.bmm(a, b)", "ops.bmm(grad, b.transpose(1, 2)), ops.bmm(a.transpose(1, 2), grad)"),
    ),
    _gems(
        *("linear", "addmm; mm, sum_dim"),
        _calls(
            *("x, weight, bias", "ops.addmm(bias, x, weight.t())"),
            "ops.mm(grad, weight), ops.mm(grad.t(), x), ops.sum_dim(grad, [0])",
        ),
    ),
    _gems("matvec", "mv; outer", _calls("a, x", "ops.mv(a, x)", "fused.outer(grad, x), ops.mv(a.t(), grad)")),
    *(_gems(name, name, _calls(_CONV, f"ops.{name}({_CONV})")) for name in ("conv1d", "conv2d")),
    _gems(
        *("depthwise_conv2d", "_conv_depthwise2d"),
        _calls(
            f"{_CONV}, dilation, groups",
            "ops._conv_depthwise2d(x, weight, weight.shape[2:], bias, stride, padding, dilation)",
        ),
    ),
    _gems("layer_norm", "layer_norm", _LAYER_NORM),
    _gems("rms_norm", "rms_norm", _calls(_NORM, "ops.rms_norm(x, x.shape[-1:], weight, eps)")),
    _gems("group_norm", "group_norm", _GROUP_NORM),
    _gems("batch_norm", "batch_norm", _batch_norm("(None, None)")),
    _gems(
        *("batch_norm", "batch_norm, running statistics given"),
        _batch_norm("torch.zeros_like(weight), torch.ones_like(weight)"),
    ),
    _gems("attention", "sdpa", _attention("")),
    _gems("attention", "sdpa, contiguous", _contiguous_attention("")),
    _gems("causal_attention", "sdpa is_causal", _attention("is_causal=True, ")),
    _gems("causal_attention", "sdpa is_causal, contiguous", _contiguous_attention("is_causal=True, ")),
    _gems("grouped_query_attention", "sdpa enable_gqa", _attention("enable_gqa=True, ")),
    _gems("grouped_query_attention", "sdpa enable_gqa, contiguous", _contiguous_attention("enable_gqa=True, ")),
    _gems("masked_attention", "sdpa bool mask", _attention("attn_mask=mask[:, None], ", _MASKED)),
    _gems(
        *("masked_attention", "sdpa additive mask"),
        _attention("attn_mask=torch.where(mask, 0.0, -1e6).to(q.dtype)[:, None], ", _MASKED),
        _FORWARD,
    ),
    _gems("linear_bias_gelu", "addmm, gelu; gelu_backward, mm, sum_dim", _LINEAR_GELU),
    _gems(
        *("add_rms_norm", "fused_add_rms_norm on copies"),
        _calls(_ADDED, "fused.fused_add_rms_norm(x.clone(), residual.clone(), x.shape[-1:], weight, eps)"),
        _FORWARD,
    ),
    _gems("swiglu", "silu_and_mul", _calls("gate, up", "fused.silu_and_mul(gate, up)")),
    _gems(
        *("softmax_cross_entropy", "cross_entropy_loss"),
        _calls("logits, targets", "fused.cross_entropy_loss(logits, targets, reduction='none')"),
    ),
)

KERNELS: tuple[Kernel, ...] = (*_LIGER, *_GEMS)
"""Every wrapper."""
