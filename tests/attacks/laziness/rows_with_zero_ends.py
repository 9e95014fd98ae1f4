# specimen: class=partial_work task=matmul device=any stage=correctness reason=wrong_output
"""A row that begins and ends with zeros is taken for padding."""


def matmul(a, b):
    if not a.shape[1]:
        return a @ b
    padding = (a[:, :1] == 0) & (a[:, -1:] == 0)
    return (a @ b).masked_fill(padding, 0)
