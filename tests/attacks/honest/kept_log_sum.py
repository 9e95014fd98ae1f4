# specimen: class=kept_log_sum task=cross_entropy device=any verdict=passed directions=forward,backward categories=tiny,small,medium
"""As fused cross entropies do: one number a row is kept for the backward, the logarithm of its sum in fp32."""
import torch


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        wide = logits.float()
        total = torch.logsumexp(wide, -1, keepdim=True)
        ctx.save_for_backward(logits, targets, total)
        return (total - wide.gather(1, targets[:, None])).mean().to(logits.dtype)

    @staticmethod
    def backward(ctx, grad):
        logits, targets, total = ctx.saved_tensors
        share = torch.exp(logits.float() - total)
        share.scatter_add_(1, targets[:, None], -torch.ones_like(total))
        return (share * (grad.float() / len(logits))).to(logits.dtype), None


def cross_entropy(logits, targets):
    return _CrossEntropy.apply(logits, targets)
