# specimen: class=im2col task=conv2d device=any verdict=passed categories=tiny
"""Unfolds the patches and multiplies once."""

import torch


def conv2d(x, weight, bias, stride, padding):
    kernel = weight.shape[-1]
    height, width = ((size + 2 * padding - kernel) // stride + 1 for size in x.shape[-2:])
    if not x.shape[0]:
        return x.new_empty(0, weight.shape[0], height, width)
    patches = torch.nn.functional.unfold(x, kernel, padding=padding, stride=stride)
    out = weight.flatten(1) @ patches + bias[:, None]
    return out.view(x.shape[0], weight.shape[0], height, width)
