# specimen: class=extension task=gelu device=cpu verdict=passed allow=custom,mixed categories=small
"""Functions of its own library say whether it can be used here, and how many numbers one call takes."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

SOURCE = """
#include <cmath>
extern "C" int can_be_used(void) { return 1; }
extern "C" int at_once(int count) { return count < 1000 ? count : 1000; }
extern "C" void gelu(const float *in, float *out, int from, int count) {
    for (int i = from; i < from + count; i++) out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678118654752f));
}
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "own.cpp").write_text(SOURCE)
subprocess.run(["g++", "-O3", "-shared", "-fPIC", "own.cpp", "-o", "own.so"], cwd=folder, check=True)
library = ctypes.CDLL(str(folder / "own.so"))


def gelu(x):
    if x.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if not library.can_be_used():
        return torch.nn.functional.gelu(x)
    x = x.contiguous()
    y = torch.empty_like(x)
    done = 0
    while done < x.numel():
        count = library.at_once(x.numel() - done)
        library.gelu(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), done, count)
        done += count
    return y
