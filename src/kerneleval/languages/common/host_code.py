"""Which functions of a shared library its entry points reach, from the text of ``objdump -R`` and ``objdump -d``: what
is not reached was never called. Each pattern takes time in proportion to the text, whatever symbols are called.

Direct calls, jumps and addresses that are taken count, also through slots of the global offset table. Where a function
that is reached calls through a pointer, what it calls is not known, and is reported as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["Listing", "Reached", "kernels_reached", "listing", "reached"]

_HEAD = re.compile(r"(?m)^([0-9a-f]{1,16}) <([^>\n]+)>:$")
_SYMBOL = re.compile(r"<([^<>+\n]+)(?:\+0x[0-9a-f]+)?>")
_SLOT = re.compile(r"# ([0-9a-f]{1,16}) <")
_THROUGH_POINTER = re.compile(r"\b(?:call|jmp)\s+\*|\bblr?\s+x\d")
_RELATIVE = re.compile(r"(?m)^([0-9a-f]{1,16}) R_[A-Z0-9]{1,9}(?:_64)?_RELATIVE(?:64)? +\*ABS\*\+0x([0-9a-f]{1,16})")
_NAMED = re.compile(r"(?m)^([0-9a-f]{1,16}) R_[A-Z0-9]{1,9}(?:_64)?_(?:GLOB_DAT|64|JUMP_SLOT?) +([^\s@]+)")
_RUNTIME = re.compile(r"cuda|__cuda|cu[A-Z]|__cxa_|_ZNSt|__gnu|[^ ]+@")
"""The CUDA run-time and the standard library: what they do by pointers is none of the candidate's."""


@dataclass(frozen=True, kw_only=True)
class Reached:
    """What entry points reach."""

    names: frozenset[str]
    """Symbols that the functions reached, those among them, refer to."""
    all_known: bool
    """Whether none of them calls through a pointer."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A library's disassembly, taken apart."""

    bodies: Mapping[str, str]
    """Function -> its lines."""
    slots: Mapping[int, str]
    """Address that the loader fills in -> the symbol whose address it gets."""


def listing(text: str) -> Listing:
    """Take apart what ``objdump -R`` and then ``objdump -d`` print."""
    heads = list(_HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    bodies: dict[str, str] = {}
    for head, end in zip(heads, ends, strict=False):  # no function: nothing ends
        bodies.setdefault(head[2], text[head.end() : end])
    at = {int(head[1], 16): head[2] for head in heads}
    slots = {int(m[1], 16): at.get(int(m[2], 16), "") for m in _RELATIVE.finditer(text)}
    slots |= {int(m[1], 16): m[2] for m in _NAMED.finditer(text)}
    return Listing(bodies=bodies, slots=slots)


def reached(code: Listing, entries: Iterable[str]) -> Reached:
    """What the entry points reach in a library.

    Args:
        code: of the library.
        entries: names of functions in it; their clones (``name.part.0``) are found by their callers.
    """
    open_ = [name for name in entries if name in code.bodies]
    names: set[str] = set(open_)
    all_known = True
    while open_:
        body = code.bodies[open_.pop()]
        all_known = all_known and _THROUGH_POINTER.search(body) is None
        found = {m[1] for m in _SYMBOL.finditer(body)}
        found |= {code.slots.get(int(m[1], 16), "") for m in _SLOT.finditer(body)}
        fresh = found - names
        names |= fresh
        open_ += [name for name in fresh if name in code.bodies and not _RUNTIME.match(name)]
    return Reached(names=frozenset(names - {""}), all_known=all_known)


def kernels_reached(code: Listing, entries: Iterable[str], kernels: Collection[str]) -> tuple[frozenset[str], bool]:
    """The CUDA kernels that entry points launch, and whether that is known: else all of them may be.

    nvcc makes of a kernel a host function of its name, or ``_ZL`` for ``_Z`` where it is static, and
    ``__device_stub__`` with its name in it; who launches it refers to one of these.
    """
    found = reached(code, entries)
    named = {name.replace("_ZL", "_Z", 1) if name.startswith("_ZL") else name for name in found.names}
    stubs = [name for name in named if "__device_stub_" in name]
    launched = {k for k in kernels if k in named or any(_stub(k) in stub for stub in stubs)}
    known = found.all_known and bool(launched)
    return frozenset(launched if known else kernels), known


def _stub(kernel: str) -> str:
    """What the mangled name of a kernel's stub has in it: lengths keep ``k`` from ``k2``."""
    name = f"__device_stub_{kernel}"
    return f"{len(name)}{name}"
