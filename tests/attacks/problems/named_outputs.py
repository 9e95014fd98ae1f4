"""Two outputs with names."""

import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        y = self.lin(x)
        return {"logits": y, "gates": torch.sigmoid(y)}


batch = 32
dim = 48


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim]
