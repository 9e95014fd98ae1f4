"""The registry of languages, and the language of a file. See :class:`~kerneleval.records.registry.Registry`."""

from __future__ import annotations

from pathlib import PurePath

from kerneleval.languages.common.base import Language
from kerneleval.records import UsageError
from kerneleval.records.registry import Registry

__all__ = ["LANGUAGES", "all_languages", "detect", "find", "register"]

LANGUAGES: Registry[Language] = Registry(
    "language",
    "kerneleval.languages",
    problem=lambda plugin: "" if isinstance(plugin, Language) else "it must be a subclass of Language",
    module_is_name=True,
)
register, find, all_languages = LANGUAGES.register, LANGUAGES.find, LANGUAGES.all


def detect(path: str, text: str) -> str:
    """The name of the language of a file, from its suffix and, where several share one, from its text.

    Raises:
        UsageError: no language has that suffix.
    """
    suffix = PurePath(path).suffix.lower()
    claims = {name: lang.claim(text) for name, lang in all_languages().items() if suffix in lang.suffixes}
    if not claims:
        known = sorted({s for lang in all_languages().values() for s in lang.suffixes})
        shown = f"suffix {suffix!r}" if suffix else "no suffix"
        raise UsageError(f"{path}: {shown} belongs to no language; known suffixes are {', '.join(known)}")
    return max(claims, key=lambda name: claims[name])
