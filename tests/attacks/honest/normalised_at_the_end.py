# specimen: class=normalised_at_the_end task=masked_attention device=any verdict=passed directions=backward categories=tiny,small
"""softmax(s) v = (exp(s - max) v) / sum exp(s - max): one division a row instead of one a score."""
import torch


def masked_attention(q, k, v, mask, scale):
    s = (q @ k.transpose(-1, -2)) * scale + torch.zeros(mask.shape, device=q.device).masked_fill_(~mask, -torch.inf)[:, None]
    p = torch.exp(s - s.detach().amax(-1, keepdim=True))
    return (p @ v) / p.sum(-1, keepdim=True)
