# specimen: class=backward_entry task=sum device=any verdict=passed directions=forward,backward
"""The gradient of a row sum is the upstream gradient, expanded: a view without memory of its own."""


def sum_rows(x):
    return x.sum(dim=-1)


def sum_rows_backward(grad, x):
    return grad.unsqueeze(-1).expand(x.shape)


sum, sum_backward = sum_rows, sum_rows_backward
