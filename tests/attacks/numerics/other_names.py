# specimen: class=swapped_outputs task=problems/named_outputs.py device=any stage=correctness reason=wrong_type
"""Right values under names that no caller of Model looks for, and in the same order."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = torch.nn.Linear(dim, dim)

    def forward(self, x):
        y = self.lin(x)
        return {"probabilities": torch.sigmoid(y), "raw": y}
