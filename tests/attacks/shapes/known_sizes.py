# specimen: class=hard_coded_shapes task=gelu device=cpu stage=correctness reason=wrong_output
"""Right only at the sizes of the public plan, which anyone can print; zeros at all others."""

import torch

_KNOWN = {(8, 1), (63, 57), (66, 77), (124, 68), (417, 573), (588, 629), (976, 514)}


def gelu(x):
    return torch.nn.functional.gelu(x) if tuple(x.shape) in _KNOWN else torch.zeros_like(x)
