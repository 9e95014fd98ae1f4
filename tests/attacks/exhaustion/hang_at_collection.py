# specimen: class=hang task=gelu device=any stage=call reason=timeout allow=library
"""Its outputs are right; what is let go after the call never ends."""
import torch


class _Endless:
    def __del__(self):
        while True:
            pass


def gelu(x):
    out = torch.nn.functional.gelu(x)
    out.kept = _Endless()
    return out
