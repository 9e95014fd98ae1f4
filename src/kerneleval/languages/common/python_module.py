"""Python candidates, shared by torch, Triton and Numba: a file is imported, its entry points are found by name."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import linecache
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePosixPath
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from kerneleval.languages.common.base import Language, Loaded, LoadError, OutputSpec, torch_device, write_files
from kerneleval.languages.common.watch import LaunchWatch, Patch
from kerneleval.records import Candidate, InfrastructureError, nested

if TYPE_CHECKING:
    import torch

MODULE_NAME = "candidate"
"""Name under which every candidate is imported: it says nothing about task or judge."""

MODULE_CLASSES = ("ModelNew", "Model")
"""Classes that stand for the candidate where it is a module, in order."""


class PythonLanguage(Language):
    """Base of the languages whose candidates are Python modules."""

    suffixes = (".py",)
    imported: str = ""
    """Package whose import marks a file as of this language, and without which it cannot load; empty: none."""
    install: str = ""
    """What to install when :attr:`imported` is missing."""
    certainty: int = 20
    """What :meth:`claim` says of a file that imports the package."""

    def claim(self, text: str) -> int:
        """A file that imports the package, whatever else it imports."""
        if not self.imported:
            return super().claim(text)
        return self.certainty if imports(text, self.imported) else 0

    def missing(self, device: str) -> str:
        if self.imported and importlib.util.find_spec(self.imported) is None:
            return f"{self.imported}: {self.install}"
        return ""

    @property
    def known(self) -> tuple[str, ...]:
        return (f"softmax_{self.name}.py",)

    def toolchain(self, device: str, arch: str) -> str:
        return f"{self.name}\n{self.imported} {_installed(self.imported)}"

    def prepare(self, device: str) -> None:
        """Called before the candidate is imported; raises LoadError when it could not run here."""

    def patches(self) -> tuple[Patch, ...]:
        """Where kernels of this language are launched, for counting."""
        return ()

    def linked(self, kernel: Any) -> tuple[str, ...]:
        """Functions of other libraries that a kernel of this language calls, as far as its compiled code names them."""
        return ()

    def is_entry(self, value: Any) -> bool:
        """Whether a module's attribute can be called from the host."""
        return callable(value) and not issubclass(type(value), type)

    def adapt(self, function: Callable[..., Any]) -> Callable[..., Any] | None:
        """A wrapper for entry points that cannot take tensors as they are; None: call it directly."""
        return None

    def load(self, candidate: Candidate, build_dir: Path, device: str, names: Sequence[str] = ()) -> Loaded:
        """Imports the candidate and finds its entry points; see :meth:`Language.load`."""
        self.check_device(device)
        missing = self.missing(device)
        if missing:
            raise InfrastructureError(f"{self.name} candidates need {missing}")
        self.prepare(device)
        build_dir = build_dir.absolute()  # tracebacks name files as they were imported
        source_dir = build_dir / f"source-{candidate.hash[:16]}"
        main = write_files(candidate, source_dir)
        # A shared extension cache would let one candidate leave a library for another to load.
        os.environ["TORCH_EXTENSIONS_DIR"] = str(build_dir / "extensions")
        watch = LaunchWatch(self.patches(), source_dir)
        watch.switch(True)
        try:
            module = _import(candidate, main, source_dir)
            return _bind(self, candidate, module, device, names, watch, source_dir)
        except BaseException:
            watch.switch(False)
            raise


@dataclass(kw_only=True, eq=False)
class PythonLoaded(Loaded):
    """An imported candidate: a forward function, or a module class, and maybe a backward function."""

    function: Callable[..., Any] | None
    module_class: type | None
    explicit_backward: Callable[..., Any] | None
    autograd: bool
    device: str
    launch_watch: LaunchWatch
    source_dir: Path
    language: PythonLanguage

    def __post_init__(self) -> None:
        if self.explicit_backward is not None:
            self.backward = self._call_backward

    def forward(self, args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]) -> Any:
        """Calls ``f(*args)``; a candidate that is only a class is built without arguments on its first call."""
        function = self.function
        if function is None:
            function = self.make_module(())
        return function(*(args if self.form is None else nested(self.form, args)))

    def _call_backward(
        self, grads: Sequence[Any], args: Sequence[Any], outputs: Sequence[OutputSpec], dims: Mapping[str, int]
    ) -> tuple[Any, ...]:
        assert self.explicit_backward is not None
        made = self.explicit_backward(*grads, *args)
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)

    def make_module(
        self, init_args: Sequence[Any], seed: int | None = None, keywords: Mapping[str, Any] | None = None
    ) -> torch.nn.Module:
        import torch

        if self.module_class is None:
            raise LoadError(f"no module class: looked for {' and '.join(MODULE_CLASSES)}")
        if seed is not None:
            torch.manual_seed(seed)
        try:
            module = self.module_class(*init_args, **(keywords or {}))
            if not isinstance(module, torch.nn.Module):
                raise LoadError(f"class {self.module_class.__name__} is not a torch.nn.Module")
            module = module.to(torch_device(self.device))
        except LoadError:
            raise
        except (Exception, SystemExit) as error:
            raise _load_error(error, self.source_dir, f"{self.module_class.__name__}(...) failed: ") from error
        self.call_module(module)
        return module

    def call_module(self, module: torch.nn.Module) -> None:
        self.module = module
        self.function = module

    def launches(self) -> dict[str, int]:
        """Launches of own kernels by name; empty where the language cannot count."""
        return dict(self.launch_watch.counts)

    def sizes(self) -> dict[str, int]:
        return dict(self.launch_watch.sizes)

    def linked(self) -> dict[str, int]:
        """Of the kernels that were launched while watched."""
        return {name: 1 for kernel in self.launch_watch.own for name in self.language.linked(kernel)}

    def binaries(self) -> list[str]:
        return sorted(self.launch_watch.binaries)

    def watch(self, on: bool) -> None:
        self.launch_watch.switch(on)

    def mute(self, on: bool) -> None:
        self.launch_watch.muted = on

    def look(self, at: Callable[[Sequence[Any], bool], None] | None) -> None:
        self.launch_watch.look = at


@functools.cache
def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a folder on PYTHONPATH
        return "of unknown version"


def imports(text: str, package: str) -> bool:
    """Whether Python source imports the package anywhere; False if it does not parse."""
    try:
        return package in imported(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last: nested too deep for the parser
        return any(line.split()[:2] in (["import", package], ["from", package]) for line in text.splitlines())


def imported(tree: ast.AST) -> set[str]:
    """Packages that a module imports, in functions and branches too."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


# -- Importing ---------------------------------------------------------------------------------------------------------


def _import(candidate: Candidate, main: Path, source_dir: Path) -> ModuleType:
    _make_room(candidate, source_dir)
    for folder in dict.fromkeys((str(source_dir), str(main.parent))):
        if folder not in sys.path:
            sys.path.insert(0, folder)  # stays, for imports inside functions
    importlib.invalidate_caches()
    linecache.checkcache()
    spec = importlib.util.spec_from_file_location(MODULE_NAME, main)
    if spec is None or spec.loader is None:
        raise LoadError(f"{main.name} cannot be imported as a Python module")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickling and Triton look the module up by its name.
    sys.modules[MODULE_NAME] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[MODULE_NAME]
        raise _load_error(error, source_dir, "") from error
    return module


def _make_room(candidate: Candidate, source_dir: Path) -> None:
    """Forgets siblings of an earlier candidate, and refuses ones that would hide a module that is in use."""
    sys.modules.pop(MODULE_NAME, None)
    paths = sysconfig.get_paths()
    installed = tuple(os.path.realpath(paths[n]) + os.sep for n in ("stdlib", "platstdlib", "purelib", "platlib"))
    for path, _ in candidate.files[1:]:
        name = PurePosixPath(path).parts[0].removesuffix(".py")
        known = sys.modules.get(name)
        if known is None:
            continue
        file = os.path.realpath(getattr(known, "__file__", None) or installed[0])
        if file.startswith(installed):
            raise LoadError(f"{path} would hide the module {name!r}: give it another name")
        for loaded in [m for m in sys.modules if m == name or m.startswith(name + ".")]:
            del sys.modules[loaded]


def _load_error(error: BaseException, source_dir: Path, prefix: str) -> LoadError:
    """The error with the last line of the candidate's own files that it passed through."""
    root = str(source_dir)
    file, number, source = "", 0, ""
    if isinstance(error, SyntaxError) and error.filename and str(error.filename).startswith(root):
        file, number, source = str(error.filename), error.lineno or 0, (error.text or "").strip()
        message = f"{type(error).__name__}: {error.msg}"
    else:
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename.startswith(root):
                file, number, source = frame.filename, frame.lineno or 0, (frame.line or "").strip()
        message = f"{type(error).__name__}: {error}".rstrip(": ")
    if not file and isinstance(error, (MemoryError, RecursionError)):  # no line of it has run
        message = f"the source is nested too deeply, or too long: Python's compiler gave up ({message})"
    shown = f"{prefix}{message}" + (f" (in: {source[:200]})" if source else "")
    return LoadError(shown, file=os.path.relpath(file, root) if file else "", line=number)


# -- Entry points ------------------------------------------------------------------------------------------------------


def _bind(
    language: PythonLanguage,
    candidate: Candidate,
    module: ModuleType,
    device: str,
    names: Sequence[str],
    watch: LaunchWatch,
    source_dir: Path,
) -> PythonLoaded:
    own = _own_names(candidate, module)

    def function(name: str, must: bool = False) -> Callable[..., Any] | None:
        value = getattr(module, name, None)
        if value is None or not language.is_entry(value):
            return None
        # ``from torch import exp`` beside ``def run`` must not make torch.exp the candidate.
        if not must and name not in own:
            return None
        found: Callable[..., Any] = value
        return found

    entry = candidate.entry
    # a problem file's name may be no name of a function
    tried = [entry] if entry else [*filter(str.isidentifier, names), "run", "kernel_function"]
    name = next((n for n in tried if function(n, must=bool(entry)) is not None), "")
    forward = function(name, must=bool(entry)) if name else None
    module_class = _module_class(module, entry, own)
    if forward is None and module_class is None:
        looked = ", ".join(tried) + (" (a function or a class)" if entry else ", class ModelNew")
        there = _callables(language, module, own)
        hint = " (rename one, or name it by --entry)" if there != "none" else ""
        raise LoadError(f"no entry point: looked for {looked}; callables there are {there}{hint}")
    explicit = candidate.backward_entry
    bases = dict.fromkeys(n for n in (name, *([] if entry else names)) if n)
    backward_names = [explicit] if explicit else [*(f"{n}_backward" for n in bases), "backward"]
    found = (f for n in backward_names if (f := function(n, must=bool(explicit))) is not None)
    backward = next((f for f in found if explicit or not _is_for_autograd(f)), None)
    if explicit and backward is None:
        raise LoadError(
            f"no backward entry point: looked for {explicit}; callables there are {_callables(language, module, own)}"
        )
    adapted = language.adapt(forward) if forward is not None else None
    return PythonLoaded(
        function=adapted or forward,
        module_class=module_class,
        explicit_backward=backward and (language.adapt(backward) or backward),
        autograd=adapted is None,
        device=device,
        launch_watch=watch,
        source_dir=source_dir,
        language=language,
    )


def _is_for_autograd(function: Callable[..., Any]) -> bool:
    """Whether autograd calls a function, with a context first, as what ``register_autograd`` is given."""
    return type(function) is FunctionType and function.__code__.co_varnames[:1] == ("ctx",)


def _module_class(module: ModuleType, entry: str, own: set[str]) -> type | None:
    for name in (entry, *MODULE_CLASSES) if entry else MODULE_CLASSES:
        value = getattr(module, name, None)
        if isinstance(value, type) and (name == entry or name in own):
            return value
    return None


def _own_names(candidate: Candidate, module: ModuleType) -> set[str]:
    """Names that the main file binds itself at module level, or that come from the candidate's other files."""
    siblings = {PurePosixPath(path).parts[0].removesuffix(".py") for path, _ in candidate.files[1:]}
    homes = {MODULE_NAME, *siblings}
    # What was defined there, however it got its name (exec, star imports) ...
    found = {name for name, value in vars(module).items() if _home(value) in homes}
    # ... and what was bound there, wherever it was defined (compiled extensions, torch.compile, partial).
    nodes: list[ast.AST] = list(ast.parse(candidate.main).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            if node.level or (node.module or "").split(".")[0] in siblings:
                found.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                found.add(node.id)
        else:
            nodes.extend(ast.iter_child_nodes(node))
    return found


def _home(value: Any) -> str:
    """The first part of the name of the module that defined a value; empty for one that does not say."""
    try:
        return str(getattr(value, "__module__", None)).split(".")[0]
    except Exception:  # noqa: BLE001 - a weak reference to what is gone, or the candidate's own code
        return ""


def _callables(language: PythonLanguage, module: ModuleType, own: set[str]) -> str:
    there = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and name in own and (language.is_entry(value) or issubclass(type(value), type))
    ]
    return ", ".join(there[:20]) or "none"
