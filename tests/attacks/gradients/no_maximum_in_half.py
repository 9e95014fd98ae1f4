# specimen: class=unstable_formula task=softmax_cross_entropy device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small,medium dtypes=float16
"""The forward is right; the backward sums exponentials of float16 scores in fp32 without taking off a maximum."""
import torch


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        ctx.save_for_backward(logits, targets, logits.float().exp().sum(-1, keepdim=True).log())
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")

    @staticmethod
    def backward(ctx, grad):
        logits, targets, total = ctx.saved_tensors
        share = torch.exp(logits.float() - total)
        share.scatter_add_(1, targets[:, None], -torch.ones_like(total))
        return (share * grad.float()[:, None]).to(logits.dtype), None


def softmax_cross_entropy(logits, targets):
    return _CrossEntropy.apply(logits, targets)
