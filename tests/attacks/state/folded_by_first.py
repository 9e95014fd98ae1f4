# specimen: class=stale_weights task=problems/conv_norm_inference.py device=any stage=correctness reason=wrong_output
"""Folds the normalisation into the convolution, again only when the first element of some weight has changed."""
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, 3, padding=1)
        self.norm = nn.BatchNorm2d(filters)
        self.eval()
        self.key = None

    def forward(self, x):
        n, c = self.norm, self.conv
        key = tuple(float(t.detach().view(-1)[0]) for t in (c.weight, c.bias, n.weight, n.bias, n.running_mean, n.running_var))
        if key != self.key:
            scale = n.weight * torch.rsqrt(n.running_var + n.eps)
            self.w = (c.weight * scale[:, None, None, None]).detach()
            self.b = ((c.bias - n.running_mean) * scale + n.bias).detach()
            self.key = key
        return torch.nn.functional.conv2d(x, self.w, self.b, padding=1).relu_()
