"""Watching windows from inside the worker: what they dispatch and launch, and what comes out without own kernels; and
the binaries that Triton left in its cache, in memory that only the worker sees.

All of it runs beside the candidate and is therefore evidence, never proof. What it needs is bound before the
candidate's code is loaded, so that rebinding a name later changes nothing; that something was rebound is reported too.
Binaries may be the candidate's own forgeries; ``judge/checks/code.py`` and ``judge/binaries/uses.py`` report them
and decide nothing by them.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import gc
import json
import operator
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from kerneleval.languages import Loaded
from kerneleval.worker.below import Extensions, close, everywhere, registered
from kerneleval.worker.contents import Contents
from kerneleval.worker.libraries import Libraries

_PACKAGE = "kerneleval."
"""Every module of the worker, the wire and what it loads candidates with; a candidate has no business in any."""

_BUILT_IN = frozenset(("aten", "prim", "prims"))


class Observing:
    """What the watching of one candidate needs; made before the candidate is loaded. Methods of ``worker``, the class
    that serves the judge's messages, and of the worker's device are among what must stay as it is.
    """

    def __init__(self, worker: type, device: object) -> None:
        import torch
        from torch.utils._python_dispatch import TorchDispatchMode

        self.kinds: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)
        self._plain = (torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch)
        self.detach: Callable[[Any], Any] = torch.Tensor.detach
        self.as_strided: Callable[..., Any] = torch.as_strided
        self.unbind: Callable[[Any], Any] = torch.unbind
        self.foreach_copy: Callable[[Any, Any], Any] = torch._foreach_copy_
        self._stance = torch.compiler.set_stance
        self._registry: tuple[set[str], ...] = tuple(getattr(torch.library, n, set()) for n in ("_defs", "_impls"))
        self._registered = _registered(self._registry)
        self._brought = registered()
        self._recorder = _recorder_class(TorchDispatchMode)
        self._extensions = Extensions()
        self._libraries = Libraries()
        self._seen: dict[str, int] = {}
        self._others: dict[str, int] = {}  # functions of other libraries than PyTorch
        self._contents = Contents()
        self._recorded = False
        self.lost = False
        """Whether the counting of operators was ended inside a window."""
        self._before: dict[str, int] = {}
        self._sizes_before: dict[str, int] = {}
        modules = [module for name, module in list(sys.modules.items()) if name.startswith(_PACKAGE)]
        classes = [v for m in modules for v in vars(m).values() if isinstance(v, type) and v.__module__ == m.__name__]
        kinds = [kind for kind in type(device).__mro__ if kind.__module__.startswith("kerneleval.")]
        owners = (worker, *modules, *classes, *kinds, TorchDispatchMode, self._recorder)
        self._device = device
        self._owners: list[Any] = [*dict.fromkeys(owners)]
        self._changed = _Pieces(self._owners).changed  # bound: the class is in the candidate's reach
        self._held: list[tuple[Any, str, Any]] = []
        self.watch_over(self)

    def watch_over(self, *objects: Any) -> None:
        """Functions that these objects hold now are to stay what they are."""
        self._held += [(one, name, value) for one in objects for name, value in vars(one).items() if callable(value)]

    def ready(self) -> None:
        """From here on the collector lists only what is made later: what the candidate makes. The worker's classes stay
        what they are: what answers for a method, and puts it back when it is asked, would not be seen.
        """
        for one in self._owners:
            if isinstance(one, type):
                close(one)
        gc.freeze()
        gc.freeze = lambda: None  # what the candidate makes stays on the list

    @contextlib.contextmanager
    def plainly(self) -> Iterator[None]:
        """Tensors are handled by PyTorch alone: no mode that was left entered, and no class, computes in the block."""
        functions, operators = self._plain
        with functions(), operators():
            yield

    def loaded(self) -> None:
        """The candidate is there."""
        self._libraries.loaded()

    def begin(self, loaded: Loaded, *, record: bool, mute: bool, inputs: Any = None) -> AbstractContextManager[Any]:
        """Count launches from now on, or make them no-ops; what is to be around the calls. With ``inputs``, the memory
        where the inputs are, see what lies elsewhere in the arguments of launches.
        """
        self._seen, self._others, self._recorded = {}, {}, record
        self._before, self._sizes_before = loaded.launches(), loaded.sizes()
        loaded.mute(mute)
        self._contents = Contents(inputs)
        loaded.look(None if inputs is None else self._contents.keep)
        self._extensions.mute(mute, frozenset(self._libraries.files))
        loaded.watch(True)
        return self._recording() if record else contextlib.nullcontext()

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """What ``torch.compile`` made runs eagerly: called under a dispatch mode it would never be used again."""
        with contextlib.ExitStack() as stack:
            if "torch._dynamo" in sys.modules:
                stack.enter_context(self._stance("force_eager"))
            stack.enter_context(self._libraries.heard(self._others))
            stack.enter_context(everywhere(self._seen, self._brought, self._lost))
            stack.enter_context(self._recorder(self._seen))
            yield

    def _lost(self) -> None:
        self.lost = True

    def end(self, loaded: Loaded) -> dict[str, Any]:
        """Watch no longer; operators, launches and functions of other libraries by name, packages with native
        code that it imported, native code of its own, whether functions were compiled.
        """
        loaded.watch(False)
        loaded.mute(False)
        loaded.look(None)
        self._extensions.mute(False)
        if self._recorded:
            self._libraries.look_at_memory()
        return {
            "aten": self._seen,
            "launches": _grown(self._before, loaded.launches()),
            "sizes": _grown(self._sizes_before, loaded.sizes()),
            "contents": self._contents.rows,
            "libraries": self._others | self._libraries.looked_up | loaded.linked() if self._recorded else {},
            "binaries": loaded.binaries(),
            "packages": self._libraries.packages[:8] if self._recorded else [],
            "extensions": self._own_code() if self._recorded else [],
            "registered": sorted(_registered(self._registry) - self._registered)[:8],
            "compiled": _compiled(),
            "lost_error": self._recorded and self._libraries.lost_error,
        }

    def _own_code(self) -> list[str]:
        """Files of native code of the candidate's own, the first eight."""
        return sorted({name for name, _ in self._extensions.found()} | set(self._libraries.native))[:8]

    def changed(self) -> list[str]:
        """Names of what is no more what it was before the candidate was loaded; the first eight."""
        changed = [*self._changed()]
        kind = type(self._device)
        own = getattr(self._device, "__dict__", {})
        changed += [f"{kind.__name__}.{name}" for name in own if callable(getattr(kind, name, None))]
        changed += [f"{type(one).__name__}.{name}" for one, name, v in self._held if vars(one).get(name) is not v]
        return changed[:8]


class _Pieces:
    """Everything bound in modules and classes that watch, with the code of functions."""

    def __init__(self, owners: Sequence[Any]) -> None:
        self._known = [(owner, tuple(vars(owner)), tuple(vars(owner).values())) for owner in owners]
        self._functions = tuple(v for *_, values in self._known for v in values if isinstance(v, FunctionType))
        self._codes = {id(one): one.__code__ for one in self._functions}
        self._parts = gc.get_referents(*self._functions)

    def changed(
        self,
        _all: Any = all,
        _is: Any = operator.is_,
        _map: Any = map,
        _parts_of: Any = gc.get_referents,
        _vars: Any = vars,
    ) -> Iterator[str]:
        """Names of what is another thing now, or has other code, and new ones that hide those of the interpreter. What
        it compares by are defaults by position: a tuple, which cannot be changed unseen.
        """
        parts = _parts_of(*self._functions)  # to read a function's code causes an audit event, 3 us each
        same = len(parts) == len(self._parts) and _all(_map(_is, parts, self._parts))
        for owner, names, values in self._known:
            now = _vars(owner)
            if not same or not _all(_map(_is, _map(now.get, names), values)):
                for name, value in zip(names, values, strict=True):
                    code = self._codes.get(id(value))
                    if now.get(name) is not value or (code is not None and value.__code__ is not code):
                        yield f"{getattr(owner, '__qualname__', owner.__name__)}.{name}"
            if type(owner) is ModuleType:
                for name in sorted((now.keys() & _vars(builtins).keys()).difference(names)):
                    yield f"{owner.__name__}.{name}"


def _grown(before: dict[str, int], now: dict[str, int]) -> dict[str, int]:
    return {name: n - before.get(name, 0) for name, n in now.items() if n > before.get(name, 0)}


def _registered(registry: tuple[set[str], ...]) -> frozenset[str]:
    """Operators and kernels that Python code has registered in PyTorch's own namespace: ``aten/flip/CPU``."""
    return frozenset(n for names in registry for n in names if n.startswith("aten") and not n.endswith("/Meta"))


def _compiled() -> bool:
    """Whether ``torch.compile`` has made code in this process; also where its count is not what PyTorch makes of it.

    Read by the built-in types' own methods: the count is where the candidate can put something else.
    """
    module = sys.modules.get("torch._dynamo.utils")
    if module is None:
        return False
    counters = vars(module).get("counters") if type(module) is ModuleType else None
    if type(counters) is not defaultdict:
        return True
    stats = dict.get(counters, "stats")
    return stats is not None and (type(stats) is not Counter or dict.get(stats, "unique_graphs", 0) != 0)


def _python_kernel(func: Any, args: Any, kwargs: Any) -> Any:
    """The Python function behind an operator made by ``torch.library.custom_op``; None: it is another kind."""
    import torch
    from torch.utils._pytree import tree_leaves

    named = getattr(getattr(func, "_schema", None), "name", "")
    defined = getattr(getattr(torch._library, "custom_ops", None), "OPDEFS", {}).get(named)
    if defined is None:
        return None
    kinds = [value.device.type for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)]
    by_device = getattr(defined, "_backend_fns", {})
    return next((by_device[kind] for kind in kinds if kind in by_device), getattr(defined, "_init_fn", None))


def _recorder_class(base: Any) -> Any:
    """A dispatch mode that counts the ATen operators dispatched while it is entered."""

    class Recorder(base):  # type: ignore[misc]
        def __init__(self, seen: dict[str, int]) -> None:
            super().__init__()
            self.seen = seen

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # True, the default, imports the compiler: two seconds a worker

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = str(func), kwargs or {}
            made = None if getattr(func, "namespace", "") in _BUILT_IN else _python_kernel(func, args, kwargs)
            if made is not None:  # an operator in Python: what it dispatches is seen instead of its name
                with self:
                    return made(*args, **kwargs)
            self.seen[name] = self.seen.get(name, 0) + 1
            return func(*args, **kwargs)

    return Recorder


def triton_binaries(folder: str, most_bytes: int) -> list[dict[str, Any]]:
    """Triton's cubins, and AMD's assembly, below ``folder``, the newest first, as they go over the wire: ``data``
    (base64), ``kernel`` and ``kind`` (``cubin``, ``amdgcn``) by the file's name, and by the description beside it
    ``shared``, the bytes of dynamic shared memory, and ``hash``, Triton's own of what it was made of. Binaries that do
    not fit into ``most_bytes`` altogether are left out.
    """
    found: list[dict[str, Any]] = []
    left = most_bytes
    paths = [path for kind in ("cubin", "amdgcn") for path in Path(folder).rglob(f"*.{kind}") if path.is_file()]
    for path in sorted(paths, key=lambda path: (-path.stat().st_mtime, str(path))):
        size = path.stat().st_size
        if size > left:
            continue
        left -= size
        described: Any = None
        with contextlib.suppress(OSError, ValueError, RecursionError):  # no description, or none of Triton's
            described = json.loads(path.with_suffix(".json").read_text())
        of = described if isinstance(described, dict) else {}
        row = {"kernel": path.stem, "kind": path.suffix[1:], "shared": of.get("shared", 0), "hash": of.get("hash", "")}
        found.append({"data": base64.b64encode(path.read_bytes()).decode(), **row})
    return found
