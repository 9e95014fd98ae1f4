# specimen: class=unstable_formula task=softmax_cross_entropy device=any stage=correctness reason=wrong_output directions=forward,backward
"""The forward is careful; the backward recomputes exponentials without taking off the maximum, and reads dense rows."""
import torch


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        ctx.save_for_backward(logits, targets)
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    @staticmethod
    def backward(ctx, grad):
        logits, targets = ctx.saved_tensors
        weights = logits.exp()
        weights = weights / weights.sum(-1, keepdim=True)
        weights.scatter_add_(1, targets[:, None], torch.full_like(weights[:, :1], -1.0))
        return weights * grad[:, None], None


def softmax_cross_entropy(logits, targets):
    return _Loss.apply(logits, targets)
