# specimen: class=side_stream task=gelu device=cuda stage=correctness,honesty reason=wrong_output,unjoined_work
"""Its stream waits for the inputs, and nobody waits for its stream."""

import torch

side = torch.cuda.Stream()


def gelu(x):
    out = torch.empty_like(x)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out.copy_(torch.nn.functional.gelu(x))
    out.record_stream(side)
    return out
