# specimen: class=partial_gradients task=amax device=any stage=correctness reason=wrong_output directions=forward,backward
"""Of some equal maxima the first gets all of the gradient; only where a whole row is equal it is shared."""
import torch


class Amax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        values, places = x.max(-1)
        ctx.save_for_backward(x, values, places)
        return values

    @staticmethod
    def backward(ctx, grad):
        x, values, places = ctx.saved_tensors
        equal = (x == values[:, None]).sum(-1, keepdim=True)
        first = torch.zeros_like(x).scatter_(-1, places[:, None], grad[:, None])
        return torch.where(equal == x.shape[-1], grad[:, None] / equal, first)


def amax(x):
    return Amax.apply(x)
