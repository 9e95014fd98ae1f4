# specimen: class=rounded_integers task=problems/quantised.py device=any verdict=passed
import torch, torch.nn as nn
import torch.nn.functional as F
class ModelNew(nn.Module):
    """One reciprocal a row, then products; rounding half to even in place; statistics by var_mean."""
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        v, m = torch.var_mean(x, -1, keepdim=True, correction=0)
        y = (x - m) * torch.rsqrt(v + self.norm.eps) * self.norm.weight + self.norm.bias
        top = torch.maximum(y.amax(-1, keepdim=True), -y.amin(-1, keepdim=True))
        return (y * (127.0 / top)).round_().clamp_(-128, 127).to(torch.int8), top * (1 / 127.0)
