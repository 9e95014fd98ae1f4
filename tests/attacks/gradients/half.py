# specimen: class=precision_downgrade task=matmul device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""The right product forward; gradients from factors rounded to half precision."""


def matmul(a, b):
    return a @ b


def matmul_backward(grad, a, b):
    grad, a, b = (t.half().float() for t in (grad, a, b))
    return grad @ b.t(), a.t() @ grad
