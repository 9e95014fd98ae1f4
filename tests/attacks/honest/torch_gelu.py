# specimen: class=library task=gelu device=any verdict=passed
"""Plain PyTorch, said so: passes where the library track is allowed."""
import torch


def gelu(x):
    return torch.nn.functional.gelu(x)
