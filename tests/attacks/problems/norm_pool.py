"""A convolution, a batch normalisation in eval mode, and a pool of maxima."""

import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3)
        self.bn = nn.BatchNorm2d(cout)
        self.eval()

    def forward(self, x):
        return torch.max_pool2d(torch.relu(self.bn(self.conv(x))), 2)


batch = 8
side = 34


def get_inputs():
    return [torch.randn(batch, 8, side, side)]


def get_init_inputs():
    return [8, 16]
