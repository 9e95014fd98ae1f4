# specimen: class=winograd task=conv2d directions=forward allow=library,mixed,custom device=any verdict=passed categories=tiny,small,medium
"""3 x 3 convolutions of stride 1 by Winograd's F(4 x 4), anything else by the library."""

import torch
import torch.nn.functional as F

INPUT = [
    [4, 0, -5, 0, 1, 0],
    [0, -4, -4, 1, 1, 0],
    [0, 4, -4, -1, 1, 0],
    [0, -2, -1, 2, 1, 0],
    [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
]
KERNEL = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
OUTPUT = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]


def conv2d(x, weight, bias, stride, padding):
    if weight.shape[-1] != 3 or stride != 1 or not x.numel() or x.dtype != torch.float32:
        return F.conv2d(x, weight, bias, stride, padding)
    of_input, of_kernel, of_output = (torch.tensor(t, dtype=x.dtype, device=x.device) for t in (INPUT, KERNEL, OUTPUT))
    height, width = (size + 2 * padding - 2 for size in x.shape[2:])
    below, right = (-(-size // 4) * 4 - size + padding for size in (height, width))
    tiles = F.pad(x, (padding, right, padding, below)).unfold(2, 6, 4).unfold(3, 6, 4)
    inputs = of_input @ tiles @ of_input.T
    kernels = of_kernel @ weight @ of_kernel.T
    products = torch.einsum("ocij,bcpqij->bopqij", kernels, inputs)
    out = (of_output @ products @ of_output.T).transpose(3, 4).flatten(4, 5).flatten(2, 3)
    return (out[:, :, :height, :width] + bias[:, None, None]).contiguous()
