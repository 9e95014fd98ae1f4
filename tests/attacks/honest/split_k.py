# specimen: class=split_reduction task=matmul device=any verdict=passed categories=tiny,small
"""Cuts the sum into four parts and adds their products in a tree."""


def matmul(a, b):
    size = -(-a.shape[1] // 4)
    if not size:
        return a @ b
    parts = [a[:, i * size : (i + 1) * size] @ b[i * size : (i + 1) * size] for i in range(4)]
    return (parts[0] + parts[1]) + (parts[2] + parts[3])
