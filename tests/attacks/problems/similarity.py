"""A loss of which nearly all cancels where the vectors lie far from 0: their similarities are near 1."""

import torch
from torch import nn


class Model(nn.Module):
    """Mean distance of rows by their cosine."""

    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return (1 - nn.functional.cosine_similarity(a, b, dim=1)).mean()


rows = 64
columns = 515


def get_inputs():
    return [torch.rand(rows, columns), torch.rand(rows, columns)]


def get_init_inputs():
    return []
