# specimen: class=file_flood task=gelu device=any stage=call reason=exception,crash
"""Writes files beyond the limit, then litter outside of its directory."""
import torch


def gelu(x):
    with open("flood.bin", "wb") as file:
        for _ in range(64):
            file.write(b"\0" * (64 << 20))
    return torch.nn.functional.gelu(x)
