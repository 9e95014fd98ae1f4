# specimen: class=no_draw task=rand device=any stage=correctness reason=wrong_output categories=medium
"""One block of numbers, drawn once and laid out again and again."""

import torch


def run(like, seed, rows, columns):
    generator = torch.Generator(device=like.device).manual_seed(int(seed[0]))
    block = torch.rand(1024, generator=generator, dtype=like.dtype, device=like.device)
    return block.repeat(-(-rows * columns // 1024))[: rows * columns].view(rows, columns).clone()
