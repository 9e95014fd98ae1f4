"""Discovery of languages: every module of this package with a ``LANGUAGE``, found on the first look-up."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from pathlib import PurePath

from kerneleval.languages.common.base import Language
from kerneleval.records import UsageError, near

__all__ = ["all_languages", "detect", "find"]


@functools.cache
def all_languages() -> dict[str, Language]:
    """Every language by name. An import error in a language's module is raised, never hidden.

    Raises:
        TypeError: a module has no ``LANGUAGE``, or one whose name is not the module's.
    """
    package = importlib.import_module("kerneleval.languages")
    found: dict[str, Language] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg:  # helpers
            continue
        module = importlib.import_module(f"kerneleval.languages.{info.name}")
        language = getattr(module, "LANGUAGE", None)
        if not isinstance(language, Language):
            raise TypeError(f"{module.__name__} must define LANGUAGE, an instance of a Language subclass")
        if language.name != info.name:
            raise TypeError(f"{module.__name__}: LANGUAGE.name is {language.name!r}, but must equal the module's name")
        found[language.name] = language
    return found


def find(name: str) -> Language:
    """The language of that name; raises UsageError with near names for an unknown one."""
    known = all_languages()
    if name not in known:
        raise UsageError(f"unknown language {name!r}: {near(name, known)}")
    return known[name]


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
