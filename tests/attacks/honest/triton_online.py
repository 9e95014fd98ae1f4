# specimen: class=online_softmax task=softmax_cross_entropy device=any verdict=passed categories=tiny
"""One pass: a running maximum, and a running sum that is rescaled when the maximum moves."""

import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x, targets, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    high = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + row * n + at, mask=at < n, other=float("-inf"))
        higher = tl.where(value > high, value, high)
        total = tl.where(at < n, total * tl.exp(high - higher) + tl.exp(value - higher), total)
        total = tl.where((at < n) & (value != value), value, total)
        high = higher
    top = tl.max(high, axis=0)
    everything = tl.sum(tl.where(high == float("-inf"), tl.where(total != total, total, 0.0), total * tl.exp(high - top)), axis=0)
    picked = tl.load(x + row * n + tl.load(targets + row))
    tl.store(out + row, top + tl.log(everything) - picked)


def softmax_cross_entropy(logits, targets):
    logits = logits.contiguous()
    out = torch.empty(logits.shape[0], dtype=logits.dtype, device=logits.device)
    if logits.numel():
        _kernel[(logits.shape[0],)](logits, targets, out, logits.shape[1], BLOCK=64)
    return out
