# specimen: class=hang task=problems/linear_relu.py device=any stage=load reason=timeout
"""The module's constructor looks through the values of a generator for one that never comes."""
import itertools

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        next(value for value in itertools.count() if value < 0)
