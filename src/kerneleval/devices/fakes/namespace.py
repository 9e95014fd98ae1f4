"""A stand-in for a namespace of PyTorch whose functions take what the real ones take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Namespace"]


class Namespace:
    """Has what it was given and nothing else.

    Args:
        name: as in PyTorch: ``torch.mps``.
        real: the real namespace, which PyTorch has in every build; from its functions come the signatures.
        answers: name -> what stands in for the function of that name.
    """

    def __init__(self, name: str, real: Any, answers: Mapping[str, Callable[..., Any]]) -> None:
        self.name = name
        self.called: set[str] = set()
        self._real = real
        self._answers = dict(answers)

    @property
    def offered(self) -> set[str]:
        """Names of the functions that it has."""
        return set(self._answers)

    def __getattr__(self, name: str) -> Any:
        answers = self.__dict__.get("_answers", {})
        if name not in answers:
            raise AttributeError(f"the fake of {self.__dict__.get('name')} has no {name!r}")
        signature = inspect.signature(getattr(self._real, name))

        def call(*args: Any, **kwargs: Any) -> Any:
            signature.bind(*args, **kwargs)  # TypeError where the real one would not take them
            self.called.add(name)
            return answers[name](*args, **kwargs)

        return call
