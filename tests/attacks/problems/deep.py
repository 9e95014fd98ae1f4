"""A tower of 24 linear layers with biases."""
import torch
from torch import nn
class Model(nn.Module):
    """Twenty-four layers."""
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(dim, dim) for _ in range(24))
    def forward(self, x):
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return x
batch = 16
dim = 32
def get_inputs():
    return [torch.randn(batch, dim)]
def get_init_inputs():
    return [dim]
