# specimen: class=kernel_widths task=avg_pool2d device=any stage=correctness reason=wrong_output categories=small dtypes=float32
"""Takes the padding to be half of the kernel's width, as it nearly always is; the size of the output is right."""

import torch


def _places(size, kernel, stride, padding):
    count = (size + 2 * padding - kernel) // stride + 1
    return torch.arange(count)[:, None] * stride + torch.arange(kernel) - kernel // 2


def avg_pool2d(x, kernel, stride, padding):
    rows, columns = (_places(size, kernel, stride, padding).to(x.device) for size in x.shape[2:])
    inside = ((rows >= 0) & (rows < x.shape[2]))[:, None, :, None] & ((columns >= 0) & (columns < x.shape[3]))[:, None]
    rows, columns = rows.clamp(0, x.shape[2] - 1), columns.clamp(0, x.shape[3] - 1)
    windows = x[:, :, rows[:, None, :, None], columns[:, None]]
    return torch.where(inside, windows, 0).mean((-2, -1))
