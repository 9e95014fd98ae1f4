# specimen: class=recomputed_softmax task=softmax_cross_entropy device=any verdict=passed directions=forward,backward
"""The backward makes the probabilities again from the logarithm of each row's sum, as published kernels do."""
import torch


class CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        wide = logits.float()
        top = wide.amax(-1)
        total = top + (wide - top[:, None]).exp().sum(-1).log()
        ctx.save_for_backward(logits, targets, total)
        return (total - wide.gather(1, targets[:, None]).squeeze(1)).to(logits.dtype)

    @staticmethod
    def backward(ctx, grad):
        logits, targets, total = ctx.saved_tensors
        made = torch.exp(logits.float() - total[:, None])
        made.scatter_add_(1, targets[:, None], made.new_full((len(targets), 1), -1.0))
        return (made * grad.float()[:, None]).to(logits.dtype), None


def softmax_cross_entropy(logits, targets):
    return CrossEntropy.apply(logits, targets)
