# specimen: class=stale_weights task=linear device=any stage=correctness reason=wrong_output directions=backward categories=tiny,small
"""The gradient of the inputs by weights that were copied at the first call of each shape."""

_PACKED = {}


def linear(x, weight, bias):
    return x @ weight.t() + bias


def linear_backward(grad, x, weight, bias):
    packed = _PACKED.setdefault((weight.data_ptr(), weight.shape), weight.clone())
    return grad @ packed, grad.t() @ x, grad.sum(0)
