# specimen: class=ignored_strides task=problems/transposed.py device=any stage=correctness reason=wrong_output allow=library,mixed,custom timed=yes
"""Takes every input for row-major from where it starts, as a kernel does that is given pointers and sizes alone."""
import torch
class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        a, b = (torch.as_strided(x, x.shape, (x.shape[1], 1), x.storage_offset()) if x.numel() else x for x in (a, b))
        return torch.tanh(a @ b).sum(dim=1)
