# specimen: class=partial_work task=matmul device=any stage=correctness reason=wrong_output
"""Multiplies every second term of the sum and doubles the result."""


def matmul(a, b):
    if a.shape[1] < 2:
        return a @ b
    part = a[:, ::2] @ b[::2]
    return part * (a.shape[1] / ((a.shape[1] + 1) // 2))
