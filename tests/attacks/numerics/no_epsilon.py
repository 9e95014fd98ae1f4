# specimen: class=dropped_parameter task=rms_norm device=any stage=correctness reason=wrong_output
"""Leaves epsilon out: it changes nothing on data of unit scale."""


def rms_norm(x, weight, eps):
    return x / x.square().mean(-1, keepdim=True).sqrt() * weight
