"""A Python file with ``Model``, ``get_inputs`` and ``get_init_inputs``: parsed once, executed at any sizes.

The file is the user's own task and is trusted, as any program that one starts. Each execution gets a namespace of its
own, so that two sizes of one file, or two files with the same names, never meet.

Its *integers* are what a sweep may vary: top-level names that are bound to a constant whole number, or to a tuple or
list of them, whose elements are then called ``name[0]``, ``name[1]`` ... A new value is bound right behind the last
such statement, so that everything derived from it follows. Whole numbers written elsewhere, inside ``get_inputs()`` and
what it uses, are *literals*: ``literals.py`` finds them, and a new value takes their place.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import os
import random
import re
import symtable
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import torch
from numpy.random import mtrand
from torch.utils._pytree import SequenceKey, tree_flatten_with_path, tree_leaves, tree_map, tree_unflatten

from kerneleval.records import InfrastructureError, UsageError, digest, near, without_hub
from kerneleval.tasks.formats.literals import (
    Literal,
    Replaced,
    bindings,
    find_literals,
    parameters,
    whole_number,
    whole_numbers,
)

NEEDED = ("Model", "get_inputs", "get_init_inputs")
"""Names that a problem file must define."""

ITEMS = {"get_inputs[batch]": 0, "get_inputs[batch_second]": 1}
"""Dims of a batch of one that the file gives: of how many items it is (:func:`_of_items`), and which dim of the inputs
it is.
"""

_OF_MODEL = "Model["

PERCENT = "%"
"""Ends the name of a dim that is a number of the constructor in hundredths of the file's own."""

_KNOWN = """from kerneleval.records import without_hub

_kerneleval_hub = without_hub({known!r})
_kerneleval_hub.__enter__()  # it stays: what ends with the last reference to it would put the hub back
"""

FILE_BEGINS = "# kerneleval: the problem file begins here\n"
"""What follows in :attr:`ProblemFile.baseline_text` is the file."""


def is_of_constructor(name: str) -> bool:
    """Whether a dim is a number that ``get_init_inputs()`` gives (:attr:`ProblemFile.constructor`)."""
    return name.startswith(_OF_MODEL)


class ProblemFile:
    """A parsed problem file; raises UsageError where it cannot be read or parsed, or lacks one of :data:`NEEDED`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.tree = ast.parse(self.text, filename=str(path))
            names = symtable.symtable(self.text, str(path), "exec").get_symbols()
        except SyntaxError as error:
            raise UsageError(f"{path}, line {error.lineno}: not Python: {error.msg}") from error
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the problem file {path}: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise UsageError(f"cannot read the problem file {path}: nested too deep for Python's parser") from error
        bound = {name.get_name() for name in names if name.is_assigned() or name.is_imported()}
        missing = [name for name in NEEDED if name not in bound]
        if missing:
            raise UsageError(
                f"{path} is no KernelBench problem: it defines no {' and no '.join(missing)}; "
                "it needs class Model, get_inputs() and get_init_inputs()"
            )
        self.hash = digest(self.text)
        self.on_host: set[str] = set()
        """What of its code fails on an accelerator, and runs on the host."""
        self._configs: dict[str, str] = {}
        self._dtype = torch.get_default_dtype()
        self._places: dict[str, int] = {}
        self._sequences: dict[str, tuple[type, list[int]]] = {}
        self.integers: dict[str, int] = self._find_integers()

    # -- integers -----------------------------------------------------------------------------------------------------

    def _find_integers(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for index, statement in enumerate(self.tree.body):
            for name, value in bindings(statement):
                number = whole_number(value)
                sequence = whole_numbers(value)
                if number is None and sequence is None:
                    continue
                for old in [key for key in found if key == name or key.startswith(f"{name}[")]:
                    del found[old]
                self._sequences.pop(name, None)
                self._places[name] = index
                if number is not None:
                    found[name] = number
                elif sequence is not None:
                    self._sequences[name] = (tuple if isinstance(value, ast.Tuple) else list, sequence)
                    found.update({f"{name}[{i}]": v for i, v in enumerate(sequence)})
        return found

    @functools.cached_property
    def sizes(self) -> dict[str, int]:
        """The integers of 1 and more, as written: the dims of the task."""
        return {name: value for name, value in self.integers.items() if value >= 1}

    @functools.cached_property
    def read_by_model(self) -> frozenset[str]:
        """Top-level names that ``Model``, or what it calls, reads directly instead of getting them as arguments.

        A candidate is given arguments only, so these must stay as written.
        """
        values = {name: value for node in self.tree.body for name, value in bindings(node)}
        reads = _global_reads(self.tree, self.text, str(self.path))
        seen: set[str] = set()
        waiting = ["Model"]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            waiting += reads.get(name, ())
            if name in values:
                waiting += [node.id for node in ast.walk(values[name]) if isinstance(node, ast.Name)]
        return frozenset(seen)

    @functools.cached_property
    def literals(self) -> dict[str, Literal]:
        """Whole numbers of 2 and more inside the functions that make inputs and what they use, by names of our own:
        ``get_inputs[0]`` is the first one there. None of what ``Model`` reads is among them.
        """
        reads = _global_reads(self.tree, self.text, str(self.path))
        return find_literals(self.tree, reads, self.read_by_model | set(self._places))

    def value(self, name: str) -> int:
        """An integer or a literal, as written."""
        if name in ITEMS:
            return 1
        if is_of_constructor(name):
            own = self.constructor[name]
            return own if isinstance(own, int) else 100
        return self.integers[name] if name in self.integers else self.literals[name].value

    @functools.cached_property
    def constructor(self) -> dict[str, int | float]:
        """Numbers that ``get_init_inputs()`` gives, by names of our own: ``Model[k]`` is that for the parameter ``k``,
        ``Model[eps%]`` a fractional one.
        """
        return self.numbers({})

    def numbers(self, dims: Mapping[str, int]) -> dict[str, int | float]:
        """The same at other dims. Raises UsageError: the file raises."""
        module = self.execute(dims)
        with self.running("get_init_inputs()", 0):
            given = module.get_init_inputs()
        return dict(_numbers(given, parameters(self.tree))[0])

    # -- models of transformers ---------------------------------------------------------------------------------------

    @functools.cached_property
    def uses_transformers(self) -> bool:
        """Whether it imports ``transformers``."""
        imports = [node for node in ast.walk(self.tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
        names = [getattr(node, "module", None) or node.names[0].name for node in imports]
        return any(name.partition(".")[0] == "transformers" for name in names)

    @property
    def baseline_text(self) -> str:
        """The text as a worker executes it, which may read no file and no hub: it knows the configurations."""
        if not self.uses_transformers:
            return self.text
        return _KNOWN.format(known=self._configs) + FILE_BEGINS + self.text

    # -- execution ----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(
        self, doing: str, seed: int | None = None, device: str = "cpu", *, place: bool = True
    ) -> Iterator[None]:
        """Every piece of the file's code runs in such a block, under the seed if one is given (:func:`seeded`). Errors
        are told with the file's line (:func:`problem_error`). What the code prints goes to stderr, and its warnings are
        not shown. The default dtype is the one that the file's top level sets. Other settings of torch that the code
        changes are put back at the end of the block.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(problem_error(self.path, doing))
            if self.uses_transformers:
                stack.enter_context(without_hub(self._configs))
            if seed is not None:
                stack.enter_context(seeded(seed, device, place=place))
            stack.enter_context(own_settings(self._dtype))  # inside: its own default device ends before the seed's
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            yield

    def execute(self, dims: Mapping[str, int]) -> ModuleType:
        """Execute the file with these values of :attr:`integers` and :attr:`literals` instead of its own; returns the
        fresh namespace. Raises UsageError: a dim that the file does not have; or the file raised (the message names the
        line).
        """
        for name in dims:
            known = name in self.integers or name in self.literals or name in ITEMS
            if not known and not (is_of_constructor(name) and name in self.constructor):
                raise UsageError(f"{self.path} has no top-level integer {name!r}; {near(name, self.integers)}")
        changed = {name: value for name, value in dims.items() if value != self.value(name)}
        name = f"kerneleval_problem_{digest(str(self.path), self.text, repr(sorted(changed.items())))[:16]}"
        module = ModuleType(name)
        module.__file__ = str(self.path)
        # Dataclasses, inspect and torch.jit look a class's module up by its name; this one collides with no other.
        sys.modules[name] = module
        self._dtype = torch.get_default_dtype()
        with self.running("executing the file", 0, place=False):
            code = compile(self._with(changed), str(self.path), "exec")
            exec(code, module.__dict__)
            dtype = torch.get_default_dtype()
        self._dtype = dtype
        for needed in NEEDED:
            if not callable(getattr(module, needed, None)):
                raise UsageError(f"{self.path}: {needed} is not callable once the file has been executed")
        for name in changed.keys() & ITEMS:
            vars(module)["get_inputs"] = functools.partial(_of_items, module.get_inputs, changed[name], ITEMS[name])
        if others := {name: changed[name] for name in changed if is_of_constructor(name)}:
            give = vars(module)["get_init_inputs"]
            vars(module)["get_init_inputs"] = functools.partial(_with_numbers, give, parameters(self.tree), others)
        return module

    def _with(self, changed: Mapping[str, int]) -> ast.Module:
        """The tree with new bindings behind the statements that they replace, and with new literals."""
        behind: dict[int, list[str]] = {}
        inside = {self.literals[name].place: value for name, value in changed.items() if name in self.literals}
        for name in dict.fromkeys(key.partition("[")[0] for key in changed if key in self.integers):
            if name in self._sequences:
                kind, values = self._sequences[name]
                text = f"{name} = {kind([changed.get(f'{name}[{i}]', v) for i, v in enumerate(values)])!r}"
            else:
                text = f"{name} = {changed[name]!r}"
            behind.setdefault(self._places[name], []).append(text)
        body: list[ast.stmt] = []
        tree = ast.parse(self.text) if inside else self.tree  # in a quarter of the time of a copy
        for index, statement in enumerate(tree.body):
            body.append(statement)
            for text in behind.get(index, ()):
                new = ast.parse(text).body[0]
                for node in ast.walk(new):
                    ast.copy_location(node, statement)
                body.append(new)
        made = ast.Module(body=body, type_ignores=[])
        if inside:
            Replaced(inside).visit(made)  # a whole module stays the same node
        return made


def _of_items(draw: Callable[[], Any], count: int, place: int) -> Any:
    """What ``get_inputs()`` gives, with so many draws one behind the other of each tensor that is a batch of one. One
    of another shape than the first of them is repeated, for all items may share it (a bias, a mask, a hidden state);
    but not integers of one dim, as labels and lengths are.
    """
    draws = [draw() for _ in range(count)]
    items = [value for value in tree_leaves(draws[0]) if _dim_of_items(value, place) is not None]

    def joined(one: Any, *others: Any) -> Any:
        dim = _dim_of_items(one, place)
        if dim is None:
            return one
        own = one.shape == items[0].shape or (one.dim() == 1 and not one.is_floating_point())
        return torch.cat([one, *others] if own else [one] * count, dim)

    return tree_map(joined, *draws)


def _dim_of_items(value: Any, place: int) -> int | None:
    """The dim along which it may be a batch of one: this, else the first one; a single floating number is none."""
    if not isinstance(value, torch.Tensor) or (value.numel() < 2 and value.is_floating_point()):
        return None
    return next((dim for dim in dict.fromkeys((place, 0)) if value.shape[dim : dim + 1] == (1,)), None)


def _numbers(given: Any, names: Sequence[str]) -> tuple[list[tuple[str, int | float]], list[str], Any]:
    """Numbers that a constructor gets by their names, the names of all that it gets, ``""`` of what is no number, and
    how that is nested. ``names``: those of its parameters.
    """
    found, known = [], []
    leaves, form = tree_flatten_with_path(given)
    for path, leaf in leaves:
        keys = [key.idx if isinstance(key, SequenceKey) else getattr(key, "key", "") for key in path]
        apart = isinstance(given, (list, tuple)) and len(given) == 2 and isinstance(given[0], (list, tuple))
        if apart and isinstance(given[1], Mapping):
            keys = keys[1:]  # arguments and keywords
        first = keys[0] if keys else ""
        first = names[first] if isinstance(first, int) and first < len(names) else first
        name = f"{_OF_MODEL}{first}{''.join(f'[{key}]' for key in keys[1:])}{PERCENT * (type(leaf) is float)}]"
        known.append(name if type(leaf) in (int, float) else "")
        if known[-1]:
            found.append((name, leaf))
    return found, known, form


def _with_numbers(give: Callable[[], Any], names: Sequence[str], others: Mapping[str, int]) -> Any:
    """What ``get_init_inputs()`` gives, with other numbers."""
    given = give()
    _, known, form = _numbers(given, names)

    def other(name: str, leaf: Any) -> Any:
        if name not in others:
            return leaf
        return others[name] if type(leaf) is int else leaf * others[name] / 100

    return tree_unflatten(list(map(other, known, tree_leaves(given))), form)


@contextlib.contextmanager
def problem_error(path: Path, doing: str) -> Iterator[None]:
    """Turn whatever the file raises into a UsageError with the path, its line and what was being done, ``__cause__``
    being the original; UsageErrors pass through. Raises InfrastructureError: the device has too little memory.
    """
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f.lineno for f in frames if f.filename == str(path)]
        if isinstance(error, KeyboardInterrupt) and not _raises(path, frames[-1]):
            raise  # Ctrl-C
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        text = str(error).strip().split("\n")[0][:500]
        if isinstance(error, torch.OutOfMemoryError):
            raise InfrastructureError(f"{where}: too little device memory for {doing}: {text}") from error
        said = f"{type(error).__name__}: {text}" if text else type(error).__name__
        raise UsageError(f"{where}: {doing} raised {said}{_hint(path, error)}") from error


def _raises(path: Path, frame: traceback.FrameSummary) -> bool:
    """Whether a statement of the file raised, rather than that something came from outside while it ran."""
    return frame.filename == str(path) and (frame.line or "").lstrip().startswith("raise")


def _hint(path: Path, error: BaseException) -> str:
    """What to do about an error that the file raised; empty: its message says it."""
    text = str(error)
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name.partition(".")[0]
        beside = next((f / name for f in path.absolute().parents[:3] if (f / name).is_dir()), None)
        beside = next((f / f"{name}.py" for f in path.absolute().parents[:3] if (f / f"{name}.py").exists()), beside)
        if beside is not None:
            return f"; a problem file is read alone, without {beside}: copy what it needs from there into it"
        return f"; install the package that has it (pip install {name})"
    if isinstance(error, ImportError) and "relative import" in text:
        return "; a problem file is read alone: copy what it needs from other files into it"
    if re.search("cuda|nvidia driver", text, re.I) and not torch.cuda.is_available():  # by PyTorch's CPU or CUDA build
        return (
            "; there is no CUDA device here. Leave device='cuda' and .cuda() out: inputs and weights come out on the "
            "device that is judged, and forward has x.device"
        )
    if "does not require grad" in text:
        return "; inputs and weights come without gradients: call x.requires_grad_() on a copy in forward"
    return ""


_ONE = threading.RLock()
"""Torch's settings are the process's own: one piece of code that changes them runs at a time."""


def _default_device() -> torch.device | None:
    """What ``torch.set_default_device`` set; None: nothing."""
    # torch.get_default_device() also tells of the ``with torch.device(...)`` around
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def _deterministic() -> int:
    return int(torch.get_deterministic_debug_mode())


def _libraries() -> tuple[bool, ...]:
    cudnn = torch.backends.cudnn
    return cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


def _set_libraries(values: tuple[bool, ...]) -> None:
    cudnn = torch.backends.cudnn
    cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = values


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (_default_device, torch.set_default_device),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (_deterministic, torch.set_deterministic_debug_mode),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (_libraries, _set_libraries),
)
"""How each setting of torch is read and set."""


@contextlib.contextmanager
def own_settings(dtype: torch.dtype | None = None) -> Iterator[None]:
    """What the block does to torch's settings (default dtype and device, gradients, threads, TF32 ...) ends with it;
    ``dtype``: the default one inside.
    """
    with _ONE:
        before = [get() for get, _ in _SETTINGS]
        try:
            if dtype is not None:
                torch.set_default_dtype(dtype)
            yield
        finally:
            for (get, put), value in zip(_SETTINGS, before, strict=True):
                if get() != value:
                    put(value)


@contextlib.contextmanager
def seeded(seed: int, device: str, *, place: bool = True) -> Iterator[None]:
    """Seed torch, NumPy and ``random`` (with 63 bits at most), and restore their states afterwards, that of the
    device's generator (``cpu``, ``cuda:1``, ``meta`` ...) too. ``place``: whether tensors that are created without a
    device come out there: random numbers are then drawn on it.
    """
    kind = torch.device(device).type
    accelerators = [torch.device(device)] if kind not in ("cpu", "meta") else []
    with contextlib.ExitStack() as stack:
        stack.callback(random.setstate, random.getstate())
        stack.enter_context(_other_numpy_generator())
        stack.enter_context(torch.random.fork_rng(devices=accelerators, device_type=kind if accelerators else "cuda"))
        # torch.manual_seed notes its call stack for every kind of GPU that is not in use: 0.6 ms
        (torch.manual_seed if accelerators else torch.default_generator.manual_seed)(seed)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        if place and torch.get_default_device() != torch.device(device):
            _import_compiler()
            stack.enter_context(torch.device(device))
        yield


_SPARE: list[numpy.random.MT19937] = []
"""NumPy's generators that no block uses; one is made in 0.2 ms."""


@contextlib.contextmanager
def _other_numpy_generator() -> Iterator[None]:
    """Another generator behind ``numpy.random`` in the block, which takes 1 us; to read and write the state of one
    takes 0.16 ms. Of two normal numbers that NumPy made at once, the one that was not yet given is lost.
    """
    with _ONE:
        own = mtrand.get_bit_generator()
        other = _SPARE.pop() if _SPARE else numpy.random.MT19937()
        mtrand.set_bit_generator(other)
        try:
            yield
        finally:
            mtrand.set_bit_generator(own)
            _SPARE.append(other)


@functools.cache
def _import_compiler() -> None:
    """Import what subtraction and division of tensors import under a default device (PyTorch 2.13: its compiler).

    The import makes a cache directory; made here, it does not stay behind among the temporary files.
    """
    name = "TORCHINDUCTOR_CACHE_DIR"
    if name in os.environ:
        return
    with tempfile.TemporaryDirectory() as directory:
        os.environ[name] = directory
        try:
            importlib.import_module("torch._dynamo")
        finally:
            del os.environ[name]


# -- Constants in the source ------------------------------------------------------------------------------------------


def _global_reads(tree: ast.Module, text: str, path: str) -> dict[str, set[str]]:
    """Top-level class or function -> the top-level names that it reads; a parameter of such a name is another thing."""
    found: dict[str, set[str]] = {}
    for node in tree.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if isinstance(node, ast.ClassDef):
                outside: list[ast.AST] = [*node.bases, *node.keywords]
            else:
                outside = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
            outside += node.decorator_list
            found[node.name] = {n.id for part in outside for n in ast.walk(part) if isinstance(n, ast.Name)}
    waiting = [(table.get_name(), table) for table in symtable.symtable(text, path, "exec").get_children()]
    while waiting:
        owner, table = waiting.pop()
        if owner in found:
            found[owner] |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        waiting += [(owner, child) for child in table.get_children()]
    return found
