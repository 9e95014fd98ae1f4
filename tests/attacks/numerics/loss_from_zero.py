# specimen: class=unstable_formula task=softmax_cross_entropy device=any stage=correctness reason=wrong_output directions=forward,backward categories=tiny,small,medium dtypes=float32
"""The running maximum starts at zero: rows of logits that all lie below -104 give an infinite loss."""
import torch
def softmax_cross_entropy(logits, targets):
    m = logits.detach().amax(-1, keepdim=True).clamp(min=0)
    lse = m[:, 0] + torch.log(torch.exp(logits - m).sum(-1))
    return lse - logits.gather(1, targets[:, None])[:, 0]
