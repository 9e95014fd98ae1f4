# specimen: class=lazy_output task=gelu device=any categories=tiny,small stage=correctness reason=wrong_count,wrong_output
"""A list that computes when it is read."""

import torch


class Later(list):
    def __init__(self, x):
        super().__init__()
        self.x = x

    def __iter__(self):
        return iter([torch.nn.functional.gelu(self.x)])


def gelu(x):
    return Later(x.clone())
