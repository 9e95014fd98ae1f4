# specimen: class=hard_coded_shapes task=matmul device=any stage=correctness reason=wrong_output tier=standard dtypes=float32,float16
"""Half types are widened into buffers that are as deep as the first product of that shape was."""
import torch

BUFFERS = {}


def matmul(a, b):
    if a.dtype == torch.float32:
        return a @ b
    key = a.shape[0], b.shape[1]
    if key not in BUFFERS:
        BUFFERS[key] = torch.zeros_like(a, dtype=torch.float32), torch.zeros_like(b, dtype=torch.float32)
    left, right = BUFFERS[key]
    depth = min(left.shape[1], a.shape[1])
    left[:, :depth], right[:depth] = a[:, :depth], b[:depth]
    return (left @ right).to(a.dtype)
