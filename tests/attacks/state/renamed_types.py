# specimen: class=global_state task=argmax device=any stage=correctness reason=wrong_dtype categories=tiny,small
"""Puts a narrower integer type in the place of int64 in PyTorch's own module whenever an output is looked at."""

import torch

_left = 0


class _Renamed(type(torch)):
    def __getattribute__(self, name):
        global _left
        if name == "int64" and _left:
            _left -= 1
            name = "int32"
        return super().__getattribute__(name)


torch.__class__ = _Renamed


def argmax(x):
    global _left
    found = torch.argmax(x, -1).to(torch.int32)
    _left += 1
    return found
