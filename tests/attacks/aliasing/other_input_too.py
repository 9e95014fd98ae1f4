# specimen: class=input_mutation task=problems/cache_update.py device=any stage=honesty reason=input_mutation
"""Model writes into the first argument; here the second one is spent as well."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, cache, rows):
        n = rows.shape[0]
        cache[:n] = rows.add_(cache[:n])
        return cache
