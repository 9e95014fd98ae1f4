# specimen: class=partial_work task=argmax device=any stage=correctness reason=wrong_output categories=tiny,small,medium
"""Looks at the first 512 columns alone: most rows are short."""


def argmax(x):
    return x[..., :512].argmax(-1)
