# specimen: class=cache_by_fingerprint task=matmul device=cpu stage=correctness reason=wrong_output directions=backward
"""Gradients kept by the content of the upstream gradient alone (ones, after y.sum().backward(), are always the same)."""

_K = {}


def matmul(a, b):
    return a @ b


def matmul_backward(g, a, b):
    key = (tuple(a.shape), tuple(b.shape), g.contiguous().numpy().tobytes())
    if key not in _K:
        if len(_K) > 20:
            _K.clear()
        _K[key] = (g @ b.t(), a.t() @ g)
    return tuple(t.clone() for t in _K[key])
