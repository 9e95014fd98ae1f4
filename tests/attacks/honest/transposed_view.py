# specimen: class=strided_output task=matmul device=any verdict=passed
"""Gives a transposed view of what it computed: its output is not contiguous."""


def matmul(a, b):
    return (b.t() @ a.t()).t()
