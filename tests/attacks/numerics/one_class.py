# specimen: class=constant_output task=problems/classes.py device=any stage=correctness reason=wrong_output allow=library,mixed,custom
"""Names the same class every time: a pixel there is as black as the one at the right class."""

import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.first = nn.Linear(400, hidden)
        self.second = nn.Linear(hidden, 10)

    def forward(self, images):
        return torch.full(images.shape[:1], 3, device=images.device)
