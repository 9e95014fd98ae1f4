# specimen: class=in_place_like_model task=problems/cache_update.py device=any verdict=passed allow=library
"""Adds in place, and returns what the caller gave, as Model does."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, cache, rows):
        cache.narrow(0, 0, rows.shape[0]).add_(rows)
        return cache
