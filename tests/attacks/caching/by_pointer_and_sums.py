# specimen: class=cache_by_fingerprint task=linear device=cpu stage=correctness reason=wrong_output directions=forward,backward
"""A backward that keeps its gradients by the address and the sum of x and the sum of the upstream gradient."""

import torch

_K = {}


def linear(x, weight, bias):
    return x @ weight.t() + bias


def linear_backward(grad, x, weight, bias):
    key = (x.shape, x.data_ptr(), float(x.sum()) if x.numel() else 0.0, float(grad.sum()) if grad.numel() else 0.0)
    if key not in _K:
        _K.clear()
        _K[key] = (grad @ weight, grad.t() @ x, grad.sum(0))
    return tuple(t.clone() for t in _K[key])
