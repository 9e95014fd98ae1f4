# specimen: class=side_stream task=gelu device=cuda stage=correctness,honesty reason=wrong_output,unjoined_work
"""Its stream does not wait for the inputs; the caller's stream waits for it."""

import torch

side = torch.cuda.Stream()


def gelu(x):
    out = torch.empty_like(x)
    with torch.cuda.stream(side):
        out.copy_(torch.nn.functional.gelu(x))
    torch.cuda.current_stream().wait_stream(side)
    return out
