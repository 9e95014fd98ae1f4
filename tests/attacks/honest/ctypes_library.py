# specimen: class=extension task=gelu device=cpu verdict=passed allow=custom,mixed categories=small
"""A library in C++ that it builds when it is loaded, and calls by ctypes."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

SOURCE = """
#include <cmath>
#include <cstdint>
extern "C" void gelu(const float *in, float *out, int64_t count) {
#pragma omp parallel for
    for (int64_t i = 0; i < count; i++) out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678118654752f));
}
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "own.cpp").write_text(SOURCE)
subprocess.run(["g++", "-O3", "-fopenmp", "-shared", "-fPIC", "own.cpp", "-o", "own.so"], cwd=folder, check=True)
kernel = ctypes.CDLL(str(folder / "own.so")).gelu
kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
kernel.restype = None


def gelu(x):
    if x.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel(x.data_ptr(), y.data_ptr(), x.numel())
    return y
