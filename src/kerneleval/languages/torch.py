"""Plain PyTorch candidates, and those that bring C++ or CUDA through ``torch.utils.cpp_extension.load_inline``."""

from __future__ import annotations

from kerneleval.languages.common.python_module import PythonLanguage
from kerneleval.languages.common.registry import register

__all__ = ["Torch"]


@register
class Torch(PythonLanguage):
    """A Python module that imports neither Triton nor Numba."""

    name = "torch"
    devices = ("cpu", "cuda", "rocm", "metal", "xpu")
    baseline_devices = ("opencl",)
    imported = "torch"
    install = "pip install torch"

    def claim(self, text: str) -> int:
        """Every Python file that no more special language claims."""
        return 10
