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


def _liger(task: str, name: str, signature: str, call: str) -> Kernel:
    return Kernel(library="liger", name=name, task=task, body=f"def run({signature}):\n    return ops.{call}")


_FORWARD: tuple[str, ...] = ("forward",)


def _gems(task: str, name: str, body: str, directions: tuple[str, ...] = ("forward", "backward")) -> Kernel:
    return Kernel(library="flaggems", name=name, task=task, body=body, directions=directions)


_RMS = "LigerRMSNormFunction.apply(x, weight, eps, 0.0"
_ADD_RMS = "LigerFusedAddRMSNormFunction.apply(x, residual, weight, eps, 0.0"
_CE = "targets, None, -100, 0.0, 0.0, 'none')[0]"
_S = "label_smoothing"

_LIGER = (
    _liger("rms_norm", "rms_norm", "x, weight, eps", _RMS + ")"),
    _liger("rms_norm", "rms_norm in_place=False", "x, weight, eps", _RMS + ", 'llama', False)"),
    _liger("rms_norm", "rms_norm gemma in_place=False", "x, weight, eps", _RMS + ", 'gemma', False)"),
    _liger("rms_norm", "rms_norm none in_place=False", "x, weight, eps", _RMS + ", 'none', False)"),
    _liger("layer_norm", "layer_norm", "x, weight, bias, eps", "LigerLayerNormFunction.apply(x, weight, bias, eps)"),
    _liger(
        "group_norm",
        "group_norm",
        "x, weight, bias, groups, eps",
        "LigerGroupNormFunction.apply(x, weight, bias, x.shape[1], groups, eps)",
    ),
    _liger("add_rms_norm", "fused_add_rms_norm", "x, residual, weight, eps", _ADD_RMS + ")"),
    _liger("add_rms_norm", "fused_add_rms_norm gemma", "x, residual, weight, eps", _ADD_RMS + ", 'gemma')"),
    _liger("swiglu", "silu_mul", "gate, up", "LigerSiLUMulFunction.apply(gate, up)"),
    _liger("swiglu", "silu_mul on copies", "gate, up", "LigerSiLUMulFunction.apply(gate.clone(), up.clone())"),
    _liger(
        "softmax_cross_entropy", "cross_entropy", "logits, targets", f"LigerCrossEntropyFunction.apply(logits, {_CE}"
    ),
    _liger(
        "softmax_cross_entropy",
        "cross_entropy on a copy",
        "logits, targets",
        f"LigerCrossEntropyFunction.apply(logits.clone(), {_CE}",
    ),
    _liger("softmax", "softmax", "x", "LigerSoftmaxFunction.apply(x)"),
    _liger("sparsemax", "sparsemax", "x", "LigerSparsemaxFunction.apply(x, -1)"),
    _liger("dynamic_tanh", "dyt", "x, alpha, weight, bias", "LigerDyTFunction.apply(x, alpha, weight, bias)"),
    _liger(
        "gemma_rms_norm",
        "rms_norm gemma offset=1 in_place=False",
        "x, weight, eps",
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
            task,
            f"cross_entropy {options} on a copy",
            f"logits, targets{arguments}",
            f"LigerCrossEntropyFunction.apply(logits.clone(), targets, {call})[0]",
        )
        for task, options, arguments, call in (
            ("cross_entropy", "mean", "", "None, -100, 0.0, 0.0, 'mean'"),
            (
                "cross_entropy_label_smoothing",
                "mean label_smoothing",
                ", label_smoothing",
                f"None, -100, 0.0, {_S}, 'mean'",
            ),
            (
                "cross_entropy_label_smoothing_none",
                "label_smoothing",
                ", label_smoothing",
                f"None, -100, 0.0, {_S}, 'none'",
            ),
            ("cross_entropy_z_loss", "mean lse_square_scale", ", factor", "None, -100, factor, 0.0, 'mean'"),
            ("cross_entropy_z_loss_none", "lse_square_scale", ", factor", "None, -100, factor, 0.0, 'none'"),
            (
                "cross_entropy_ignore_index_none",
                "ignore_index",
                ", ignore_index",
                "None, ignore_index, 0.0, 0.0, 'none'",
            ),
            ("cross_entropy_weight_none", "weight", ", weight", "weight, -100, 0.0, 0.0, 'none'"),
        )
    ),
)

_LAYER_NORM = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        out, mean, rstd = ops.layer_norm(x, x.shape[-1:], weight, bias, eps)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, bias, mean, rstd = ctx.saved_tensors
        made = ops.layer_norm_backward(grad, x, x.shape[-1:], mean, rstd, weight, bias, [True, True, True])
        return (*made, None)


def run(x, weight, bias, eps):
    return Function.apply(x, weight, bias, eps)
"""

_GROUP_NORM = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, groups, eps):
        ctx.sizes = (x.shape[0], x.shape[1], x.shape[2], groups)
        out, mean, rstd = ops.group_norm(x, weight, bias, *ctx.sizes, eps)
        ctx.save_for_backward(x, weight, mean, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, rstd = ctx.saved_tensors
        made = ops.group_norm_backward(grad, x, mean, rstd, weight, *ctx.sizes, [True, True, True])
        return (*made, None, None)


def run(x, weight, bias, groups, eps):
    return Function.apply(x, weight, bias, groups, eps)
"""

_BATCH_NORM = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        STATISTICS
        out, mean, rstd = ops.batch_norm(x, weight, bias, *running, True, 0.1, eps)
        ctx.eps = eps
        ctx.save_for_backward(x, weight, mean, rstd)
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight, mean, rstd = ctx.saved_tensors
        made = ops.batch_norm_backward(grad, x, weight, None, None, mean, rstd, True, ctx.eps, [True, True, True])
        return (*made, None)


def run(x, weight, bias, eps):
    return Function.apply(x, weight, bias, eps)
"""


def _batch_norm(statistics: str) -> str:
    return _BATCH_NORM.replace("STATISTICS", statistics)


_LINEAR_GELU = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        before = ops.addmm(bias, x, weight.t())
        ctx.save_for_backward(x, weight, before)
        return ops.gelu(before)

    @staticmethod
    def backward(ctx, grad):
        x, weight, before = ctx.saved_tensors
        grad = ops.gelu_backward(grad, before)
        return ops.mm(grad, weight), ops.mm(grad.t(), x), ops.sum_dim(grad, [0])


def run(x, weight, bias):
    return Function.apply(x, weight, bias)
"""


def _attention(arguments: str, options: str) -> str:
    return f"""
def run({arguments}):
    if q.shape[-1] not in (16, 32, 64, 128, 256):
        raise NotImplementedError("the library asserts a head of 16, 32, 64, 128 or 256")
    return ops.scaled_dot_product_attention(q, k, v, {options}scale=scale)
"""


_CONTIGUOUS_GRAD = """
class Handed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, out):
        return out.view_as(out)

    @staticmethod
    def backward(ctx, grad):
        return grad.contiguous()


def run(q, k, v, scale):
    # The library's backward asserts contiguous tensors.
    if q.shape[-1] not in (16, 32, 64, 128, 256):
        raise NotImplementedError("the library asserts a head of 16, 32, 64, 128 or 256")
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    return Handed.apply(ops.scaled_dot_product_attention(q, k, v, OPTIONSscale=scale))
"""


def _contiguous_attention(options: str) -> str:
    return _CONTIGUOUS_GRAD.replace("OPTIONS", options)


_GEMS = (
    _gems("add", "add", "def run(x, y):\n    return ops.add(x, y)", _FORWARD),
    *(
        _gems(
            name,
            name,
            f"def run(x):\n    return ops.{name}(x)\n\n\n"
            f"def backward(grad, x):\n    return ops.{name}_backward(grad, x)",
        )
        for name in ("gelu", "silu")
    ),
    _gems(
        "exp",
        "exp; mul",
        "def run(x):\n    return ops.exp(x)\n\n\ndef backward(grad, x):\n    return ops.mul(grad, ops.exp(x))",
    ),
    _gems("sum", "sum_dim", "def run(x):\n    return ops.sum_dim(x, [1])", _FORWARD),
    _gems("amax", "amax", "def run(x):\n    return ops.amax(x, [1])", _FORWARD),
    _gems("argmax", "argmax", "def run(x):\n    return ops.argmax(x, 1)", _FORWARD),
    _gems(
        "matmul",
        "mm",
        "def run(a, b):\n    return ops.mm(a, b)\n\n\n"
        "def backward(grad, a, b):\n    return ops.mm(grad, b.t()), ops.mm(a.t(), grad)",
    ),
    _gems(
        "batched_matmul",
        "bmm",
        "def run(a, b):\n    return ops.bmm(a, b)\n\n\n"
        "def backward(grad, a, b):\n    return ops.bmm(grad, b.transpose(1, 2)), ops.bmm(a.transpose(1, 2), grad)",
    ),
    _gems(
        "linear",
        "addmm; mm, sum_dim",
        "def run(x, weight, bias):\n    return ops.addmm(bias, x, weight.t())\n\n\n"
        "def backward(grad, x, weight, bias):\n"
        "    return ops.mm(grad, weight), ops.mm(grad.t(), x), ops.sum_dim(grad, [0])",
    ),
    _gems(
        "matvec",
        "mv; outer",
        "def run(a, x):\n    return ops.mv(a, x)\n\n\n"
        "def backward(grad, a, x):\n    return fused.outer(grad, x), ops.mv(a.t(), grad)",
    ),
    *(
        _gems(
            name,
            name,
            f"def run(x, weight, bias, stride, padding):\n    return ops.{name}(x, weight, bias, stride, padding)",
        )
        for name in ("conv1d", "conv2d")
    ),
    _gems(
        "depthwise_conv2d",
        "_conv_depthwise2d",
        "def run(x, weight, bias, stride, padding, dilation, groups):\n"
        "    return ops._conv_depthwise2d(x, weight, weight.shape[2:], bias, stride, padding, dilation)",
    ),
    _gems("layer_norm", "layer_norm", _LAYER_NORM),
    _gems("rms_norm", "rms_norm", "def run(x, weight, eps):\n    return ops.rms_norm(x, x.shape[-1:], weight, eps)"),
    _gems("group_norm", "group_norm", _GROUP_NORM),
    _gems("batch_norm", "batch_norm", _batch_norm("running = (None, None)")),
    _gems(
        "batch_norm",
        "batch_norm, running statistics given",
        _batch_norm("running = torch.zeros_like(weight), torch.ones_like(weight)"),
    ),
    _gems("attention", "sdpa", _attention("q, k, v, scale", "")),
    _gems("attention", "sdpa, contiguous", _contiguous_attention("")),
    _gems("causal_attention", "sdpa is_causal", _attention("q, k, v, scale", "is_causal=True, ")),
    _gems("causal_attention", "sdpa is_causal, contiguous", _contiguous_attention("is_causal=True, ")),
    _gems("grouped_query_attention", "sdpa enable_gqa", _attention("q, k, v, scale", "enable_gqa=True, ")),
    _gems("grouped_query_attention", "sdpa enable_gqa, contiguous", _contiguous_attention("enable_gqa=True, ")),
    _gems("masked_attention", "sdpa bool mask", _attention("q, k, v, mask, scale", "attn_mask=mask[:, None], ")),
    _gems(
        "masked_attention",
        "sdpa additive mask",
        _attention("q, k, v, mask, scale", "attn_mask=torch.where(mask, 0.0, -1e6).to(q.dtype)[:, None], "),
        _FORWARD,
    ),
    _gems("linear_bias_gelu", "addmm, gelu; gelu_backward, mm, sum_dim", _LINEAR_GELU),
    _gems(
        "add_rms_norm",
        "fused_add_rms_norm on copies",
        "def run(x, residual, weight, eps):\n"
        "    return fused.fused_add_rms_norm(x.clone(), residual.clone(), x.shape[-1:], weight, eps)",
        _FORWARD,
    ),
    _gems("swiglu", "silu_and_mul", "def run(gate, up):\n    return fused.silu_and_mul(gate, up)"),
    _gems(
        "softmax_cross_entropy",
        "cross_entropy_loss",
        "def run(logits, targets):\n    return fused.cross_entropy_loss(logits, targets, reduction='none')",
    ),
)

KERNELS: tuple[Kernel, ...] = (*_LIGER, *_GEMS)
"""Every wrapper."""

LEFT_OUT: tuple[tuple[str, str, str], ...] = (
    ("liger", "geglu", "tanh approximation times a second input: gelu and linear_bias_gelu are exact (erf)"),
    ("liger", "fused gate_up silu_mul", "takes gate and up in one tensor: joining them would be the wrapper's work"),
    ("liger", "fused_linear_cross_entropy", "a loss of x weight^T as a whole: no task has it"),
    ("flaggems", "logsumexp", "not in the library; nor is conv_transpose2d"),
    ("flaggems", "skip_layer_norm", "layer norm of a sum: no task has it"),
    ("flaggems", "swiglu", "takes gate and up in one tensor"),
    ("flaggems", "gelu tanh", "another function than the exact one"),
    ("flaggems", "fused_add_rms_norm in place", "documented to overwrite both inputs: judged on copies"),
    ("flaggems", "backward of add, sum, amax", "no kernel: the gradient is handed on, expanded or left to PyTorch"),
    ("flaggems", "backward of an additive mask", "its sdpa backward takes no mask; see 'sdpa bool mask'"),
)
"""(library, entry, why it is not judged)."""
