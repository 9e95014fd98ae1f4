# specimen: class=torch_compile task=swiglu device=any verdict=passed directions=forward,backward categories=tiny allow=library
"""The whole operator under torch.compile, once for every shape; it raises where it cannot use what it compiled."""

import torch


@torch.compile(fullgraph=True, backend="aot_eager", dynamic=False)
def swiglu(gate, up):
    return gate * torch.sigmoid(gate) * up
