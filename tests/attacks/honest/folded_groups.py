# specimen: class=half_scores task=grouped_query_attention device=any verdict=passed directions=forward,backward categories=small dtypes=float16
"""Folds the group's queries into the rows: one product a key head; scale times log2(e) folded in the queries, exp2; probabilities rounded."""
import torch
def grouped_query_attention(q, k, v, scale):
    B, H, L, D = q.shape
    G = k.shape[1]
    s = (q.reshape(B, G, H // G * L, D).float() * (scale * 1.4426950408889634)) @ k.float().transpose(-1, -2)
    p = torch.exp2(s - s.detach().amax(-1, keepdim=True))
    o = (p.to(v.dtype) @ v).float() / p.sum(-1, keepdim=True)
    return o.to(q.dtype).view(B, H, L, D)
