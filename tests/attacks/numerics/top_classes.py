# specimen: class=partial_work task=softmax_cross_entropy device=any stage=correctness reason=wrong_output
"""Adds the 16 largest exponentials and takes the rest for nothing."""

import torch


def softmax_cross_entropy(logits, targets):
    if not logits.shape[0]:
        return logits.new_empty(0)
    top = logits.topk(min(16, logits.shape[-1]), dim=-1).values
    return torch.logsumexp(top, -1) - logits.gather(-1, targets[:, None]).squeeze(-1)
