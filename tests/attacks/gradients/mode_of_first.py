# specimen: class=detached_gradients task=gelu device=any stage=correctness reason=missing_gradient directions=forward,backward categories=
"""Whether a shape is trained is decided when it is first met."""
import torch
import torch.nn.functional as F

TRAINED = {}


def gelu(x):
    trained = TRAINED.setdefault((x.shape, x.dtype), x.requires_grad)
    return F.gelu(x) if trained else F.gelu(x.detach())
