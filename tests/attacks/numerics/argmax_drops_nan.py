# specimen: class=dropped_nan task=argmax device=any stage=correctness reason=wrong_output
"""NaN never wins, though it does in PyTorch."""

import torch


def argmax(x):
    return torch.argmax(torch.nan_to_num(x, nan=-3e38, posinf=3e38, neginf=-3e38), -1)
