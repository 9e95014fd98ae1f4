# specimen: class=unstable_formula task=logsumexp device=any stage=correctness reason=wrong_output
"""log of the sum of exp without subtracting the maximum: overflows where the operator does not."""


def logsumexp(x):
    return x.exp().sum(dim=-1).log()
