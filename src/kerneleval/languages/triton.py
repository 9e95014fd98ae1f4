"""Triton candidates: compiled on GPUs, interpreted on the CPU (right or wrong, but no timing there)."""

from __future__ import annotations

import ast
import functools
import inspect
import os
from collections.abc import Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

from kerneleval.languages.common.base import LoadError, register
from kerneleval.languages.common.python_module import PythonLanguage
from kerneleval.languages.common.watch import Patch


@register
class Triton(PythonLanguage):
    """A Python module that imports Triton."""

    name = "triton"
    devices = ("cuda", "rocm", "cpu")
    imported = "triton"
    install = "pip install triton==3.7.1"
    certainty = 30
    compiles_by_length = True

    def unsupported_dtypes(self, device: str) -> tuple[str, ...]:
        """bfloat16 on the CPU.

        The interpreter keeps bf16 as 16-bit integers and adds those: measured with Triton 3.7.1, ``v + v`` of -1.125
        gives 2.1e38, ``tl.sum`` 3248 for 5.92, ``tl.dot`` 1.8e10 for 1.72, ``v * 2.0`` raises. Only loads, stores,
        comparisons and conversions are right (``docs/candidates.md``).
        """
        return ("bfloat16",) if device.partition(":")[0] == "cpu" else ()

    def preload(self, device: str, arch: str) -> None:
        """Has the compiler and the launcher ready on NVIDIA GPUs."""
        if device == "cuda" and arch.startswith("sm_"):
            from kerneleval.languages.common import triton_preload

            triton_preload.preload(arch)

    def prepare(self, device: str) -> None:
        """On the CPU, sees to it that the interpreter is on and can run autotuned kernels. Raises LoadError:
        ``TRITON_INTERPRET=1`` was not set when Triton was imported, or is set for a GPU.
        """
        on_cpu = device.partition(":")[0] == "cpu"
        if on_cpu and os.environ.get("TRITON_INTERPRET", "0").lower() not in ("1", "true", "on", "yes", "y"):
            raise LoadError(
                "Triton kernels run on the CPU only in Triton's interpreter: set TRITON_INTERPRET=1 in the environment "
                "before Triton is imported"
            )
        import triton.language
        from triton.runtime.jit import JITFunction

        # Decided once, when Triton's own kernels (tl.sum ...) were decorated.
        compiled = isinstance(triton.language.sum, JITFunction)
        if on_cpu and compiled:
            raise LoadError("Triton was imported before TRITON_INTERPRET=1 was set: set it when the process starts")
        if not on_cpu and not compiled:
            raise LoadError(f"TRITON_INTERPRET is set: Triton kernels would be interpreted instead of run on {device}")
        if on_cpu:
            _run_of_the_class()
            _autotune_without_clock()
            _floats_as_compiled()
            _functions_of_the_language_once()
            _names_as_compiled()

    def is_entry(self, value: Any) -> bool:
        """Kernels themselves need a grid, so they are no entry points."""
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import KernelInterface

        return super().is_entry(value) and not issubclass(type(value), (KernelInterface, InterpretedFunction))

    def patches(self) -> tuple[Patch, ...]:
        """``run`` of compiled and interpreted kernels, and launches of a kernel that ``warmup`` gave.

        The public ``knobs.runtime.launch_enter_hook`` would do for counting, but it exists neither in the interpreter
        nor can it skip a launch, and it makes Triton build launch metadata each time.
        """
        from triton.compiler import CompiledKernel
        from triton.runtime.interpreter import InterpretedFunction
        from triton.runtime.jit import JITFunction

        def launches(keywords: Mapping[str, Any]) -> bool:
            return not keywords.get("warmup")

        kinds = [kind for kind in (JITFunction, InterpretedFunction) if hasattr(kind, "run")]
        return (
            *(Patch(kind, "run", _describe, is_launch=launches) for kind in kinds),
            Patch(CompiledKernel, "__getitem__", _describe_compiled, returns_launcher=True),
        )


def _describe(kernel: Any) -> tuple[str, str]:
    return str(kernel.fn.__name__), str(kernel.fn.__code__.co_filename)


def _describe_compiled(kernel: Any) -> tuple[str, str]:
    function = getattr(kernel.src, "fn", None)
    if function is None:  # compiled from an intermediate form that the candidate wrote
        return str(kernel.name), ""
    return _describe(function)


def _run_of_the_class() -> None:
    """Lets every launch of an interpreted kernel go through a method ``run`` of its class, as since Triton 3.6: before,
    each kernel has a function of its own, and indexing goes past it.
    """
    from triton.runtime import interpreter

    kind: Any = interpreter.InterpretedFunction
    if hasattr(kind, "run"):
        return
    make = kind.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        del self.run

    def run(self: Any, *args: Any, grid: Any, **kwargs: Any) -> Any:
        given = {name: value for name, value in kwargs.items() if name in (*self.arg_names, "warmup")}
        return interpreter.GridExecutor(self.rewrite(), self.arg_names, grid)(*args, **given)  # options say nothing

    kind.__init__, kind.run = init, run
    kind.__getitem__ = lambda self, grid: lambda *args, **kwargs: self.run(*args, grid=grid, **kwargs)


def _autotune_without_clock() -> None:
    """Lets autotuned kernels run in the interpreter, with the first configuration that pruning leaves.

    Triton takes a benchmark function from the GPU driver, before 3.4 at once, and there is none; and a time taken in
    the interpreter would say nothing about a configuration.
    """
    from triton.runtime.autotuner import Autotuner

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        return [0.0, 0.0, 0.0]

    if "do_bench" not in vars(Autotuner):
        make, Autotuner.do_bench = Autotuner.__init__, None

        def init(self: Any, *args: Any, do_bench: Any = None, **options: Any) -> None:
            make(self, *args, do_bench=do_bench or bench, **options)

        Autotuner.__init__ = init
    Autotuner._bench = bench


def _floats_as_compiled() -> None:
    """Gives interpreted kernels their float arguments as fp32 scalars, as compiled kernels get them.

    The interpreter wraps integers and pointers and passes floats as they are, so that ``eps.to(tl.float32)``, which is
    right on every GPU, raises.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt
    if getattr(convert, "wraps_floats", False):
        return

    def wrapped(arg: Any) -> Any:
        if type(arg) is not float:
            return convert(arg)
        return tl.tensor(interpreter.TensorHandle(np.array([arg], dtype=np.float32), tl.float32), tl.float32)

    wrapped.wraps_floats = True  # type: ignore[attr-defined]
    interpreter._implicit_cvt = wrapped


def _functions_of_the_language_once() -> None:
    """Lets the interpreter look for the functions of Triton's language once.

    It exchanges them at each launch, and at each call of a function such as ``tl.sum``, and looked through a thousand
    names for them each time: longer than many kernels take.
    """
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_patch_builtin") or hasattr(interpreter._patch_builtin, "names"):
        return
    names: dict[tuple[Any, int], list[str]] = {}

    def patched(owner: Any, builder: Any, *scope: Any) -> None:
        key = (owner, len(vars(owner)))
        if key not in names:
            names[key] = [n for n, m in inspect.getmembers(owner) if interpreter.tl.core.is_builtin(m)]
        for name in names[key]:
            member = getattr(owner, name, None)
            if interpreter.tl.core.is_builtin(member):
                interpreter._patch_attr(owner, name, member, builder, *scope)

    patched.names = names  # type: ignore[attr-defined]
    interpreter._patch_builtin = patched


def _names_as_compiled() -> None:
    """Lets interpreted kernels have the names that compiled ones may have: variables of the function that makes the
    kernel, single functions of Triton's language, and this language and its ``constexpr`` under any name.

    The interpreter runs a copy of the kernel, which sees global names alone. It looks for the language among these,
    and compares each of them, which a dead weak reference cannot stand.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    kind: Any = interpreter.FunctionRewriter
    execute, patch = kind._compile_and_exec, interpreter._patch_lang
    if execute.__module__ == __name__:
        return

    def compile_and_exec(self: Any, tree: Any) -> Any:
        name = self.fn.__name__
        if given := _given(self.fn):
            names = ", ".join(given)
            inside = ast.parse(f"def __made__({names}): return {name}\n{name} = __made__({names})")
            inside.body[0].body[:0] = tree.body  # type: ignore[attr-defined]
            tree, self.kwargs = inside, self.kwargs | given
        made = execute(self, tree)
        kinds = self.fn.__annotations__.items()  # of the original: texts where the file asks for them
        made.__annotations__ = {name: "constexpr" if "constexpr" in str(kind) else kind for name, kind in kinds}
        return made

    def patched(kernel: Any) -> Any:
        return patch(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))

    kind._compile_and_exec, interpreter._patch_lang = compile_and_exec, patched


def _given(kernel: Any) -> dict[str, Any]:
    """Variables of the function that made a kernel, and functions of Triton's language by bare names: each as it is in
    the language when it is called.
    """
    import triton.language as tl

    def of_language(name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(tl, name)(*args, **kwargs)

    names = inspect.getclosurevars(kernel)
    given = dict(names.nonlocals)
    for name, value in {**names.globals, **names.nonlocals}.items():
        if type(value) is FunctionType and tl.core.is_builtin(value) and hasattr(tl, value.__name__):
            given[name] = functools.partial(of_language, value.__name__)
    return given
