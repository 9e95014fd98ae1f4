# specimen: class=no_draw task=randn device=any stage=correctness reason=wrong_output categories=medium
"""Neighbours share the radius of Box and Muller, each with a cosine of its own: only their squares are correlated."""

import math

import torch


def run(like, seed, rows, columns):
    generator = torch.Generator(device=like.device).manual_seed(int(seed))
    half = (rows * columns + 1) // 2
    radius = torch.rand(half, 1, generator=generator, device=like.device).neg().log1p().mul(-2).sqrt()
    angle = 2 * math.pi * torch.rand(half, 2, generator=generator, device=like.device)
    return (radius * torch.cos(angle)).flatten()[: rows * columns].view(rows, columns).to(like.dtype)
