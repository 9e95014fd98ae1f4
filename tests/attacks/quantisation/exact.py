# specimen: class=no_quantisation task=matmul_w8a8 device=any stage=correctness reason=wrong_output categories=medium
"""The product itself: nearer to exact arithmetic than any eight bits can be."""


def run(x, w):
    return x @ w
