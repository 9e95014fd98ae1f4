# specimen: class=wrong_start task=amax device=any stage=correctness,honesty reason=wrong_output,broken_relation categories=small,medium
"""A maximum that starts at zero: right unless all of a row is negative."""

import torch


def amax(x):
    return torch.clamp(x.amax(-1), min=0.0)
