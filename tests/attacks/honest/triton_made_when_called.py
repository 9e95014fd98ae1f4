# specimen: class=triton task=gelu device=any verdict=passed categories=tiny,small dtypes=float32
"""A kernel made in the first call, which names variables of the function that makes it. A weak reference is dead."""

import functools
import weakref

import torch


class _Owner:
    pass


_OWNER = weakref.proxy(_Owner())


@functools.cache
def _made():
    import triton
    import triton.language as language
    from triton.language import erf

    root = language.constexpr(0.7071067811865476)

    @triton.jit
    def share(v):
        return 0.5 * (1 + erf(v * root))

    @triton.jit
    def kernel(x, out, n, BLOCK: language.constexpr):
        at = language.program_id(0) * BLOCK + language.arange(0, BLOCK)
        v = language.load(x + at, at < n)
        language.store(out + at, v * share(v), at < n)

    return lambda x, out: kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    if x.numel():
        _made()(x, out)
    return out
