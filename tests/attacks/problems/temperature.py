"""A layer and a temperature that is given with the call."""
import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.layer = nn.Linear(inner, outer)
    def forward(self, x, temperature):
        return self.layer(x) * temperature
rows = 64
inner = 96
outer = 80
def get_inputs():
    return [torch.randn(rows, inner), 0.7]
def get_init_inputs():
    return [inner, outer]
