# specimen: class=side_stream task=gelu device=cuda stage=correctness,honesty reason=wrong_output,unjoined_work
"""Computes on a stream that nobody waits for, behind a long chain of other work."""

import torch

side = torch.cuda.Stream()
weight = torch.randn(4096, 4096, device="cuda")


def gelu(x):
    out = torch.empty_like(x)
    with torch.cuda.stream(side):
        busy = weight
        for _ in range(8):
            busy = busy @ weight
        out.copy_(torch.nn.functional.gelu(x) + 0 * busy[0, 0].nan_to_num(0.0, 0.0, 0.0))
    return out
