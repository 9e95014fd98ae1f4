"""Plain PyTorch candidates, and those that bring C++ or CUDA through ``torch.utils.cpp_extension.load_inline``."""

from __future__ import annotations

import importlib.util

from kerneleval.languages import cuda
from kerneleval.languages.common.base import register
from kerneleval.languages.common.python_module import PythonLanguage
from kerneleval.languages.cpp import missing_compiler
from kerneleval.records import Candidate


@register
class Torch(PythonLanguage):
    """A Python module that imports neither Triton nor Numba."""

    name = "torch"
    devices = ("cpu", "cuda", "rocm", "metal", "xpu")
    baseline_devices = ("opencl",)
    imported = "torch"
    install = "pip install torch"

    def missing_for(self, candidate: Candidate, device: str) -> str:
        """See :meth:`Language.missing_for`: extensions need compilers, and so does ``torch.compile`` on the CPU.

        Found in the text, comments included: where the tool is there, that does no harm.
        """
        text = "\n".join(text for _, text in candidate.files)
        extension = "cpp_extension" in text
        on_host = device.partition(":")[0] in ("cpu", "opencl")
        if missing := self.missing(device):
            return missing
        if extension and importlib.util.find_spec("ninja") is None:
            return "ninja, which builds C++ extensions: pip install ninja"
        if (extension or (on_host and "torch.compile" in text)) and (missing := missing_compiler()):
            return missing
        if extension and "cuda_sources" in text and device.partition(":")[0] == "cuda" and not cuda.find_nvcc():
            return "nvcc, for an extension with CUDA sources: install the CUDA toolkit"
        return ""

    def claim(self, text: str) -> int:
        """Every Python file that no more special language claims."""
        return 10
