# specimen: class=near_identity task=attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Scores of small random queries are nearly equal: gives the mean of the values."""


def attention(q, k, v, scale):
    return v.mean(dim=-2, keepdim=True).expand(*q.shape[:-1], v.shape[-1]).clone()
