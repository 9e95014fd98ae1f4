"""What the recording of operators in the caller's thread does not see: other threads, native code, own extensions.

PyTorch's profiler sees each operator that goes through the dispatcher, in every thread. Functions of own extensions are
replaced by no-ops. ``observing.py`` uses both; what it cannot see stands in ``docs/threat-model.md``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, MethodDescriptorType, ModuleType
from typing import Any

__all__ = [
    "Definition",
    "Extensions",
    "call_in_c",
    "call_of",
    "calls_by_ctypes",
    "close",
    "definition_of",
    "everywhere",
    "registered",
    "set_attribute",
    "set_call",
]

_get_objects, _get_referents = gc.get_objects, gc.get_referents  # bound before the candidate is loaded

_forget_methods = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("PyType_Modified", ctypes.pythonapi))
"""Called when the attributes of a class were changed past it."""

_WITH_KEYWORDS = 0x0002
"""``METH_KEYWORDS`` of CPython's ``methodobject.h``."""

_COMPUTES_ITSELF = re.compile(r"aten::(?:_?choose_qparams|_rowwise_prune|_saturate_weight|fbgemm_|max_pool1d$)")
"""Operators that PyTorch declares as made of others, and that compute without calling any."""


@contextlib.contextmanager
def everywhere(seen: dict[str, int], brought: frozenset[str], on_loss: Callable[[], None]) -> Iterator[None]:
    """Count PyTorch's own operators of all threads inside the block, by ``aten.name.overload``. PyTorch before 2.7
    cannot.

    Args:
        brought: names of the operators that are counted, as :func:`registered` gives them.
        on_loss: called where the profiler was ended inside the block, so that operators were not counted.
    """
    import torch

    try:
        from torch._C._autograd import _disable_profiler, _enable_profiler, _prepare_profiler
        from torch._C._profiler import ProfilerActivity, ProfilerConfig, ProfilerState, _ExperimentalConfig

        details = _ExperimentalConfig(profile_all_threads=True, capture_overload_names=True)
        config = ProfilerConfig(ProfilerState.KINETO, False, False, False, False, False, details)
        _prepare_profiler(config, {ProfilerActivity.CPU})
        _enable_profiler(config, {ProfilerActivity.CPU})
    except (ImportError, TypeError):
        yield
        return
    began = os.urandom(8).hex()
    with torch.autograd.profiler.record_function(began):
        pass
    try:
        yield
    finally:
        found: dict[str, int] = {}  # no class of the library's: its methods could be others by now
        events = _disable_profiler().events()
        if all(event.name() != began for event in events):
            on_loss()
        for event in events:
            space, _, name = event.name().partition("::")
            full = ".".join(filter(None, (event.name(), event.overload_name())))
            if full in brought:
                full = f"{space}.{name}.{event.overload_name() or 'default'}"
                found[full] = found.get(full, 0) + 1
        # what the caller's thread dispatched is here twice: before its mode and after
        for name, count in found.items():
            seen.setdefault(name, count)


@functools.cache
def registered() -> frozenset[str]:
    """``namespace::name.overload`` of the operators that compute something themselves, as they are before candidates
    register others; the zygote asks.
    """
    import torch

    return frozenset(name for name in torch._C._dispatch_get_all_op_names() if not _is_made_of_others(name))


def _is_made_of_others(operator: str) -> bool:
    """Whether an operator calls others and computes nothing itself; those are seen too."""
    import torch

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    if _COMPUTES_ITSELF.match(operator) or not has(operator, "CompositeImplicitAutograd"):
        return False
    return not any(has(operator, device) for device in ("CPU", "CUDA", "MPS", "XPU"))


class Definition(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def definition_of(function: Any) -> Definition:
    """The ``PyMethodDef`` of a function or method in C or Cython. All methods that were bound from it share it."""
    before = 3 if type(function) is MethodDescriptorType else 0  # the class, the name and the full name of a method
    at = id(function) + object.__basicsize__ + before * ctypes.sizeof(ctypes.c_void_p)
    return ctypes.POINTER(Definition).from_address(at).contents


def _field(one: Any, number: int) -> ctypes.c_void_p:
    """A pointer of an object in C, which can be set: so many others lie between its head and this one."""
    return ctypes.c_void_p.from_address(id(one) + object.__basicsize__ + number * ctypes.sizeof(ctypes.c_void_p))


def _flags_of(kind: type) -> ctypes.c_ulong:
    """The flags of a class, which can be set: in ``PyTypeObject`` they are behind the size and eighteen others."""
    flags = ctypes.c_ulong.from_buffer(_field(kind, 19))
    assert flags.value == kind.__flags__
    return flags


_CLOSED, _BY_VECTOR = 1 << 8, 1 << 11
"""Flags of a class: that its attributes cannot be set, and that its objects are called past ``__call__``."""

_SLOTS: dict[type, tuple[ctypes.c_void_p, int | None]] = {}
"""Of classes whose call may be replaced, what their ``__call__`` leads to, which can be set, and led to at first."""

_new_wrapper = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyDescr_NewWrapper", ctypes.pythonapi)
)


def call_of(kind: type) -> Any:
    """A copy of what calls the objects of a class in C, which stays what it is where :func:`set_call` replaces it."""
    wrapper = vars(kind)["__call__"]
    form, slot = _field(wrapper, 3), _field(wrapper, 4)  # behind the class, the name and the full name
    _SLOTS[kind] = slot, slot.value
    return _new_wrapper(kind, form, slot)


def set_call(kind: type, function: Any, by_vector: bool = False) -> None:
    """Replace what calls the objects of a class in C, and of the classes that inherit from it, also where an original
    ``__call__`` was kept (:func:`call_of`). ``by_vector``: they have a faster call beside ``__call__``, which is to be
    used again.
    """
    flags = _flags_of(kind)
    closed = flags.value & _CLOSED
    flags.value &= ~(_CLOSED | _BY_VECTOR)
    slot, original = _SLOTS.get(kind, (ctypes.c_void_p(), None))
    slot.value = original
    type.__setattr__(kind, "__call__", function)
    slot.value = _field(kind, 14).value  # ``tp_call``
    flags.value |= closed | by_vector * _BY_VECTOR


def set_attribute(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a class in C, which takes none by ``setattr``."""
    (names,) = _get_referents(kind.__dict__)
    names[name] = value
    _forget_methods(kind)


def close(kind: type) -> None:
    """Have no attribute of a class, or of those that it inherits from, set or deleted any more, by whatever way."""
    for one in kind.__mro__:
        if not one.__flags__ & _CLOSED:  # else it may lie in memory that cannot be written
            _flags_of(one).value |= _CLOSED


class Extensions:
    """Python modules in native code that were built below ``TORCH_EXTENSIONS_DIR``, as ``load_inline`` does."""

    def __init__(self) -> None:
        self._muted: list[tuple[Any, int]] = []
        self._classes: dict[type, Any] = {}
        none = lambda *_args: None  # noqa: E731
        plain = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)
        keyed = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._nothing: tuple[Any, Any] = (plain(none), keyed(none))

    def found(self) -> list[tuple[str, list[Any]]]:
        """Names of those loaded, each with its functions. A library that is no module of the interpreter is none."""
        # set when the candidate is loaded
        named = os.path.join(os.environ.get("TORCH_EXTENSIONS_DIR", "/nowhere"), "")
        folder = os.path.join(os.path.realpath(named), "")
        if not _mapped(named, folder):
            return []
        # load_inline gives its module to nobody but its caller
        modules = [module for module in _get_objects() if type(module) is ModuleType]
        files = ((module, getattr(module, "__file__", None)) for module in modules)
        own = [(m, f) for m, f in files if isinstance(f, str) and os.path.realpath(f).startswith(folder)]
        return [
            (os.path.basename(file), [v for v in vars(module).values() if type(v) is BuiltinFunctionType])
            for module, file in own
            if file.endswith(".so")
        ]

    def mute(self, on: bool, files: frozenset[str] = frozenset()) -> None:
        """``on``: replace their functions by no-ops, also where a reference was kept, and calls by ``ctypes`` of
        functions in these files; else put them back.
        """
        for definition, function in self._muted:
            definition.function = function
        _put_back(self._classes)
        self._muted, self._classes = [], {}
        if not on:
            return
        if files:
            self._mute_calls(files)
        for _, functions in self.found():
            for one in functions:
                definition = definition_of(one)
                nothing = self._nothing[bool(definition.flags & _WITH_KEYWORDS)]
                self._muted.append((definition, definition.function))
                definition.function = ctypes.cast(nothing, ctypes.c_void_p).value

    def _mute_calls(self, files: frozenset[str]) -> None:
        """Have ``ctypes`` call nothing in some files, but where numbers alone are given and no call with an address
        was left out before: what is not told where tensors are computes no outputs, but may say how large a workspace
        or a step is.
        """
        memory = _memory()
        code = [(span, file) for span, file in memory if file in files]
        least = _least_address(memory)
        told: set[str] = set()

        def around(old: Callable[..., Any]) -> Callable[..., Any]:
            def call(function: Any, *args: Any, **kwargs: Any) -> Any:
                place = ctypes.c_void_p.from_buffer(function)
                address = place.value or 0
                file = next((file for span, file in code if address in span), None)
                numbers = all(_is_number(value, least) for value in (*args, *kwargs.values()))
                if file is None or (numbers and file not in told):
                    return old(function, *args, **kwargs)
                told.add(file)
                place.value = ctypes.cast(_NOTHING, ctypes.c_void_p).value
                try:
                    return old(function, *args, **kwargs)
                finally:
                    place.value = address

            return call

        self._classes = _calling_by(around) if code else {}


_NOTHING = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: 0)
_FUNCTION: type = type(_NOTHING).__mro__[1]
"""What all functions that ``ctypes`` calls are instances of."""
_CALL = vars(_FUNCTION)["__call__"]
call_in_c: Callable[..., Any] = call_of(_FUNCTION)
"""The original call of such a function, whatever stands in its place."""

_POINTERS = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_wchar_p)


def _calling_by(around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> dict[type, Any]:
    """Put a function around what ``ctypes`` calls functions by, in the class of all and in those that have their own;
    what they had before.
    """
    kinds: list[type] = [_FUNCTION]
    for kind in kinds:
        kinds += type.__subclasses__(kind)
    had = {kind: vars(kind)["__call__"] for kind in kinds if "__call__" in vars(kind)}
    for kind, own in had.items():
        set_call(kind, around(call_in_c if own is _CALL else own))
    return had


def _put_back(had: dict[type, Any]) -> None:
    for kind, own in had.items():
        set_call(kind, own)


class _Symbol(ctypes.Structure):
    """``Dl_info``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


_dladdr: Any = getattr(ctypes.CDLL(None), "dladdr", None)


@contextlib.contextmanager
def calls_by_ctypes(hear: Callable[[str, str], None]) -> Iterator[None]:
    """Tell of each call by ``ctypes`` in the block: the file of the function, and its name, however its address was
    found; an empty name where the file has none for it.
    """

    def around(old: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: Any, *args: Any, **kwargs: Any) -> Any:
            address, found = ctypes.c_void_p.from_buffer(function).value, _Symbol()
            if call_in_c(_dladdr, ctypes.c_void_p(address), ctypes.byref(found)):
                name = found.name if found.address == address and found.name else b""
                hear(os.fsdecode(found.file or b""), os.fsdecode(name))
            return old(function, *args, **kwargs)

        return call

    had = _calling_by(around) if _dladdr else {}
    try:
        yield
    finally:
        _put_back(had)


def _is_number(value: Any, least: int) -> bool:
    """Whether an argument of a function in native code is a number or a name, and no address, of which one is the
    least.
    """
    if isinstance(value, ctypes._SimpleCData) and not isinstance(value, _POINTERS):
        value = value.value
    return type(value) in (bool, float, str, bytes) or (type(value) is int and abs(value) < least)


def _memory() -> list[tuple[range, str]]:
    """What is in memory and where; with the file, if it is from one."""
    try:
        lines = [line.split(None, 5) for line in Path("/proc/self/maps").read_text().splitlines()]
    except OSError:  # no Linux
        return []
    return [(range(*(int(end, 16) for end in parts[0].split("-"))), "".join(parts[5:])) for parts in lines]


def _least_address(memory: list[tuple[range, str]]) -> int:
    """Where memory begins, 2**16 to 2**32: lower only for an interpreter that is no position-independent executable."""
    return min([1 << 32, *(max(span.start, 1 << 16) for span, _ in memory)])


def _mapped(*folders: str) -> bool:
    """Whether a library below one of the folders is in this process."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:  # no Linux: nothing is known, and the candidate is on the library track
        return False
    return any(folder in maps for folder in folders)
