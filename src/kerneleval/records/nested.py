"""Arguments that hold tensors in tuples, lists and dicts: as a flat list and a form, and back.

The judge draws, reveals and changes single tensors. What calls a module puts them together again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kerneleval.records.errors import UsageError

__all__ = ["Form", "flat", "names_of", "nested"]

Form = Sequence[Any]
"""Of each argument: the position of its value, or ``{"tuple": forms}``, ``{"list": forms}``, ``{"dict": name -> form}``
of what it holds; plain data."""


def flat(values: Sequence[Any], is_tensor: Callable[[Any], bool]) -> tuple[list[Any], Form | None]:
    """Every tensor, and what lies beside one in a container, as a value of its own; and the form, None where no
    container holds a tensor. Raises UsageError for a container that is no tuple, list or dict with texts as names.
    """
    leaves: list[Any] = []

    def form_of(value: Any) -> Any:
        if not _holds(value, is_tensor):
            leaves.append(value)
            return len(leaves) - 1
        kind = type(value)
        if kind is dict and all(type(name) is str for name in value):
            return {"dict": {name: form_of(one) for name, one in value.items()}}
        if kind not in (tuple, list):
            raise UsageError(f"a {kind.__name__} that holds tensors; tuples, lists and dicts with texts as names may")
        return {kind.__name__: [form_of(one) for one in value]}

    form = [form_of(value) for value in values]
    return leaves, None if all(type(one) is int for one in form) else form


def _holds(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    """Whether a container holds a tensor, at whatever depth."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    inside = value if isinstance(value, (tuple, list, set, frozenset)) else ()
    return any(is_tensor(one) or _holds(one, is_tensor) for one in inside)


def nested(form: Form | None, leaves: Sequence[Any]) -> list[Any]:
    """The arguments of these values; the values themselves where there is no form."""
    if form is None:
        return list(leaves)

    def value_of(one: Any) -> Any:
        if isinstance(one, int):
            return leaves[one]
        ((kind, parts),) = one.items()
        if kind == "dict":
            return {name: value_of(part) for name, part in parts.items()}
        values = [value_of(part) for part in parts]
        return tuple(values) if kind == "tuple" else values

    return [value_of(one) for one in form]


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
