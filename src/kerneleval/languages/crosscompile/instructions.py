"""Which of a GPU's special units compiled code uses, by its instructions: SASS and AMDGCN.

Mnemonics: NVIDIA's "CUDA Binary Utilities", instruction set reference; AMD's CDNA 3 and RDNA 3/4 ISA guides.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

__all__ = ["CLASSES", "count", "widest_bytes"]

CLASSES: Mapping[str, tuple[str, str]] = {
    "mma": (r"[HIDBQ]MMA\b", r"v_(?:s?wmma|smfmac|mfma)_"),
    "wgmma": (r"[HIBQ]GMMA\b", ""),
    "tcgen05": (r"UTC\w*MMA\b", ""),
    "async copy": (r"LDGSTS\b", r"(?:global|buffer)_load_lds_|global_load_async_to_lds|buffer_load_\w+[^\n]*\blds\b"),
    "TMA": (r"(?:UTMA(?:LDG|STG|REDG|CMDFLUSH)|UBLKCP|UBLKRED)\b", r"tensor_load_to_lds|tensor_store_from_lds"),
    "cluster": (r"UCGABAR_\w+|CGABAR\b", ""),
    "spill": (r"(?:STL|LDL)\b", r"scratch_(?:load|store)_"),
}
"""Class -> what its instructions begin with in SASS and in AMDGCN. ``mma``: matrix units fed from registers; ``wgmma``
and ``tcgen05``: Hopper's and Blackwell's; ``spill``: local memory (NVIDIA) and scratch (AMD), arrays among it."""

_SASS_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "ENL2.256": 32}
_GCN_WIDTHS = dict.fromkeys(("ubyte", "sbyte", "byte", "u8", "i8", "b8"), 1)
_GCN_WIDTHS |= dict.fromkeys(("ushort", "short", "u16", "b16"), 2)
_GCN_WIDTHS |= {"dword": 4, "b32": 4, "dwordx2": 8, "b64": 8, "dwordx3": 12, "b96": 12, "dwordx4": 16, "b128": 16}


@functools.cache
def _patterns(amd: bool) -> dict[str, re.Pattern[str]]:
    place = r"(?m)^\s*" if amd else r"(?:;|\*/|@!?U?P\w+|^)\s*"
    return {name: re.compile(f"{place}(?:{both[amd]})") for name, both in CLASSES.items() if both[amd]}


def count(text: str, *, amd: bool) -> dict[str, int]:
    """How many instructions of each class stand in the text of kernels; classes without any are left out."""
    found = {name: len(pattern.findall(text)) for name, pattern in _patterns(amd).items()}
    return {name: number for name, number in found.items() if number}


def widest_bytes(text: str, *, amd: bool) -> int:
    """The most that one instruction of one thread moves to or from global memory; 0: nothing does."""
    if amd:
        kinds = re.findall(r"\b(?:global|buffer|flat)_(?:load|store)_(?:d16_)?(?:hi_)?([a-z]+\d*(?:x\d)?)\b", text)
        return max((_GCN_WIDTHS.get(kind, 0) for kind in kinds), default=0)
    most = 0
    for modifiers in re.findall(r"\b(?:LDG|STG)\.E((?:\.\w+)*)", text):
        width = next((size for name, size in _SASS_WIDTHS.items() if f".{name}." in f"{modifiers}."), 4)
        most = max(most, width)
    return most
