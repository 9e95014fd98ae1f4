# specimen: class=strided_inputs task=problems/transposed.py device=any verdict=passed allow=library,mixed,custom timed=yes
"""Is made for what the problem file gives: a transposed factor, and a part of wider rows."""
import torch
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        assert a.stride(0) == 1, "made for the transpose that the file gives"
        return torch.tanh(torch.mm(b.t(), a.t())).sum(dim=0)
