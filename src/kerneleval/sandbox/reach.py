"""What a worker can reach: paths, device nodes and environment variables. One list, used by every layer.

It enforces nothing: ``root_view.py`` binds these paths, ``landlock.py`` grants them, and ``lifecycle.py`` sets the
environment.
"""
# Paths are strings here: they end in system calls, and links among them must stay links.

from __future__ import annotations

import os
import sys
from pathlib import Path

from kerneleval.languages import torch_device
from kerneleval.languages.common import opencl_runtime
from kerneleval.sandbox.slot import Slot

_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/etc", "/sys"),
    *("/nix/store", "/gnu/store"),
)
_DEVICE_RUNTIME = ("/run/nvidia-persistenced", "/run/opengl-driver", "/run/nvidia")
_OPEN_PARTS = ("__init__.py", "records", "languages", "devices", "sandbox", "worker")
_TOOLS = ("/usr/local/cuda/bin", "/opt/rocm/bin", "/usr/local/bin", "/usr/bin", "/bin")
_KEPT = (
    *("CC", "CXX", "LD_LIBRARY_PATH", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "TZ", "VIRTUAL_ENV"),
    *("CUDA_DEVICE_ORDER", "CUDA_HOME", "CUDA_MODULE_LOADING", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"),
    *("NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES"),
    *("GPU_DEVICE_ORDINAL", "HIP_PATH", "HIP_PLATFORM", "HIP_VISIBLE_DEVICES", "ROCM_PATH", "ROCR_VISIBLE_DEVICES"),
    *("KERNELEVAL_OPENCL", "OCL_ICD_FILENAMES", "OCL_ICD_VENDORS", "POCL_MAX_PTHREAD_COUNT"),
    *("MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"),
    *("TRITON_INTERPRET", "TRITON_LIBCUDA_PATH", "TRITON_PTXAS_PATH"),
)
_KEPT_PREFIXES = ("OMP_", "GOMP_", "KMP_")


def clean_environment() -> dict[str, str]:
    """The part of this process's environment that a zygote or worker may see.

    A process keeps the environment block it was started with in its memory and passes it to every fork: start the
    zygote with this, or what a worker finds by scanning its own memory includes the judge's secrets.
    """
    kept = {n: v for n, v in os.environ.items() if n in _KEPT or n.startswith(_KEPT_PREFIXES)}
    own = str(Path(sys.executable).parent)
    kept["PATH"] = os.pathsep.join(dict.fromkeys((own, *_TOOLS)))
    kept["LANG"] = kept["LC_ALL"] = "C.UTF-8"
    return kept


def worker_environment(scratch: str) -> dict[str, str]:
    """Environment of a worker whose temporary files and caches all live under ``scratch``."""
    caches = {
        "CUDA_CACHE_PATH": "nv",
        "MPLCONFIGDIR": "matplotlib",
        "NUMBA_CACHE_DIR": "numba",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "TORCH_EXTENSIONS_DIR": "extensions",
        "TORCH_HOME": "torch",
        "TRITON_CACHE_DIR": "triton",
        "TRITON_HOME": "home",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
    }
    environment = clean_environment()
    environment |= {name: os.path.join(scratch, directory) for name, directory in caches.items()}
    environment |= {"HOME": os.path.join(scratch, "home"), "TMPDIR": scratch, "TEMP": scratch, "TMP": scratch}
    environment |= {"USER": "kerneleval", "LOGNAME": "kerneleval"}
    environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # PyTorch's pool of compiling processes would find no GPU here
    return environment


def package_folders() -> list[str]:
    """The folders that ``PYTHONPATH`` names: libraries that are not installed, for candidates to import.

    What holds this package, a home, the working directory or a whole file system is left out: a worker that may read a
    folder may read everything in it.
    """
    package = str(Path(__file__).resolve().parent.parent)
    named = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and os.path.isdir(p)]
    folders = dict.fromkeys(os.path.realpath(p) for p in named)
    return [f for f in folders if not _is_wide(f) and not _below(package, f)]


def readable_paths(slot: Slot, device: str) -> list[str]:
    """Subtrees to read and execute: the system, this interpreter, its libraries, and this package's worker side.

    Called in the worker, whose imported modules show where the libraries are. None of them is below another.
    """
    paths = [*_SYSTEM, *slot.readable]
    if torch_device(device) != "cpu":
        paths += _DEVICE_RUNTIME
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    executable = Path(sys.executable)
    prefixes |= {str(executable.parent.parent), str(executable.resolve().parent.parent)}
    paths += sorted(p for p in prefixes if not _holds_home(p))
    package = Path(__file__).resolve().parent.parent
    paths += [str(package / part) for part in _OPEN_PARTS]
    paths += package_folders()
    if device == "opencl" and (library := opencl_runtime.chosen_library()):
        folder = str(library.parent.parent)  # a runtime reads files beside the folder of its library
        paths.append(str(library.parent) if _is_wide(folder) else folder)
    paths += _library_paths(paths, package)
    paths += [os.path.realpath(p) for p in paths]
    unique = dict.fromkeys(p for p in paths if os.path.exists(p))
    return [p for p in unique if not any(_below(p, other) for other in unique if other != p)]


def _library_paths(known: list[str], package: Path) -> list[str]:
    """Where imported modules came from, as far as that is outside of ``known``."""
    found: list[str] = []
    entries = [os.path.realpath(p) for p in sys.path if os.path.isabs(p) and os.path.isdir(p)]
    within = tuple(p.rstrip("/") + "/" for p in known)  # asked first: nearly all of thousands are
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or name.startswith("__") or name == package.name:
            continue
        if not isinstance(file, str) or not os.path.isabs(file):
            continue
        if file.startswith(within) or any(_below(file, p) for p in known + found):
            continue
        file = os.path.realpath(file)
        if any(_below(file, p) for p in known + found):
            continue
        entry = next((e for e in entries if _below(file, e)), "")
        if entry and not _is_wide(entry) and not _below(str(package), entry):
            found.append(entry)
        else:
            found.append(os.path.dirname(file) if os.path.basename(file).startswith("__init__.") else file)
    return found


def _holds_home(path: str) -> bool:
    """Whether granting ``path`` would grant a home or a whole file system."""
    guarded = [os.path.realpath(p) for p in (os.path.expanduser("~"), "/tmp", "/home", "/root")]
    return any(_below(p, os.path.realpath(path)) for p in guarded)


def _is_wide(path: str) -> bool:
    """Whether granting ``path`` would grant a home, the working directory or a whole file system."""
    return _holds_home(path) or _below(os.getcwd(), os.path.realpath(path))


def _below(path: str, other: str) -> bool:
    return path == other or path.startswith(other.rstrip("/") + "/")
