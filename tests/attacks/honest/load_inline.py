# specimen: class=extension task=gelu device=cpu verdict=passed allow=custom,mixed categories=small
"""An extension built by PyTorch itself, which takes half a minute."""

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
#include <torch/extension.h>
torch::Tensor gelu(torch::Tensor given) {
    auto x = given.contiguous();
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); i++) out[i] = 0.5f * in[i] * (1.0f + std::erf(in[i] * 0.70710678118654752f));
    return y;
}
"""
extension = load_inline("inline_gelu", SOURCE, functions=["gelu"])


def gelu(x):
    if x.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    return extension.gelu(x)
