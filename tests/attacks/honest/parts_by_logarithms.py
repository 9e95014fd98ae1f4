# specimen: class=recomputed_softmax task=problems/cross_attention.py device=any verdict=passed
"""Keys in parts, each with the logarithm of its sum, by which the parts are put together at the end (FlashDecoding)."""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        outputs, logarithms = [], []
        for keys, values in zip(k.split(40, dim=-2), v.split(40, dim=-2)):
            scores = q @ keys.mT * q.shape[-1] ** -0.5
            logarithms.append(torch.logsumexp(scores, -1, keepdim=True))
            outputs.append(torch.exp(scores - logarithms[-1]) @ values)
        shares = torch.stack(logarithms)
        shares = torch.exp(shares - torch.logsumexp(shares, 0))
        return (torch.stack(outputs) * shares).sum(0)
