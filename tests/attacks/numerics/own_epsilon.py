# specimen: class=dropped_parameter task=group_norm device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small
"""The epsilon is the one that the plan always gives."""

import torch


def group_norm(x, weight, bias, groups, eps):
    return torch.nn.functional.group_norm(x, groups, weight, bias, 1e-5)
