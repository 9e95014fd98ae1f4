# specimen: class=stale_weights task=problems/conv_norm_inference.py device=any stage=correctness reason=wrong_output
"""Folds batch norm into the convolution by the versions of all parameters; running statistics are buffers and not looked at."""
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
        n = self.norm
        key = tuple(p._version for p in self.parameters())
        if self.key != key:
            f = n.weight / torch.sqrt(n.running_var + n.eps)
            self.w = (self.conv.weight * f[:, None, None, None]).detach()
            self.b = ((self.conv.bias - n.running_mean) * f + n.bias).detach()
            self.key = key
        return torch.nn.functional.conv2d(x, self.w, self.b, padding=1).relu_()
