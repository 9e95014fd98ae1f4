# specimen: class=hang task=gelu device=cpu stage=call reason=timeout
"""Calls another library, which might compile, until a flag is set that nothing sets."""
import torch

library = {"__name__": "warp.build"}
exec(compile("def build():\n    return sum(range(100000))\n", torch.__file__.replace("torch", "warp"), "exec"), library)


def gelu(x):
    flag = torch.zeros(1)
    while not flag.item():
        library["build"]()
    return torch.nn.functional.gelu(x)
