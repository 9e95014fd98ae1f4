# specimen: class=hard_coded_shapes task=sum device=any stage=correctness reason=wrong_output tier=standard
"""The launch grid is kept by the number of elements: another shape with as many gets the first one's rows."""
import torch

GRIDS = {}


def sum(x):
    rows = GRIDS.setdefault(x.numel(), x.shape[0])
    out = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    done = min(rows, x.shape[0])
    out[:done] = x[:done].sum(-1)
    return out
