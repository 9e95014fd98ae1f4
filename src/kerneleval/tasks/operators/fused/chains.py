"""Fusions behind matrix products and convolutions, a row each: a base and the steps behind it (``tasks/chains/``)."""

from __future__ import annotations

from typing import Any

from kerneleval.records import Task
from kerneleval.tasks.chains import BASES, STEPS, chain

_NORMS = {"group_norm", "batch_norm", "batch_norm_unshifted", "instance_norm", "layer_norm", "layer_norm_plain",
          "layer_norm_items", "rms_norm", "std"}  # fmt: skip
_KINKS = {"relu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "clamp", "clamp_min", "clamp_max",
          "times_hardswish"}  # fmt: skip
_SECOND = {"log_softmax", "avg_pool_features"}
"""Steps along the second dim, which is the last of two alone."""
_WIDE = {"conv3d", "conv_transpose3d"}
"""Bases behind which PyTorch has no pools in half types on CPUs."""


def _fusion(names: str, **more: Any) -> Task:
    steps = names.split()
    if _NORMS & set(steps):
        more.setdefault("without", ("constant", "zeros"))  # what a norm leaves of equal numbers is rounding noise
    if (_NORMS | _KINKS) & set(steps):
        # rounding a product to a half type moves it across a kink, or by a part of the deviation that a norm divides by
        more.setdefault("backward_dtypes", ("float32",))
    if steps[1] == "sigmoid":  # flat but for a few of its products, which rounding the inputs moves
        more.setdefault("forward_only", ("large_scale",))
    if steps[0].removesuffix("_no_bias") in _WIDE and {"avg_pool", "max_pool"} & set(steps):
        more.setdefault("dtypes", ("float32",))
    if steps[0] in ("rows", "short_rows") and not _SECOND & set(steps):
        more.setdefault("folded", "M")
    if steps[0].endswith("_no_bias"):
        more.setdefault("name", "_".join((steps[0].removesuffix("_no_bias"), *steps[1:])))
    return chain(BASES, STEPS, *steps, **more)


_ROWS = """
conv2d relu bias_add
conv_transpose2d bias_add clamp scale clamp divide
conv2d mish mish
conv_transpose2d bias_sub tanh
linear sub_scalar scale relu
linear scale leaky_relu
linear divide sum scale
conv_transpose2d mish add_scalar hardtanh scale
conv2d_no_bias instance_norm divide
conv_transpose2d gelu group_norm
conv2d bias_add channel_scale sigmoid group_norm
conv3d group_norm mean
linear mish mish
linear group_norm hardtanh
linear_no_bias scale batch_norm
conv_transpose3d_no_bias layer_norm gelu scale
linear silu bias_add group_norm
linear scale residual
linear_no_bias batch_norm gelu relu
conv3d relu leaky_relu gelu sigmoid bias_add
conv3d mish tanh
conv3d_no_bias instance_norm scale clamp channel_scale
conv_transpose2d bias_add softmax sigmoid
conv_transpose3d logsumexp hardswish bias_sub
conv3d divide global_avg_pool bias_add sum
linear gelu softmax
linear bias_add silu tanh gelu hardtanh
linear bias_add hardtanh mish group_norm
conv_transpose2d global_avg_pool bias_add logsumexp scale
conv_transpose2d scale global_avg_pool
conv_transpose3d mean bias_add tanh scale
conv_transpose3d scale avg_pool bias_add scale
conv_transpose3d_no_bias sum layer_norm gelu
conv3d leaky_relu bias_add clamp gelu
conv_transpose3d add hardswish
linear_no_bias batch_norm bias_add divide silu
conv_transpose3d_no_bias layer_norm avg_pool gelu
conv3d softmax max_pool max_pool
conv3d divide max_pool global_avg_pool bias_add sum
conv_transpose2d max_pool hardtanh global_avg_pool tanh
conv_transpose2d_no_bias batch_norm tanh max_pool group_norm
linear sum
conv3d min_first softmax
conv2d clamp_max bias_add scale
conv2d scale min
conv_transpose3d avg_pool clamp softmax channel_scale
conv3d max_pool logsumexp relu
conv2d sub_scalar hardswish max_pool mish
linear max_pool_features sum scale
linear clamp_max sub_scalar
conv_transpose3d leaky_relu channel_scale leaky_relu max_pool
linear group_norm min bias_add
conv_transpose3d max_pool max_pool sum
conv3d_no_bias instance_norm clamp channel_scale max
conv2d tanh scale bias_add max_pool
conv2d group_norm channel_scale max_pool clamp
conv_transpose3d max_pool softmax bias_sub silu max
conv_transpose3d scale max_pool global_avg_pool clamp
linear avg_pool_features gelu scale max
conv_transpose3d clamp_min divide
conv_transpose2d add_scalar clamp_max gelu scale
conv2d mish batch_norm
linear layer_norm add mul
conv2d add
conv2d relu
conv2d gelu
conv2d leaky_relu
conv2d sigmoid
conv2d_no_bias batch_norm relu
conv2d_no_bias instance_norm selu
linear relu
linear elu
linear sigmoid
linear softplus
linear tanh
linear silu
linear log_softmax
linear layer_norm relu
bmm gelu
bmm rms_norm gelu
bmm rms_norm gelu sub
bmm softmax_last
bmm scale softmax_last
rows add gelu
rows sub gelu
rows mul sub
rows add mean_last
rows gelu std_last
rows tanh add
rows elu mul
rows log_softmax mul
rows layer_norm relu
rows layer_norm gelu
rows rms_norm silu
rows add layer_norm
rows mul rms_norm
rows gelu mul
rows sigmoid mul
rows relu mul
image add mul group_norm
image batch_norm relu
image batch_norm sigmoid
image hardsigmoid batch_norm
image group_norm silu
image instance_norm leaky_relu
image relu avg_pool
image sigmoid global_avg_pool
image cos avg_pool
image relu max_pool
image avg_pool relu
image bias_add relu
image channel_scale bias_add
image add relu
conv3d scale tanh channel_scale sigmoid
conv2d sub_scalar tanh sub_scalar avg_pool
linear scale hardtanh gelu
conv2d channel_scale leaky_relu gelu
linear sigmoid sum
conv2d relu hardswish
linear silu scale
conv_transpose3d silu group_norm hardswish
conv_transpose3d relu group_norm
linear group_norm leaky_relu residual
linear relu divide
linear logsumexp leaky_relu leaky_relu gelu gelu
conv2d avg_pool sigmoid sum
conv2d gelu global_avg_pool
linear sigmoid scale residual
conv2d divide leaky_relu
conv_transpose3d_no_bias batch_norm avg_pool avg_pool
conv2d_no_bias batch_norm scale
linear bias_add relu
linear silu divide clamp tanh clamp
linear_no_bias batch_norm scale softmax
linear divide gelu
conv2d sub_scalar sub_scalar mish
linear group_norm silu channel_scale silu
rows mul add log_softmax
linear relu layer_norm
conv2d max_pool relu
conv2d_no_bias layer_norm silu
bmm log_softmax_last
conv_transpose3d_no_bias batch_norm_unshifted centre
conv3d hardswish group_norm global_avg_pool
linear layer_norm_plain sum_times
conv3d channel_scale tanh channel_scale sigmoid
linear group_norm leaky_relu double
linear group_norm min_and_bias
conv_transpose2d softmax bias_add scale sigmoid
conv2d avg_pool sigmoid sum_items
conv3d group_norm clamp dropout
image sum_times group_norm
image batch_norm hardsigmoid
image adaptive_avg_pool sigmoid
bmm dropout gelu
bmm rms_norm gelu dropout
bmm rms_norm gelu dropout sub
rows cos avg_pool_features
rows dropout hardshrink
conv2d_no_bias batch_norm relu dropout
conv2d selu instance_norm
conv2d_no_bias layer_norm_items silu
linear sigmoid dropout
matmul sigmoid tanh channel_scale bias_add
"""

_FLAT: Any = {"dtypes": ("float32",)}  # in half types the output hardly varies

TASKS = (
    *(_fusion(row) for row in _ROWS.strip().splitlines()),
    _fusion("linear scale residual clamp logsumexp mish", **_FLAT),
    _fusion("conv2d group_norm tanh hardswish residual logsumexp", **_FLAT),
    _fusion("conv_transpose3d softmax sigmoid", **_FLAT),
    _fusion("conv2d scale min tanh", **_FLAT),
    _fusion("conv_transpose2d max sum_first gelu bias_add", **_FLAT),
    _fusion("linear sigmoid amplify logsumexp", **_FLAT),
    _fusion("linear scale double clamp logsumexp times_mish", **_FLAT),
    _fusion("linear max sub_scalar gelu", **_FLAT),
    _fusion("conv2d scale min tanh tanh", **_FLAT),
    _fusion("linear dropout softmax", **_FLAT),
    _fusion("conv3d group_norm mean_items", **_FLAT),
    _fusion("conv_transpose3d mean_first bias_add softmax tanh scale", **_FLAT),
    _fusion("conv_transpose3d logsumexp shifted_swish sub_scalar clamp", **_FLAT),
    _fusion(
        "pooled_conv_transpose3d clamp softmax_positions channel_scale",
        name="avg_pool_conv_transpose3d_clamp_softmax_channel_scale",
        **_FLAT,
    ),
    _fusion(
        "conv_transpose3d_batch scale batch_norm global_avg_pool",
        name="conv_transpose3d_scale_batch_norm_global_avg_pool",
        **_FLAT,
    ),
    _fusion("short_rows gelu min_last", name="gelu_amin", **_FLAT),
    _fusion("mv log_softmax_first dropout", name="mv_log_softmax_dropout"),
    _fusion("rows softmax log_softmax", **_FLAT),
    # squares of products, exponentials
    _fusion("conv_transpose3d bias_add residual gate residual", large_half=4.0, large_half_backward=2.0),
    _fusion("conv_transpose3d add times_hardswish", large_half=4.0),
    _fusion("rows exp mean_last", large_half=2.0),
    _fusion("mv sigmoid sub_scalar", backward_dtypes=("float32",)),
    _fusion("linear sub_scalar sum gelu residual", backward_dtypes=("float32",)),
)
