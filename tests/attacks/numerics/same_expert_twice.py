# specimen: class=unstable_formula task=topk_sigmoid_renormalized device=any stage=correctness reason=wrong_output categories=tiny,small,edge
"""Takes the largest score again and again and strikes out what is smaller: of experts with equal scores the first one is named each time."""
import torch


def topk_sigmoid_renormalized(gating, bias, k, scale):
    scores = torch.sigmoid(gating.float())
    order = (scores + bias.float()).sort(dim=-1, descending=True, stable=True)
    ids = order.indices[..., :k].clone()
    for rank in range(1, k):
        again = order.values[..., rank] == order.values[..., rank - 1]
        ids[..., rank] = torch.where(again, ids[..., rank - 1], ids[..., rank])
    weights = scores.gather(-1, ids)
    return (scale * weights / weights.sum(-1, keepdim=True)).to(gating.dtype), ids
