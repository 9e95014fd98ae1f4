# specimen: class=named_outputs task=problems/named_outputs.py device=any verdict=passed allow=library
"""Right names in another order."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.lin(x)
        return {"gates": torch.sigmoid(y), "logits": y}
