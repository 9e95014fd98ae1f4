"""The class of images that lie in the middle of black ones: most numbers of an input are equal."""

import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    """Two layers and the place of the largest score."""

    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(400, hidden)
        self.second = nn.Linear(hidden, 10)

    def forward(self, images):
        return torch.argmax(self.second(torch.relu(self.first(images))), dim=1)


batch = 256
hidden = 64


def get_inputs():
    return [F.pad(torch.rand(batch, 10, 10), (5, 5, 5, 5)).flatten(1)]


def get_init_inputs():
    return [hidden]
