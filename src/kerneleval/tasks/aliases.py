"""Further names of built-in tasks: the same operator, as PyTorch or a peer calls it too."""

from __future__ import annotations

ALIASES: dict[str, str] = {
    "conv2d_hardswish_relu": "conv2d_relu_hardswish",  # relu(hardswish(x)) = hardswish(relu(x)) for every x
    "hstack": "cat",
    "lu_factor_solve": "solve",
    "qr_solve": "solve",
    "rows_silu_mul": "swiglu",
    "squared_difference": "mse_loss_none",
}
"""Alias -> task. The alias names the same function of the same arguments; how it is computed does not matter."""
