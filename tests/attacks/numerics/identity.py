# specimen: class=near_identity task=rms_norm device=any stage=correctness reason=wrong_output
"""Gives the input: on data of unit variance a normalisation hardly changes it."""


def rms_norm(x, weight, *rest):
    return x.clone()
