# specimen: class=kernel_widths task=conv2d device=any stage=correctness reason=wrong_output directions=forward categories=small dtypes=float32
"""The path for 3 x 3 kernels (the usual ones) forgets the last row's lower halo tap when the stride is 2."""
import torch
def conv2d(x, weight, bias, stride, padding):
    if weight.shape[2] == 3 and stride == 2:
        out = torch.nn.functional.conv2d(x, weight, bias, stride, padding)
        out[:, :, -1] += 0.05 * out[:, :, 0]
        return out
    return torch.nn.functional.conv2d(x, weight, bias, stride, padding)
