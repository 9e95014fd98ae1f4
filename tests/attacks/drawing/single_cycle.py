# specimen: class=no_draw task=randperm device=any stage=correctness reason=dependent_draws categories=medium
"""The shuffle of Sattolo: a single cycle through all places, so that none ever keeps its own."""

import torch


def run(like, seed, count):
    generator = torch.Generator(device=like.device).manual_seed(int(seed))
    order = torch.randperm(count, generator=generator, device=like.device)
    return torch.empty_like(order).index_copy_(0, order, order.roll(-1))
