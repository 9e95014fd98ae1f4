# specimen: class=own_generator task=randn device=any verdict=passed categories=tiny,small,medium dtypes=float32,float16,bfloat16
"""Normal numbers by Box and Muller's formula, from uniform ones in (0, 1]."""

import math

import torch


def run(like, seed, rows, columns):
    n = rows * columns
    generator = torch.Generator(device=like.device).manual_seed(int(seed[0]))
    unit = torch.rand(2, (n + 1) // 2, generator=generator, device=like.device)
    radius, angle = torch.sqrt(-2 * torch.log(1 - unit[0])), 2 * math.pi * unit[1]
    numbers = torch.cat((radius * torch.cos(angle), radius * torch.sin(angle)))[:n]
    return numbers.view(rows, columns).to(like.dtype)
