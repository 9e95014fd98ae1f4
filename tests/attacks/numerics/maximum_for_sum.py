# specimen: class=near_identity task=logsumexp device=any stage=correctness reason=wrong_output
"""Gives the maximum: what log-sum-exp comes to on data of large scale."""


def logsumexp(x):
    return x.amax(-1)
