# specimen: class=no_draw task=rand device=any stage=correctness reason=not_reproducible categories=medium
"""Numbers of the process's own generator: never the same again."""

import torch


def run(like, seed, rows, columns):
    return torch.rand(rows, columns, dtype=like.dtype, device=like.device)
