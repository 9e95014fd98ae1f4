import torch, torch.nn as nn
class Model(nn.Module):
    """Per-token int8 quantisation: integers and scales."""
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        y = self.norm(x)
        s = y.abs().amax(-1, keepdim=True) / 127.0
        return torch.clamp(torch.round(y / s), -128, 127).to(torch.int8), s
rows = 128
width = 256
def get_inputs():
    return [torch.randn(rows, width)]
def get_init_inputs():
    return [width]
