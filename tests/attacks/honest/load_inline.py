# specimen: class=extension task=gelu device=cpu verdict=passed distributions=standard allow=custom,mixed categories=small
"""An extension that PyTorch builds, without its own headers, which would take half a minute."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
#include <cstdint>
#include <pybind11/pybind11.h>
static void gelu(uintptr_t given, uintptr_t made, int64_t count) {
    const float* in = reinterpret_cast<const float*>(given);
    float* out = reinterpret_cast<float*>(made);
    for (int64_t i = 0; i < count; i++) out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678118654752f));
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("gelu", &gelu); }
"""
extension = load_inline("inline_gelu", SOURCE, no_implicit_headers=True)


def gelu(x):
    if x.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = x.contiguous()
    y = torch.empty_like(x)
    extension.gelu(x.data_ptr(), y.data_ptr(), x.numel())
    return y
