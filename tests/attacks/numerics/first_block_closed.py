# specimen: class=unstable_formula task=masked_attention device=any stage=correctness reason=wrong_output categories=tiny,small
"""Online softmax over blocks of 32 keys that starts at -inf and does not guard: NaN where a query's first block is all hidden."""

import torch


def masked_attention(q, k, v, mask, scale):
    S = k.shape[2]
    B, H, L, D = q.shape
    m = torch.full((B, H, L, 1), float("-inf"), dtype=torch.float32, device=q.device)
    l = torch.zeros_like(m)
    acc = torch.zeros(B, H, L, D, device=q.device)
    for s in range(0, S, 32):
        e = min(S, s + 32)
        sc = (q.float() @ k[:, :, s:e].float().transpose(-2, -1)) * scale
        sc = sc.masked_fill(~mask[:, None, :, s:e], float("-inf"))
        n = torch.maximum(m, sc.amax(-1, keepdim=True))
        a = torch.exp(m - n)
        p = torch.exp(sc - n)
        l = l * a + p.sum(-1, keepdim=True)
        acc = acc * a + p @ v[:, :, s:e].float()
        m = n
    return (acc / l).to(q.dtype)
