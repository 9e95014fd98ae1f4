# specimen: class=precision_downgrade task=log_softmax device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small,medium dtypes=bfloat16
"""The forward is right; of each row it keeps the logarithm of the sum in bfloat16, from which the backward makes weights."""
import torch


class _LogSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        total = torch.logsumexp(x.float(), -1, keepdim=True)
        ctx.save_for_backward(x, total.to(x.dtype))
        return torch.log_softmax(x, -1)

    @staticmethod
    def backward(ctx, grad):
        x, total = ctx.saved_tensors
        share, grad = torch.exp(x.float() - total.float()), grad.float()
        return (grad - share * grad.sum(-1, keepdim=True)).to(x.dtype)


def log_softmax(x):
    return _LogSoftmax.apply(x)
