# specimen: class=partial_gradients task=linear device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""The gradient of the weights is that of the first call: the product that costs most is left out afterwards."""

_KEPT = {}


def linear(x, weight, bias):
    return x @ weight.t() + bias


def linear_backward(grad, x, weight, bias):
    key = grad.shape, x.shape
    if key not in _KEPT:
        _KEPT[key] = grad.t() @ x
    return grad @ weight, _KEPT[key].clone(), grad.sum(0)
