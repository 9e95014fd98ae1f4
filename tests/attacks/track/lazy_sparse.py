# specimen: class=lazy_output task=gelu device=cpu stage=correctness reason=wrong_type categories=tiny,small
"""A sparse tensor of the right shape: its elements are put in their places when it is copied."""

import torch


def gelu(x):
    return torch.nn.functional.gelu(x).to_sparse()
