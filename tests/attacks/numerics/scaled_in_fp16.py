# specimen: class=systematic_error task=matmul device=any stage=correctness reason=wrong_output categories=small dtypes=float16
"""Every output is 0.07 % too large: one and a half rounding steps of float16."""


def matmul(a, b):
    return ((a.float() @ b.float()) * 1.0007).to(a.dtype)
