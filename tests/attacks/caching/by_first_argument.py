# specimen: class=cache_by_fingerprint task=softmax_cross_entropy device=cpu stage=correctness reason=wrong_output directions=forward
"""Kept by the exact content of the logits alone: stale when only the targets have changed."""

import torch

_K = {}


def softmax_cross_entropy(logits, targets):
    key = (tuple(logits.shape), logits.contiguous().numpy().tobytes())
    if key not in _K:
        if len(_K) > 20:
            _K.clear()
        _K[key] = torch.logsumexp(logits, 1) - (logits.gather(1, targets[:, None])[:, 0] if logits.numel() else 0)
    return _K[key].clone()
