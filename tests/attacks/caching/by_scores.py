# specimen: class=cache_by_fingerprint task=problems/ce_labels.py device=cpu stage=correctness reason=wrong_output
"""Kept by the exact content of the scores alone: stale when only the labels have changed (an integer argument)."""
import torch
import torch.nn.functional as F
_K = {}
class ModelNew(torch.nn.Module):
    def forward(self, scores, labels):
        key = (scores.shape, scores.numpy().tobytes())
        if key not in _K:
            if len(_K) > 40: _K.clear()
            _K[key] = F.cross_entropy(scores, labels)
        return _K[key].clone()
