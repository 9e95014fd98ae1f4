# specimen: class=output_aliasing task=add device=any stage=correctness reason=output_alias
"""Adds into the first input and gives that back."""


def add(x, y):
    return x.add_(y)
