"""What names alone do not tell, in Python: each function gives lines, and what stands there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Collection, Iterable, Iterator

from kerneleval.languages.common.python_source import Source

Lines = Iterator[tuple[int, str]]

_GUARDED = sys.stdlib_module_names | {"numba", "numpy", "torch", "triton"}
"""Modules that everybody in the process uses."""

_SETTINGS = (
    "logging.Logger.",
    "logging.logMultiprocessing.",
    "logging.logProcesses.",
    "logging.logThreads.",
    "logging.raiseExceptions.",
    "numba.config.",
    "numba.core.config.",
    "sys.displayhook.",
    "sys.dont_write_bytecode.",
    "sys.excepthook.",
    "sys.path.",
    "sys.tracebacklimit.",
    "sys.unraisablehook.",
    "tempfile.tempdir.",
    "threading.excepthook.",
    "torch._dynamo.config.",
    "torch._functorch.config.",
    "torch._inductor.config.",
    "triton.knobs.",
    "warnings.formatwarning.",
    "warnings.showwarning.",
    "warnings.warn.",
)
"""Attributes that are there to be set, and what is below them. They change nothing but the candidate."""

_DEEPEST = 20
"""Attributes and calls that are followed to where a name begins."""

_FLAGS = ("torch.backends.", "torch._C._set_")
_ENVIRONMENT_SETTERS = ("os.environ.setdefault", "os.environ.update")
_REFERENCE_MODULES = frozenset(("baseline", "original", "problem", "ref", "reference", "solution"))
_PLUMBING = frozenset(
    re.findall(
        r"\w+",
        "as_tensor device dtype empty empty_like empty_strided from_numpy full is_tensor "
        "manual_seed no_grad ones tensor zeros zeros_like",
    )
)
"""Names of torch that compute nothing of an operator."""

_HARMLESS_TO_MISS = frozenset(("AttributeError", "ImportError", "ModuleNotFoundError", "OSError", "FileNotFoundError"))


def imports_harness(source: Source) -> Lines:
    """Imports of this package."""
    for node in source.each(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        if any(name.split(".")[0] == "kerneleval" for name in names):
            yield node.lineno, f"import {names[0]}"


def reads_environment(source: Source) -> Lines:
    """``os.environ``, but where a variable is only set."""
    setting = {id(of) for of, _ in _environment_set(source)}
    for node in source.each(ast.Name, ast.Attribute):
        if id(node) not in setting and isinstance(node.ctx, ast.Load) and source.dotted(node) == "os.environ":
            yield node.lineno, "os.environ"


def sets_environment(source: Source) -> Lines:
    """Variables that are set."""
    for of, what in _environment_set(source):
        yield of.lineno, what


def _environment_set(source: Source) -> Iterator[tuple[ast.expr, str]]:
    for node in source.each(ast.Subscript, ast.Call):
        if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if source.dotted(node.value) == "os.environ":
                yield node.value, "os.environ[...]"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = source.dotted(node.func)
            if name in _ENVIRONMENT_SETTERS:
                yield node.func.value, name


def subclasses_thread(source: Source) -> Lines:
    """Classes that are threads."""
    for node in source.each(ast.ClassDef):
        if any(source.dotted(b) == "threading.Thread" for b in node.bases):
            yield node.lineno, f"class {node.name}"


def rebinds(source: Source) -> Lines:
    """Attributes of modules that others use, set or deleted. A parameter is no module, whatever its name."""
    allowed, parameters = (*_SETTINGS, *_FLAGS, "os.environ"), _parameters(source)
    for line, name in _set_names(source, parameters):
        if name.split(".")[0] in _GUARDED and "." in name and not f"{name}.".startswith(allowed):
            yield line, f"{name} = ..."
    for node in source.each(ast.Call):
        if source.dotted(node.func).startswith("unittest.mock.patch"):
            yield node.lineno, source.dotted(node.func)


def sets_flags(source: Source) -> Lines:
    """Switches of torch that hold for the whole process."""
    for line, name in _set_names(source):
        if name.startswith(_FLAGS):
            yield line, f"{name} = ..."


def _parameters(source: Source) -> set[int]:
    """Names in the bodies of functions that are parameters of these, by their nodes' identity."""
    found: set[int] = set()
    for function in source.each(ast.FunctionDef, ast.AsyncFunctionDef):
        names = {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
        found.update(id(one) for one in _below(function.body) if isinstance(one, ast.Name) and one.id in names)
    return found


def _root(node: ast.AST) -> ast.AST:
    """What the owner of a name that is set begins with: ``torch`` in ``vars(torch.cuda)["synchronize"]``."""
    for _ in range(_DEEPEST):
        if isinstance(node, ast.Call):
            node = node.args[0] if node.args and isinstance(node.func, ast.Name) else node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
    return node


def _set_names(source: Source, but: Collection[int] = ()) -> Lines:
    """Dotted names below modules that are assigned, deleted or set by ``setattr``, ``__dict__`` or ``vars``. ``but``:
    nodes with which they do not begin.
    """
    for node in source.each(ast.Attribute, ast.Subscript, ast.Call):
        if id(_root(node)) in but:
            continue
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if owner := source.dotted(node.value):
                yield node.lineno, f"{owner}.{node.attr}"
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            if owner := _namespace(source, node.value):
                yield node.lineno, f"{owner}.{_constant(node.slice)}"
        elif isinstance(node, ast.Call):
            name = source.dotted(node.func)
            if name in ("builtins.setattr", "builtins.delattr") and node.args:
                if owner := source.dotted(node.args[0]):
                    yield node.lineno, f"{owner}.{_constant(node.args[1]) if len(node.args) > 1 else '?'}"
            elif getattr(node.func, "attr", "") in ("update", "setdefault"):
                held = _namespace(source, getattr(node.func, "value", node))
                yield from [(node.lineno, f"{held}.?")] if held else []


def _namespace(source: Source, node: ast.AST) -> str:
    """The module or class whose names a mapping holds: ``vars(torch)``, ``torch.__dict__``."""
    if isinstance(node, ast.Call) and source.dotted(node.func) == "builtins.vars" and node.args:
        return source.dotted(node.args[0])
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return source.dotted(node.value)
    return ""


def _constant(node: ast.AST) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "?"


def overrides_operators(source: Source) -> Lines:
    """``torch.library.Library("aten", ...)`` and ``impl("aten::...")``."""
    for node in source.each(ast.Call):
        if source.dotted(node.func).startswith("torch.library.") and node.args:
            namespace = _constant(node.args[0])
            if namespace == "aten" or namespace.startswith("aten::"):
                yield node.lineno, f"{source.dotted(node.func)}({namespace!r})"


def falls_back(source: Source) -> Lines:
    """Handlers that compute with torch what the ``try`` did not."""
    for node in source.each(ast.Try, ast.TryStar):
        if all(isinstance(n, (ast.Import, ast.ImportFrom)) for n in node.body):
            continue
        for handler in node.handlers:
            for inner in _below(handler.body):
                name = source.dotted(inner.func) if isinstance(inner, ast.Call) else ""
                if _computes(name):
                    yield handler.lineno, f"except ...: {name}"
                    break


def _computes(name: str) -> bool:
    parts = name.split(".")
    if parts[0] != "torch" or len(parts) < 2:
        return False
    if parts[1] in ("nn", "ops", "special", "linalg", "fft"):
        return len(parts) > 2 and parts[-1] not in ("Module", "Parameter")
    return len(parts) == 2 and parts[1] not in _PLUMBING and parts[1].islower()


def suppresses(source: Source) -> Lines:
    """``contextlib.suppress`` of more than that something is missing."""
    for node in source.each(ast.Call):
        if source.dotted(node.func) == "contextlib.suppress":
            names = {source.dotted(a).removeprefix("builtins.") for a in node.args}
            if names - _HARMLESS_TO_MISS:
                yield node.lineno, f"contextlib.suppress({', '.join(sorted(names - {''}))})"


def takes_reference(source: Source) -> Lines:
    """Imports of a reference, and classes that inherit from ``Model``."""
    for node in source.each(ast.Import, ast.ImportFrom, ast.ClassDef):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1].lower() in _REFERENCE_MODULES:
            yield node.lineno, f"from {node.module} import"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[-1].lower() in _REFERENCE_MODULES:
                    yield node.lineno, f"import {alias.name}"
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                name = base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
                if name in ("Model", "Reference", "ReferenceModel"):
                    yield node.lineno, f"class {node.name}({name})"


def caches_by_pointer(source: Source) -> Lines:
    """Look-ups whose key holds ``data_ptr()`` or ``id()``."""
    keys = _pointer_names(source)
    for node in source.each(ast.Subscript, ast.Compare, ast.Call):
        key: ast.AST | None = None
        if isinstance(node, ast.Subscript):
            key = node.slice
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            key = node.left
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            key = node.args[0] if node.func.attr in ("get", "setdefault") else None
        if key is not None and (name := _pointer(source, key, keys)):
            yield node.lineno, f"a look-up by {name}"


def _pointer_names(source: Source) -> dict[str, str]:
    """Variables that hold a pointer, alone or in a tuple."""
    found: dict[str, str] = {}
    for node in source.each(ast.Assign):
        target, value = node.targets[0], node.value
        made = isinstance(target, ast.Name) and isinstance(value, (ast.Call, ast.Tuple))
        if made and (name := _pointer(source, value, {})):
            found[target.id] = name
    return found


def _pointer(source: Source, key: ast.AST, names: dict[str, str]) -> str:
    """What makes a key one of pointers. Only keys and tuples: in ``table[f(x.data_ptr())]`` it is an argument."""
    parts: list[ast.AST] = list(key.elts) if isinstance(key, ast.Tuple) else [key]
    for part in parts:
        if isinstance(part, ast.Name) and part.id in names:
            return names[part.id]
        if isinstance(part, ast.Call):
            if isinstance(part.func, ast.Attribute) and part.func.attr in ("data_ptr", "_cdata") and not part.args:
                return "data_ptr()"
            if source.dotted(part.func) == "builtins.id":
                return "id()"
    return ""


def counts_calls(source: Source) -> Lines:
    """Functions that add a constant to a global, or to an attribute of ``self``, and branch on it."""
    for function in source.each(ast.FunctionDef, ast.AsyncFunctionDef):
        inner = list(_below(function.body))
        shared = {n for node in inner if isinstance(node, (ast.Global, ast.Nonlocal)) for n in node.names}
        counted = {
            name: node.lineno
            for node in inner
            if isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Constant)
            if (name := _kept(node.target, shared))
        }
        for node in inner if counted else ():
            if isinstance(node, (ast.If, ast.IfExp, ast.While)):
                for part in ast.walk(node.test):
                    if (name := _kept(part, shared)) in counted:
                        yield node.lineno, f"{name} (counted in line {counted[name]})"
                        break


def _kept(node: ast.AST, shared: set[str]) -> str:
    """The name of a variable that lives on after the call; empty: it is none."""
    if isinstance(node, ast.Name) and node.id in shared:
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return f"self.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant):
        return f"{node.value.id}[{node.slice.value!r}]"
    return ""


def _below(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for statement in body:
        yield from ast.walk(statement)
