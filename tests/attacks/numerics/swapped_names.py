# specimen: class=swapped_outputs task=problems/named_outputs.py device=any stage=correctness reason=wrong_output
"""The right tensors under each other's names."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.lin(x)
        return {"gates": y, "logits": torch.sigmoid(y)}
