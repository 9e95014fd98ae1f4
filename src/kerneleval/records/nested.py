"""What holds tensors in tuples, lists and dicts: as a flat list and a form. Arguments are put together again.

The judge draws, reveals and changes single tensors. What calls a module makes arguments of them, and takes apart what
it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerneleval.records.errors import UsageError

__all__ = ["Form", "OutputForm", "described", "flat", "names_of", "nested", "opened"]

Form = Sequence[Any]
"""Of each argument: the position of its value, or ``{"tuple": forms}``, ``{"list": forms}``, ``{"dict": name -> form}``
of what it holds; plain data."""


def flat(values: Sequence[Any], is_tensor: Callable[[Any], bool]) -> tuple[list[Any], Form | None]:
    """Every tensor, and what lies beside one in a container, as a value of its own; and the form, None where no
    container holds a tensor. Raises UsageError for a container that is no tuple, list or dict with texts as names.
    """
    leaves: list[Any] = []
    form = [_form_of(value, is_tensor, leaves) for value in values]
    return leaves, None if all(type(one) is int for one in form) else form


def _form_of(value: Any, is_tensor: Callable[[Any], bool], leaves: list[Any]) -> Any:
    """The form of a value, whose leaves are added. No closure: one that calls itself would hold large tensors until
    the next garbage collection.
    """
    if not _holds(value, is_tensor):
        leaves.append(value)
        return len(leaves) - 1
    kind = type(value)
    if kind is dict and all(type(name) is str for name in value):
        return {"dict": {name: _form_of(one, is_tensor, leaves) for name, one in value.items()}}
    if kind not in (tuple, list):
        raise UsageError(f"a {kind.__name__} that holds tensors; tuples, lists and dicts with texts as names may")
    return {kind.__name__: [_form_of(one, is_tensor, leaves) for one in value]}


def _holds(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    """Whether a container holds a tensor, at whatever depth."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    inside = value if isinstance(value, (tuple, list, set, frozenset)) else ()
    return any(is_tensor(one) or _holds(one, is_tensor) for one in inside)


def nested(form: Form | None, leaves: Sequence[Any]) -> list[Any]:
    """The arguments of these values; the values themselves where there is no form."""
    return list(leaves) if form is None else [_value_of(one, leaves) for one in form]


def _value_of(form: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(form, int):
        return leaves[form]
    ((kind, parts),) = form.items()
    if kind == "dict":
        return {name: _value_of(part, leaves) for name, part in parts.items()}
    values = [_value_of(part, leaves) for part in parts]
    return tuple(values) if kind == "tuple" else values


def names_of(form: Form | None, names: Sequence[str]) -> list[str]:
    """A name for every value: that of its argument, and where it lies in it, as ``state[0]``."""

    def of(one: Any, name: str) -> Iterator[str]:
        if isinstance(one, int):
            yield name
            return
        ((_, parts),) = one.items()
        for key, part in parts.items() if isinstance(parts, Mapping) else enumerate(parts):
            yield from of(part, f"{name}[{key}]")

    return (
        list(names) if form is None else [made for one, name in zip(form, names, strict=True) for made in of(one, name)]
    )


OutputForm = Any
"""Of what a module returns: ``"tensor"``, ``"number"``, ``{"list": forms}`` of tuples and lists, ``{"dict": [[name,
form], ...]}``; what holds neither tensors nor numbers is left out, and None is nothing; plain data."""


def opened(result: Any, is_tensor: Callable[[type], bool]) -> tuple[list[Any], OutputForm]:
    """The tensors and numbers in nested tuples, lists and dicts, in order, what has names by name; and their form.

    Read by the built-in types' own methods, and distinguished by the real type: what a subclass, or an object that says
    it is of another class, would compute when it is read is never computed.
    """
    kind = type(result)
    if is_tensor(kind):
        return [result], "tensor"
    if issubclass(kind, dict):
        names = list(dict.keys(result))
        if all(type(name) is str for name in names):
            names.sort()
        values = [opened(dict.__getitem__(result, name), is_tensor) for name in names]
        named = [
            [name if type(name) in (str, int) else "", form]
            for name, (_, form) in zip(names, values, strict=True)
            if form is not None
        ]
        return [leaf for leaves, _ in values for leaf in leaves], {"dict": named} if named else None
    if issubclass(kind, (tuple, list)):
        parts = tuple.__iter__(result) if issubclass(kind, tuple) else list.__iter__(result)
        values = [opened(part, is_tensor) for part in parts]
        forms = [form for _, form in values if form is not None]
        return [leaf for leaves, _ in values for leaf in leaves], {"list": forms} if forms else None
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray":  # its scalars
        result = result.item()
        kind = type(result)
    for builtin in (bool, int, float):
        if issubclass(kind, builtin):
            return [builtin.__pos__(result) if builtin is not bool else result], "number"
    return [], None


def described(form: OutputForm) -> str:
    """A form in words."""
    if form is None:
        return "no tensor"
    if isinstance(form, str):
        return form
    ((kind, parts),) = form.items()
    if kind == "dict":
        return "{" + ", ".join(f"{name!r}: {described(one)}" for name, one in parts) + "}"
    return "(" + ", ".join(map(described, parts)) + ("," if len(parts) == 1 else "") + ")"
