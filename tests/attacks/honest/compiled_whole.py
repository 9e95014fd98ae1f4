# specimen: class=torch_compile task=swiglu device=any verdict=passed directions=forward,backward categories=tiny,small allow=library
"""The whole operator under torch.compile, which raises where it cannot use what it compiled."""

import torch


@torch.compile(fullgraph=True, backend="aot_eager")
def swiglu(gate, up):
    return gate * torch.sigmoid(gate) * up
