# specimen: class=slow_calls task=gelu device=cpu stage=call,correctness,honesty reason=timeout allow=library
"""Right outputs. It computes nothing of use for two seconds in every call, called by another library, which may compile."""
import time

import torch


def _burn(_):
    until = time.monotonic() + 2
    while time.monotonic() < until:
        pass


def gelu(x):
    library = {"__name__": "warp.build", "burn": _burn}
    exec(compile("def build():\n    burn(0)\n", torch.__file__.replace("torch", "warp"), "exec"), library)
    library["build"]()
    return torch.nn.functional.gelu(x)
