"""Whole numbers in the source of a problem file: constants, and those inside the functions that make inputs.

It reads the syntax tree and executes nothing. ``problem_file.py`` executes it with other numbers, ``sweep.py`` finds
out which of them are sizes.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

_MAX_EXPONENT = 64

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
}

_MAKERS = ("get_inputs", "get_init_inputs")

_NO_SIZES = re.compile(
    r"range|transpose|permute|(un)?squeeze|movedim|moveaxis|swapaxes|flip|roll|manual_seed|seed|default_rng|Generator|"
    r"(log_)?softmax|normalize|sum|mean|prod|amax|amin|cat|stack|concat|cumsum|(arg)?sort|(un)?flatten|split|chunk|"
    r"triu|tril|diagonal|round|isinstance|select|narrow"
)
"""Functions and methods whose whole numbers say which dim, which seed or how often, not how large."""

_NO_SIZE_NAMES = frozenset({"seed", "generator", "device", "low"})
_AXES, _MOST_AXES = frozenset({"dim", "axis", "dims", "start_dim", "end_dim"}), 8
"""Names of axes, where the number is less: ``dim = 256`` is a size."""

_COORDINATES = 4
"""The largest last size that stands as a number among others and is what an element is made of."""

_SEVERAL = 3
"""Inputs that are made by calls alike are of one kind if they are so many: two may be any."""

_RANDOM = re.compile(r"randint(_like)?|integers|randrange|random_")
_FILLED = re.compile(r"randn?|randint|zeros|ones|full|empty")
"""Calls that make a tensor of a shape."""
_EIGHT_BITS = frozenset(f"{module}.{kind}" for module in ("torch", "np", "numpy") for kind in ("uint8", "int8"))

Place = tuple[int, int, int]
"""(line, first column, last column) of an expression."""


class Literal(NamedTuple):
    """A whole number inside a function."""

    value: int
    place: Place
    hint: str = ""
    """Name that it is bound to: a keyword, a variable, a key, a parameter of ``Model``; empty: none."""
    bound: bool = False
    """Whether it bounds random integers: no size, but it follows the size of the table that these index."""
    lengths: bool = False
    """Whether these integers begin above 0, as lengths do."""
    narrow: bool = False
    """Whether these integers have eight bits: levels of a quantisation, which point into no table."""
    group: Place | None = None
    """The place of the first of three numbers or more that are one size (:func:`_groups`); None: it is alone."""


class Replaced(ast.NodeTransformer):
    """Puts other numbers in the places of expressions."""

    def __init__(self, values: Mapping[Place, int]) -> None:
        self._values = values

    def visit(self, node: ast.AST) -> ast.AST:
        """The node, or the number in its place."""
        if isinstance(node, ast.expr) and (place := _place(node)) in self._values and whole_number(node) is not None:
            return ast.copy_location(ast.Constant(self._values[place]), node)
        return self.generic_visit(node)


def find_literals(
    tree: ast.Module, reads: Mapping[str, Collection[str]], without: Collection[str]
) -> dict[str, Literal]:
    """Whole numbers of 2 and more in ``get_inputs``, ``get_init_inputs`` and the top-level names that they use, by
    ``name[i]`` in the order of the text.

    Args:
        reads: top-level function or class -> top-level names that it reads.
        without: names that are left alone, with what they alone use.
    """
    defined: dict[str, ast.AST] = {}
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            defined[statement.name] = statement
        defined.update(bindings(statement))
    found: dict[str, Literal] = {}
    waiting, seen = list(_MAKERS), set(without)
    while waiting:
        name = waiting.pop(0)
        if name in seen or name not in defined:
            continue
        seen.add(name)
        node = defined[name]
        waiting += sorted(reads.get(name, ()))
        if isinstance(node, ast.expr):
            waiting += [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]
        numbers = dict.fromkeys(_numbers(node, "", parameters(tree) if name == "get_init_inputs" else ()))
        bounds, groups, narrow = _bounds_alone(node), _groups(node), _of_eight_bits(node)
        for i, literal in enumerate(numbers):
            bound, group = literal.bound or literal.hint in bounds, groups.get(literal.place)
            found[f"{name}[{i}]"] = literal._replace(bound=bound, group=group, narrow=literal.place in narrow)
    return found


def _groups(node: ast.AST) -> dict[Place, Place]:
    """Places of equal numbers that stand at one place in three calls or more, all alike but for one argument at most,
    as in ``torch.randn(2, 8, 64)`` for queries, keys and values, or up to which three shapes are alike
    (:func:`_beginnings`); each with the first of its group.
    """
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    parts = [_written(call) for call in calls]
    found = _beginnings([_shape(call) for call in calls if _FILLED.fullmatch(_called(call))])
    for call, own in zip(calls, parts, strict=True):
        others = [_sizes_of(other) for other, its in zip(calls, parts, strict=True) if _apart(own, its) <= 1]
        for size, *theirs in zip(_sizes_of(call), *others, strict=True):
            alike = [_place(one) for one in theirs if whole_number(one) == whole_number(size)]
            if whole_number(size) is not None and len(alike) >= _SEVERAL:
                found.setdefault(_place(size), found.get(alike[0], alike[0]))
    return found


def _beginnings(shapes: Sequence[Sequence[ast.expr]]) -> dict[Place, Place]:
    """Places of equal numbers up to which three shapes or more are written alike, as in ``torch.randn(2, 40, 8)``,
    ``torch.rand(2, 40)`` and ``torch.randn(2, 40, 4, 4)``: the 40, and the 2 where all shapes begin with it; each with
    the first of its group. So are two shapes of which one is the whole beginning of the other, from two sizes on: a
    number for each of its rows.
    """
    found: dict[Place, Place] = {}
    written = [[ast.dump(size) for size in shape] for shape in shapes]
    for shape, own in zip(shapes, written, strict=True):
        for i, size in enumerate(shape):
            begin = [other[: i + 1] == own[: i + 1] for other in written]
            alike = [_place(other[i]) for other, same in zip(shapes, begin, strict=True) if same]
            if whole_number(size) is not None and len(alike) >= _SEVERAL and (i or len(alike) == len(shapes)):
                found[_place(size)] = alike[0]
        whole = next(
            (k for k, other in enumerate(written) if 1 < len(other) < len(own) and own[: len(other)] == other), None
        )
        for size, other in zip(shape, shapes[whole] if whole is not None else (), strict=False):
            if whole_number(size) is not None:
                found.setdefault(_place(size), found.setdefault(_place(other), _place(other)))
    return found


def _sizes_of(call: ast.Call) -> list[ast.expr]:
    """The arguments of a call, those in a tuple or list one by one."""
    return [one for arg in call.args for one in (arg.elts if isinstance(arg, (ast.Tuple, ast.List)) else [arg])]


def _shape(call: ast.Call) -> Sequence[ast.expr]:
    """The sizes in the first tuple or list of a call, else its arguments."""
    return next((arg.elts for arg in call.args if isinstance(arg, (ast.Tuple, ast.List))), call.args)


def _written(call: ast.Call) -> list[str]:
    """What is called, with keywords, and each argument, as it is written."""
    called = ast.dump(ast.Call(func=call.func, args=[], keywords=call.keywords))
    return [called, *map(ast.dump, _sizes_of(call))]


def _apart(one: Sequence[str], other: Sequence[str]) -> float:
    """In how many arguments two calls differ; infinite where they are no calls of one kind."""
    if len(one) != len(other) or one[0] != other[0]:
        return math.inf
    return sum(a != b for a, b in zip(one, other, strict=True))


def _bounds_alone(node: ast.AST) -> set[str]:
    """Names of which nothing is made below a node but bounds of random integers."""
    bounds = [
        bound
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and _RANDOM.fullmatch(_called(call))
        for bound in (*call.args, *(one.value for one in call.keywords if one.arg == "high"))
        if not isinstance(bound, (ast.Tuple, ast.List))
    ]
    read, within = (
        Counter(
            name.id
            for part in parts
            for name in ast.walk(part)
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load)
        )
        for parts in ([node], bounds)
    )
    return {name for name, times in within.items() if times == read[name]}


def _of_eight_bits(node: ast.AST) -> set[Place]:
    """Places within calls below a node that make integers of eight bits."""
    found: set[Place] = set()
    for call in (one for one in ast.walk(node) if isinstance(one, ast.Call)):
        given = [*call.args, *(one.value for one in call.keywords)]
        if _called(call) in ("byte", "char") or any(ast.unparse(one) in _EIGHT_BITS for one in given):
            found |= {_place(one) for one in ast.walk(call) if isinstance(one, ast.expr)}
    return found


def _is_few(last: ast.expr, sizes: Sequence[ast.expr]) -> bool:
    """Whether it is the last of several sizes, and no more than 4: coordinates, colours, quaternions."""
    value = whole_number(last)
    others = len(sizes) > 1 and last is sizes[-1] and whole_number(sizes[-2]) is not None
    return others and value is not None and value <= _COORDINATES


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _numbers(node: ast.AST, hint: str, parameters: Sequence[str] = (), bound: bool = False) -> Iterator[Literal]:
    """The largest constant whole expressions below a node, but for those that are no sizes by the look of them."""
    if isinstance(node, ast.expr) and (value := whole_number(node)) is not None:
        if value >= 2 and hint not in _NO_SIZE_NAMES and not (hint in _AXES and value < _MOST_AXES):
            yield Literal(value, _place(node), hint, bound)
    elif isinstance(node, ast.Call):
        yield from _in_call(node)
    elif isinstance(node, ast.Return) and parameters and isinstance(node.value, (ast.List, ast.Tuple)):
        for index, element in enumerate(node.value.elts):
            yield from _numbers(element, parameters[index] if index < len(parameters) else "")
    else:
        shape = node.elts if isinstance(node, (ast.Tuple, ast.List)) and not parameters else []
        for name, child in _named(node, hint):
            if not (isinstance(child, ast.expr) and _is_few(child, shape)):
                yield from _numbers(child, name, parameters, bound)


def _in_call(node: ast.Call) -> Iterator[Literal]:
    called = _called(node)
    yield from _numbers(node.func, "")
    random, sizes = bool(_RANDOM.fullmatch(called)), not _NO_SIZES.fullmatch(called)
    lows = [*node.args[:1], *(one.value for one in node.keywords if one.arg == "low")] if len(node.args) != 1 else []
    lengths = random and any((whole_number(low) or 0) > 0 for low in lows)
    for argument in node.args:
        if (sizes or whole_number(argument) is None) and not _is_few(argument, node.args):
            bound = random and not isinstance(argument, (ast.Tuple, ast.List))
            yield from (one._replace(lengths=lengths and bound) for one in _numbers(argument, "", bound=bound))
    for keyword in node.keywords:
        bound = random and keyword.arg == "high"
        found = _numbers(keyword.value, keyword.arg or "", bound=bound)
        yield from (one._replace(lengths=lengths and bound) for one in found)


def _named(node: ast.AST, hint: str) -> list[tuple[str, ast.AST]]:
    """(name that it is bound to, part) of the parts of a node in which sizes may stand."""
    if isinstance(node, ast.Subscript):  # an index is no size, but a mask or a range is made with some
        return [(hint, node.value), *(("", made) for made in ast.walk(node.slice) if isinstance(made, ast.Call))]
    if isinstance(node, ast.Dict):
        keys = [str(key.value) if isinstance(key, ast.Constant) else "" for key in node.keys]
        return list(zip(keys, node.values, strict=True))
    if isinstance(node, ast.stmt) and (pairs := bindings(node)):
        return list(pairs)
    return [(hint, child) for child in ast.iter_child_nodes(node)]


def parameters(tree: ast.Module) -> Sequence[str]:
    """Names that ``Model.__init__`` takes after ``self``."""
    for statement in tree.body:
        for node in statement.body if isinstance(statement, ast.ClassDef) and statement.name == "Model" else ():
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                return tuple(one.arg for one in node.args.args[1:])
    return ()


def _place(node: ast.expr) -> Place:
    return node.lineno, node.col_offset, node.end_col_offset or 0


def bindings(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """(name, value) of every plain name that a top-level assignment binds, unpacked tuples included."""
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets: list[ast.expr] = [statement.target]
        value = statement.value
    elif isinstance(statement, ast.Assign):
        targets, value = statement.targets, statement.value
    else:
        return []
    found: list[tuple[str, ast.expr]] = []
    for target in targets:
        if isinstance(target, ast.Name):
            found.append((target.id, value))
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            if len(parts) == len(target.elts):
                found += [(t.id, p) for t, p in zip(target.elts, parts, strict=True) if isinstance(t, ast.Name)]
    return found


def whole_number(node: ast.expr) -> int | None:
    """The value of a constant integer expression; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        inner = whole_number(node.operand)
        return None if inner is None else (-inner if isinstance(node.op, ast.USub) else inner)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = whole_number(node.left), whole_number(node.right)
        if left is None or right is None:
            return None
        if isinstance(node.op, (ast.Pow, ast.LShift)) and not 0 <= right <= _MAX_EXPONENT:
            return None
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and right == 0:
            return None
        return _BINARY[type(node.op)](left, right)
    return None


def whole_numbers(node: ast.expr) -> list[int] | None:
    """The values of a tuple or list of constant integers; None for anything else."""
    if not isinstance(node, (ast.Tuple, ast.List)) or not node.elts:
        return None
    values = [whole_number(element) for element in node.elts]
    return None if any(v is None for v in values) else [v for v in values if v is not None]
