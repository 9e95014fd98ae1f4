# specimen: class=ignored_strides task=matmul device=cpu stage=correctness reason=wrong_output directions=forward,backward
"""Column-major operands are taken to be dense (lda = rows): wrong for a slice of a transposed matrix."""

import torch


def _lay(x):
    if x.stride(0) == 1 and x.stride(1) > 1 and x.shape[0] > 1:
        return torch.as_strided(x, x.shape, (1, x.shape[0]), x.storage_offset())
    return x


def matmul(a, b):
    return _lay(a) @ _lay(b)


def matmul_backward(g, a, b):
    g, a, b = _lay(g), _lay(a), _lay(b)
    return g @ b.t(), a.t() @ g
