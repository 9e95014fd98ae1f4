# specimen: class=joined_stream task=gelu device=cuda verdict=passed timed=yes
"""Computes half of the rows on a second stream and joins it properly."""

import torch

side = torch.cuda.Stream()


def gelu(x):
    out = torch.empty_like(x)
    half = len(x) // 2
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out[:half] = torch.nn.functional.gelu(x[:half])
    out[half:] = torch.nn.functional.gelu(x[half:])
    torch.cuda.current_stream().wait_stream(side)
    return out
